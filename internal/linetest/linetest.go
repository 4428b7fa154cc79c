// Package linetest is what every database has to show of those who wait in line for
// names of the unique mode.
package linetest

import (
	"crypto/rand"
	"database/sql"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// Fixture is an empty database with tables.
type Fixture struct {
	DB    *sql.DB
	Open  func(tb testing.TB) driver.LeaseStore // a client of its own, with an instance of its own
	Clock string                                // the SQL of the clock, in microseconds
}

// Run shows all of it.
func Run(t *testing.T, f Fixture) {
	s := &suite{Fixture: f, store: f.Open(t), other: f.Open(t)}
	for _, part := range []map[string]func(*testing.T, *suite, string){order, asking, sharing, gates, forcing, resuming, storms} {
		for name, test := range part {
			t.Run(name, func(t *testing.T) { test(t, s, strings.ReplaceAll(name, " ", "-")) })
		}
	}
}

// suite runs its tests one after the other, each over names of its own.
type suite struct {
	Fixture
	store, other driver.LeaseStore // of two clients
}

const (
	minute = time.Minute
	handed = 5 * time.Second
	hour   = time.Hour
)

func newID() (id driver.ID) {
	_, _ = rand.Read(id[:])
	return id
}

// writer waits for a name alone.
func writer(name string) driver.TicketRequest {
	id := newID()
	return driver.TicketRequest{
		GrantRequest: driver.GrantRequest{Name: name, Acq: id, Owner: "owner " + id.String(), TTL: minute},
		Life:         minute, Handed: handed,
	}
}

// reader waits for a name together with others.
func reader(name string) driver.TicketRequest {
	r := writer(name)
	r.Shared = true
	return r
}

// held is a lease.
type held struct {
	driver.TicketRequest
	driver.GrantResult
}

func (h held) release() driver.ReleaseRequest {
	return driver.ReleaseRequest{Name: h.Name, Acq: h.Acq, Version: h.Version, Shared: h.Shared}
}

// grant asks for one name without standing in line.
func (s *suite) grant(t *testing.T, req driver.TicketRequest) driver.GrantResult {
	t.Helper()
	res, err := s.store.Grant(t.Context(), []driver.GrantRequest{req.GrantRequest})
	if err != nil || len(res) != 1 || res[0].Now <= 0 {
		t.Fatalf("Grant = %+v, %v", res, err)
	}
	return res[0]
}

// take is grant of a name that must be free.
func (s *suite) take(t *testing.T, req driver.TicketRequest) held {
	t.Helper()
	r := s.grant(t, req)
	if !r.Granted || r.Found || r.Version <= 0 || r.Remaining != req.TTL {
		t.Fatalf("%s: %+v", req.Name, r)
	}
	return held{req, r}
}

// lose is grant of a name that must be kept from newcomers.
func (s *suite) lose(t *testing.T, req driver.TicketRequest) driver.GrantResult {
	t.Helper()
	r := s.grant(t, req)
	if r.Granted {
		t.Fatalf("%s: barged in: %+v", req.Name, r)
	}
	return r
}

func line(t *testing.T, store driver.LeaseStore, reqs ...driver.TicketRequest) []driver.TicketResult {
	t.Helper()
	res, err := store.Line(t.Context(), reqs)
	if err != nil || len(res) != len(reqs) {
		t.Fatalf("Line = %+v, %v", res, err)
	}
	for i, r := range res {
		if r.Now <= 0 || r.Granted && (r.Version <= 0 || r.Remaining <= 0 || r.Ahead != 0) || !r.Granted && (r.Found || r.Version != 0) {
			t.Fatalf("%s: %+v", reqs[i].Name, r)
		}
	}
	return res
}

// wait lets one stand in line behind so many.
func wait(t *testing.T, store driver.LeaseStore, req driver.TicketRequest, ahead int) driver.TicketResult {
	t.Helper()
	r := line(t, store, req)[0]
	if r.Granted || r.Ahead != ahead {
		t.Fatalf("%s: %+v, want %d ahead", req.Name, r, ahead)
	}
	return r
}

// enter is Line of one that must be granted now.
func enter(t *testing.T, store driver.LeaseStore, req driver.TicketRequest) held {
	t.Helper()
	r := line(t, store, req)[0]
	if !r.Granted || r.Found || r.Remaining != req.TTL {
		t.Fatalf("%s: %+v", req.Name, r)
	}
	return held{req, r.GrantResult}
}

// has is Line of one to whom the name must have been handed over, for so long at most.
func has(t *testing.T, store driver.LeaseStore, req driver.TicketRequest, most time.Duration) held {
	t.Helper()
	r := line(t, store, req)[0]
	if !r.Granted || !r.Found || r.Remaining > most || r.Remaining < most-minute/2 {
		t.Fatalf("%s: %+v, want at most %v", req.Name, r, most)
	}
	return held{req, r.GrantResult}
}

// free releases one lease and returns to whom of the same store it went.
func free(t *testing.T, store driver.LeaseStore, req driver.ReleaseRequest) []driver.Turn {
	t.Helper()
	res, err := store.Release(t.Context(), []driver.ReleaseRequest{req})
	if err != nil || len(res) != 1 || !res[0].Freed {
		t.Fatalf("Release = %+v, %v", res, err)
	}
	return res[0].Next
}

// pass is free where the name must go to waiters of the same store.
func pass(t *testing.T, store driver.LeaseStore, from held, to ...driver.TicketRequest) []held {
	t.Helper()
	next := free(t, store, from.release())
	if len(next) != len(to) {
		t.Fatalf("%s: next are %+v, want %d", from.Name, next, len(to))
	}
	all := make([]held, len(to))
	for i, req := range to {
		at := slices.IndexFunc(next, func(n driver.Turn) bool { return n.Acq == req.Acq })
		if at < 0 {
			t.Fatalf("%s: next are %+v, want %v", from.Name, next, req.Acq)
		}
		n := next[at]
		if n.Version <= from.Version || n.Version != next[0].Version || n.Remaining != req.TTL || n.Now < from.Now {
			t.Fatalf("%s: next is %+v after %+v", from.Name, n, from.GrantResult)
		}
		all[i] = held{req, driver.GrantResult{Granted: true, Version: n.Version, Remaining: n.Remaining, Now: n.Now}}
	}
	return all
}

// end is free where the name must go to nobody of the same store.
func end(t *testing.T, store driver.LeaseStore, h held) {
	t.Helper()
	if next := free(t, store, h.release()); len(next) > 0 {
		t.Fatalf("%s: next are %+v", h.Name, next)
	}
}

func abandon(t *testing.T, store driver.LeaseStore, reqs ...driver.TicketRequest) {
	t.Helper()
	all := make([]driver.AbandonRequest, len(reqs))
	for i, r := range reqs {
		all[i] = driver.AbandonRequest{Name: r.Name, Acq: r.Acq, Shared: r.Shared}
	}
	if err := store.Abandon(t.Context(), all); err != nil {
		t.Fatal(err)
	}
}

func (s *suite) look(t *testing.T, name string) driver.Row {
	t.Helper()
	rows, err := s.store.Look(t.Context(), []string{name})
	if err != nil || len(rows) != 1 {
		t.Fatal(rows, err)
	}
	return rows[0]
}

// quiet checks that nobody holds a name or waits for it, and that newcomers get it.
func (s *suite) quiet(t *testing.T, name string) {
	t.Helper()
	if n := s.tickets(t, name); n != 0 {
		t.Errorf("%s: %d tickets are left", name, n)
	}
	if r := s.look(t, name); r.Held() || r.Gate > r.Now {
		t.Errorf("%+v", r)
	}
	end(t, s.store, s.take(t, writer(name)))
}
