//go:build unix

package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/sqllock/sqllock/internal/testdb"
)

// webCall is a call of web, and the address of its page.
type webCall struct {
	*call
	address string
}

func (u client) serve(t *testing.T, args ...string) *webCall {
	t.Helper()
	p := u.command(t, append([]string{"web", "--listen", "127.0.0.1:0", "--interval", "100ms"}, args...)...)
	p.Stdout = nil
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.start()
	line, err := bufio.NewReader(out).ReadString('\n')
	address, ok := strings.CutPrefix(strings.TrimSpace(line), "the page is at ")
	if err != nil || !ok {
		t.Fatalf("web says %q: %v", line, err)
	}
	return &webCall{p, address}
}

// get returns the status and the text of a page, addressed by a host.
func (s *webCall) get(path, host string) (int, string) {
	s.t.Helper()
	r, err := http.NewRequest(http.MethodGet, s.address+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if host != "" {
		r.Host = host
	}
	client := http.Client{Timeout: testTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

func TestWebShowsTheLocksUntilASignalEndsIt(t *testing.T) {
	t.Parallel()
	onEachDB(t, func(t *testing.T, s *clientDB) {
		s.put(t, "invoice/1", "who holds it", time.Now().Add(time.Hour))
		p := s.serve(t)
		for path, part := range map[string]string{"": "invoice/1", "?q=inv": "invoice/1", "name?n=invoice%2F1": "who holds it", "style.css": "color-scheme", "live.js": "EventSource"} {
			if status, text := p.get(path, ""); status != 200 || !strings.Contains(text, part) {
				t.Errorf("%q: %d, without %q:\n%s", path, status, part, text)
			}
		}
		if status, _ := p.get("", "evil.example"); status != 421 {
			t.Errorf("for another host: %d", status)
		}
		if status, _ := p.get("unlock?n=invoice%2F1", ""); status != 403 {
			t.Errorf("unlock: %d", status)
		}
		stream, err := http.Get(p.address + "events")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = stream.Body.Close() }()
		sig := map[bool]syscall.Signal{true: syscall.SIGINT, false: syscall.SIGTERM}[s.d.Engine() == testdb.SQLite]
		p.signal(sig)
		if _, err := io.ReadAll(stream.Body); err != nil {
			t.Errorf("the open stream: %v", err)
		}
		if r := p.wait(); r.code != 0 || r.err != "" {
			t.Errorf("after %v: %+v", sig, r)
		}
	})
}

func TestWebTakesANameAwayIfAllowed(t *testing.T) {
	t.Parallel()
	s := newClientDB(t, testdb.New(t, testdb.SQLite))
	s.put(t, "n", "l", time.Now().Add(time.Hour))
	p := s.serve(t, "--allow-unlock")
	res, err := http.Get(p.address + "unlock?n=n")
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(res.Body)
	_ = res.Body.Close()
	form := "confirm=yes"
	for _, m := range regexp.MustCompile(`name="(token|form)" value="([^"]*)"`).FindAllSubmatch(text, -1) {
		form += "&" + string(m[1]) + "=" + string(m[2])
	}
	r, err := http.NewRequest(http.MethodPost, p.address+"unlock?n=n", strings.NewReader(form))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for _, c := range res.Cookies() {
		r.AddCookie(c)
	}
	if res, err = http.DefaultClient.Do(r); err != nil || res.StatusCode != 200 {
		t.Fatalf("%v, %v", res, err)
	}
	_ = res.Body.Close()
	s.run(t, "inspect", "n").want(t, 0, "forced", "")
	p.signal(syscall.SIGTERM)
	p.wait().want(t, 0, "", "took a name away")
}

func TestWebDoesNotListenWhereItShouldNot(t *testing.T) {
	t.Parallel()
	s := newClientDB(t, testdb.New(t, testdb.SQLite))
	for _, address := range []string{":8080", "0.0.0.0:0", "[::]:0", "192.0.2.1:0", "example.com:80"} {
		s.run(t, "web", "--listen", address).want(t, exitUsage, "", "--allow-remote")
		s.run(t, "web", "--listen", address, "--allow-remote", "--allow-unlock").want(t, exitUsage, "", "--allow-unlock is for a loopback address only")
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	s.run(t, "web", "--listen", taken.Addr().String()).want(t, exitSystem, "", "cannot listen on "+taken.Addr().String()+": ")
	u := newClient(t)
	u.run(t, "web", "--listen", "127.0.0.1:0").want(t, exitUnavailable, "", "nothing was ever locked here")
	if _, err := os.Stat(u.home + "/.local"); err == nil {
		t.Error("looking has made the database")
	}
}

func TestWebShowsTheLocksOfAMode(t *testing.T) {
	t.Parallel()
	onSessionModes(t, func(t *testing.T, s *clientDB, m mode) {
		holding := s.shell(t, "@UP; sleep 60", "--mode", string(m), "in the session", "--label", "the holder", "--value", "v")
		p := s.serve(t, "--mode", string(m))
		for path, part := range map[string]string{"": "in the session", "name?n=in+the+session": "the holder"} {
			if status, text := p.get(path, ""); status != 200 || !strings.Contains(text, part) {
				t.Errorf("%q: %d, without %q:\n%s", path, status, part, text)
			}
		}
		p.signal(syscall.SIGTERM)
		p.wait().want(t, 0, "", "")
		holding.end(t)
	})
}

func TestWebListensOnThisHostUnlessItIsTold(t *testing.T) {
	t.Parallel()
	flags := (&app{}).webCommand().Flags
	i := slices.IndexFunc(flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), "listen") })
	if listen, ok := flags[i].(*cli.StringFlag); !ok || listen.Value != "127.0.0.1:8080" {
		t.Errorf("web listens as %+v", flags[i])
	}
}
