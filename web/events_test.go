package web_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/web"
)

// stream is an open page that updates itself.
type stream struct {
	t     *testing.T
	res   *http.Response
	lines *bufio.Scanner
	leave context.CancelFunc
}

func (s *site) open(query string) *stream {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	r := s.request(http.MethodGet, "/events"+query, nil).WithContext(ctx)
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		s.t.Fatal(err)
	}
	o := &stream{t: s.t, res: res, lines: bufio.NewScanner(res.Body), leave: cancel}
	o.lines.Buffer(nil, 1<<20)
	s.t.Cleanup(func() { cancel(); _ = res.Body.Close() })
	return o
}

// next returns the next event, "" at the end of the stream.
func (o *stream) next() (event, data string) {
	var b strings.Builder
	for o.lines.Scan() {
		switch line := o.lines.Text(); {
		case strings.HasPrefix(line, "event: "):
			event = line[len("event: "):]
		case strings.HasPrefix(line, "data: "):
			b.WriteString(line[len("data: "):] + "\n")
		case line == "" && event != "":
			return event, b.String()
		}
	}
	return "", ""
}

// until reads events until one has a text.
func (o *stream) until(event, part string) {
	o.t.Helper()
	for {
		switch got, data := o.next(); {
		case got == "":
			o.t.Fatalf("the stream ended before %q: %v", part, o.lines.Err())
		case got == event && strings.Contains(data, part):
			return
		}
	}
}

func TestAnOpenPageIsToldOfChanges(t *testing.T) {
	t.Parallel()
	for _, engine := range engines() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, engine, web.Options{})
			list, name := s.open(""), s.open("?page=name&n="+url.QueryEscape("a b"))
			if got := list.res.Header.Get("Content-Type"); got != "text/event-stream" {
				t.Errorf("Content-Type %q", got)
			}
			list.until("update", "No name is held.")
			name.until("update", "unknown")
			lease := s.lock("a b")
			list.until("update", "&#34;a b&#34;")
			name.until("update", fmt.Sprint(lease.Token()))
			s.waiters("a b", 2)
			list.until("update", "Longest queues")
			name.until("update", "2 waiting")
		})
	}
}

func TestAnOpenPageIsToldOfProblems(t *testing.T) {
	t.Parallel()
	s := newSite(t, testdb.SQLite, web.Options{})
	list := s.open("")
	list.until("update", "No name")
	s.exec(`ALTER TABLE sqllock_lock RENAME TO elsewhere`)
	list.until("problem", "does not answer")
	s.exec(`ALTER TABLE elsewhere RENAME TO sqllock_lock`)
	list.until("update", "No name")
	s.open("?page=name&n=").until("problem", "cannot be a name")
}

func TestAStreamEndsWithItsRequest(t *testing.T) {
	t.Parallel()
	s := newSite(t, testdb.SQLite, web.Options{})
	for range 3 {
		o := s.open("?page=name&n=k")
		o.until("update", "unknown")
		o.leave()
		_ = o.res.Body.Close()
	}
	eventually(t, "no stream is open", func() bool { return s.page.Streams() == 0 })
}

func TestStreamsEndWithClose(t *testing.T) {
	t.Parallel()
	s := newSite(t, testdb.SQLite, web.Options{Interval: time.Hour})
	list, name := s.open(""), s.open("?page=name&n=k")
	list.until("update", "No name")
	name.until("update", "unknown")
	if err := s.page.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, o := range []*stream{list, name} {
		if _, err := io.ReadAll(o.res.Body); err != nil {
			t.Errorf("the end of the stream: %v", err)
		}
	}
	if s.page.Streams() != 0 || s.page.Watched() != 0 {
		t.Errorf("%d streams, %d watched names", s.page.Streams(), s.page.Watched())
	}
	s.get("/").wants(t, 503)
	if err := s.page.Close(t.Context()); err != nil {
		t.Errorf("Close again: %v", err)
	}
}

func TestOnlySoManyPagesUpdateThemselves(t *testing.T) {
	t.Parallel()
	s := newSite(t, testdb.SQLite, web.Options{Interval: time.Hour})
	for range web.MaxStreams {
		s.open("?page=name&n=k")
	}
	eventually(t, "all streams are open", func() bool { return s.page.Streams() == web.MaxStreams })
	if a := s.get("/events").wants(t, 503, "too many"); a.Header.Get("Retry-After") == "" {
		t.Error("nothing says when to come back")
	}
	s.get("/").wants(t, 200)
}
