package web_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/internal/testlog"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
	"github.com/sqllock/sqllock/web"
)

func TestMain(m *testing.M) { testdb.Main(m) }

const testTimeout = time.Minute

// engines are those that the page is tested on: what it reads is tested on all of them
// elsewhere.
func engines() []string {
	all := []string{testdb.SQLite}
	for _, engine := range testdb.Engines() {
		if engine == testdb.Postgres {
			all = append(all, engine)
		}
	}
	return all
}

// site is a page on a database of its own, as a server of an application has it.
type site struct {
	t      *testing.T
	db     *sql.DB
	locks  *sqllock.Locker
	page   *web.Handler
	server *httptest.Server
	log    *testlog.Text
}

// prefix is where the page is.
const prefix = "/admin/locks"

func newSite(t *testing.T, engine string, opts web.Options, hooks ...sqllock.Hooks) *site {
	t.Helper()
	d := testdb.New(t, engine)
	db := d.Open(t)
	database := any(locksqlite.DB(db)).(driver.UniqueDatabase)
	if engine == testdb.Postgres {
		database = lockpg.DB(db)
	}
	if err := migrations.Up(t.Context(), database.(driver.Migratable)); err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, db: db, log: &testlog.Text{}}
	o := &sqllock.UniqueOptions{Label: "the test", Logger: slog.New(slog.DiscardHandler), Reaper: &sqllock.ReaperOptions{Off: true}}
	for _, h := range hooks {
		o.Hooks = &h
	}
	var err error
	if s.locks, err = sqllock.NewUnique(t.Context(), database, o); err != nil {
		t.Fatal(err)
	}
	opts.Logger = slog.New(slog.NewTextHandler(s.log, nil))
	if opts.Interval == 0 {
		opts.Interval = 100 * time.Millisecond
	}
	if s.page, err = web.New(s.locks, &opts); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(prefix+"/", http.StripPrefix(prefix, s.page))
	s.server = httptest.NewServer(mux)
	t.Cleanup(s.close)
	return s
}

func (s *site) close() {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if err := s.page.Close(ctx); err != nil {
		s.t.Error(err)
	}
	s.server.Close()
	if err := s.locks.Close(ctx); err != nil {
		s.t.Error(err)
	}
}

func (s *site) lock(name string, opts ...sqllock.LockOption) *sqllock.Lease {
	s.t.Helper()
	lease, err := s.locks.Lock(s.t.Context(), name, opts...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = lease.Unlock(context.Background()) })
	return lease
}

func (s *site) exec(query string) {
	s.t.Helper()
	if _, err := s.db.ExecContext(s.t.Context(), query); err != nil {
		s.t.Fatal(err)
	}
}

// answer is what a request got.
type answer struct {
	*http.Response
	text string
}

// do sends a request as a browser at the address would.
func (s *site) do(r *http.Request) answer {
	s.t.Helper()
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, Timeout: testTimeout}
	res, err := client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if res.StatusCode == http.StatusServiceUnavailable {
		s.t.Logf("503: the log of the page: %s", s.log)
	}
	return answer{res, string(text)}
}

func (s *site) request(method, path string, body io.Reader) *http.Request {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.server.URL+prefix+path, body)
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

func (s *site) get(path string) answer {
	s.t.Helper()
	return s.do(s.request(http.MethodGet, path, nil))
}

// wants checks the status, and parts of the text.
func (a answer) wants(t *testing.T, status int, parts ...string) answer {
	t.Helper()
	if a.StatusCode != status {
		t.Errorf("%s %s: status %d, want %d: %.300s", a.Request.Method, a.Request.URL, a.StatusCode, status, a.text)
	}
	for _, part := range parts {
		if !strings.Contains(a.text, part) {
			t.Errorf("%s lacks %q:\n%s", a.Request.URL, part, a.text)
		}
	}
	return a
}

func (a answer) lacks(t *testing.T, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if strings.Contains(a.text, part) {
			t.Errorf("%s has %q:\n%s", a.Request.URL, part, a.text)
		}
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(testTimeout); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// waiters has so many callers wait for a name until the test ends.
func (s *site) waiters(name string, n int) { s.wait(s.locks, name, n, n) }

// waiter has a Locker with a label wait for a name until the test ends, behind others.
func (s *site) waiter(label, name string, others int) {
	s.t.Helper()
	locks, err := sqllock.NewUnique(s.t.Context(), locksqlite.DB(s.db), &sqllock.UniqueOptions{Label: label, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = locks.Close(context.Background()) })
	s.wait(locks, name, 1, others+1)
}

// wait has n callers wait for a name until the test ends, and returns when the queue is so long.
func (s *site) wait(locks *sqllock.Locker, name string, n, long int) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			lease, err := locks.Lock(ctx, name)
			if err == nil {
				_ = lease.Unlock(context.Background())
			}
		})
	}
	s.t.Cleanup(func() { cancel(); all.Wait() })
	eventually(s.t, fmt.Sprintf("%d wait for %s", long, name), func() bool {
		info, err := s.locks.Inspect(s.t.Context(), name)
		return err == nil && info.Waiters == long
	})
}
