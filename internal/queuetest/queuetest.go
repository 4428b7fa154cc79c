// Package queuetest is what every database has to show of the store of the unique mode:
// who holds a name, alone or together with others, and who waits for it in which order.
//
// The tests call the methods of a [driver.Store] and look at the tables. The drivers
// run them, in every session setting that could matter. What a Locker makes of a store is
// tested by package conformance.
package queuetest

import (
	"context"
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
	Open  func(tb testing.TB, client driver.Client) driver.Store
	Clock string // the SQL of the clock, in microseconds
	// Classify is that of the database.
	Classify func(error) driver.Fault
	// Rows says that rows are locked, and not the whole database.
	Rows bool
	// Push says that the database tells waiters of their turn.
	Push bool
	// Short leaves out what takes long: queues of hundreds, races and storms.
	Short bool
}

// Run runs every test as a subtest of t, one after the other.
func Run(t *testing.T, f Fixture) {
	s := &suite{Fixture: f}
	s.store, s.other = s.open(t), s.open(t)
	parts := []map[string]func(*testing.T, *suite, string){
		sharedTermTests, renewTests, lookTests, sweepTests,
		orderTests, enqueueTests, readerTests, expiryTests, revokeTests, resumeTests, detachTests, beatTests, reportTests, endTermTests, settleTests,
		raiseTests, directTests,
	}
	if !f.Short {
		parts = append(parts, longTests, raceTests, stormTests)
	}
	if f.Push {
		parts = append(parts, pushTests)
	}
	if f.Rows {
		parts = append(parts, lockedRowTests, endTermRowTests, detachRowTests, raiseRowTests)
	}
	for _, part := range parts {
		for name, test := range part {
			t.Run(name, func(t *testing.T) {
				prefix := strings.ReplaceAll(name, " ", "-")
				test(t, s, prefix)
				s.consistent(t, prefix)
			})
		}
	}
}

// suite runs its tests one after the other, each over names of its own.
type suite struct {
	Fixture
	store, other driver.Store // of two clients
}

const (
	minute = time.Minute
	handed = 25 * time.Second // a machine that is busy may take some of them
	hour   = time.Hour
)

// open opens a client of its own.
func (s *suite) open(t *testing.T) driver.Store {
	return s.openFor(t, driver.Client{Instance: newID(), Label: "test"})
}

// openFor opens a store for a client.
func (s *suite) openFor(t *testing.T, client driver.Client) driver.Store {
	return &retrier{s.Open(t, client), s.Classify}
}

// retrier asks again as often as a Locker may if the database wants to be asked again: on a busy
// machine the server may end a transaction whose client is late.
type retrier struct {
	driver.Store
	classify func(error) driver.Fault
}

// Acquire implements [driver.Store].
func (r *retrier) Acquire(ctx context.Context, reqs []driver.AcquireRequest) ([]driver.AcquireResult, error) {
	return again(r, func() ([]driver.AcquireResult, error) { return r.Store.Acquire(ctx, reqs) })
}

// Release implements [driver.Store].
func (r *retrier) Release(ctx context.Context, reqs []driver.ReleaseRequest) ([]driver.ReleaseResult, error) {
	return again(r, func() ([]driver.ReleaseResult, error) { return r.Store.Release(ctx, reqs) })
}

func again[T any](r *retrier, call func() ([]T, error)) (res []T, err error) {
	for range 10 {
		if res, err = call(); err == nil || r.classify(err) != driver.Again {
			break
		}
	}
	return res, err
}

func newID() (id driver.ID) {
	_, _ = rand.Read(id[:])
	return id
}

// writer is a request for a name, exclusive.
func writer(name string) driver.AcquireRequest {
	id := newID()
	return driver.AcquireRequest{
		Name: name, Acq: id, Owner: "owner " + id.String(), TTL: minute, Life: minute, Handed: handed,
	}
}

// atOnce is a request that does not wait.
func atOnce(r driver.AcquireRequest) driver.AcquireRequest {
	r.Life, r.Handed, r.Carries = 0, 0, nil
	return r
}

// reader is a request for a name, shared.
func reader(name string) driver.AcquireRequest {
	r := writer(name)
	r.Shared = true
	return r
}

// held is a lease.
type held struct {
	driver.AcquireRequest
	driver.AcquireResult
}

func (h held) release() driver.ReleaseRequest {
	return driver.ReleaseRequest{Name: h.Name, Acq: h.Acq, Version: h.Version, Shared: h.Shared}
}

func (h held) renew(ttl time.Duration) driver.RenewRequest {
	return driver.RenewRequest{Name: h.Name, Acq: h.Acq, Version: h.Version, TTL: ttl, Holds: 2, Shared: h.Shared}
}

// grants requests names without a claim, in one batch.
func (s *suite) grants(t *testing.T, reqs ...driver.AcquireRequest) []driver.AcquireResult {
	t.Helper()
	all := make([]driver.AcquireRequest, len(reqs))
	for i, r := range reqs {
		all[i] = atOnce(r)
	}
	res, err := s.store.Acquire(t.Context(), all)
	if err != nil || len(res) != len(reqs) {
		t.Fatalf("Acquire = %+v, %v", res, err)
	}
	return res
}

// grant is grants of one name.
func (s *suite) grant(t *testing.T, req driver.AcquireRequest) driver.AcquireResult {
	t.Helper()
	r := s.grants(t, req)[0]
	if r.Now <= 0 {
		t.Fatalf("%s: %+v", req.Name, r)
	}
	return r
}

// take is grant of a name that must be free.
func (s *suite) take(t *testing.T, req driver.AcquireRequest) held {
	t.Helper()
	r := s.grant(t, req)
	if !r.Granted || r.Found || r.Version <= 0 || r.Remaining != req.TTL {
		t.Fatalf("%s: %+v", req.Name, r)
	}
	return held{req, r}
}

// takeAgain is grant of a name that req was granted before.
func (s *suite) takeAgain(t *testing.T, req driver.AcquireRequest) held {
	t.Helper()
	r := s.grant(t, req)
	if !r.Granted || r.Version <= 0 || r.Remaining <= 0 || r.Remaining > req.TTL {
		t.Fatalf("%s: %+v", req.Name, r)
	}
	return held{req, r}
}

// lose is grant of a name that must be kept from newcomers.
func (s *suite) lose(t *testing.T, req driver.AcquireRequest) driver.AcquireResult {
	t.Helper()
	r := s.grant(t, req)
	if r.Granted {
		t.Fatalf("%s: granted past the holder or the queue: %+v", req.Name, r)
	}
	return r
}

func (s *suite) release(t *testing.T, want bool, reqs ...driver.ReleaseRequest) {
	t.Helper()
	freed, err := s.store.Release(t.Context(), reqs)
	wrong := func(r driver.ReleaseResult) bool { return r.Freed != want }
	if err != nil || len(freed) != len(reqs) || slices.ContainsFunc(freed, wrong) {
		t.Errorf("Release = %v, %v; want %v", freed, err, want)
	}
}

func (s *suite) renew(t *testing.T, want driver.RenewStatus, reqs ...driver.RenewRequest) {
	t.Helper()
	for _, wait := range []bool{false, true} {
		res, err := s.store.Renew(t.Context(), reqs, wait)
		if err != nil || len(res.Status) != len(reqs) || res.Now == 0 {
			t.Fatalf("Renew = %+v, %v", res, err)
		}
		for i, status := range res.Status {
			if status != want {
				t.Errorf("renewal %d: %v, want %v", i, status, want)
			}
		}
	}
}

func enqueue(t *testing.T, store driver.Store, reqs ...driver.AcquireRequest) []driver.AcquireResult {
	t.Helper()
	res, err := store.Acquire(t.Context(), reqs)
	if err != nil || len(res) != len(reqs) {
		t.Fatalf("Acquire = %+v, %v", res, err)
	}
	for i, r := range res {
		if r.Now <= 0 || r.Granted && (r.Version <= 0 || r.Remaining <= 0 || r.Ahead != 0) || !r.Granted && (r.Found || r.Version != 0) {
			t.Fatalf("%s: %+v", reqs[i].Name, r)
		}
	}
	return res
}

// wait enters the queue for a name, in which so many must be ahead.
func wait(t *testing.T, store driver.Store, req driver.AcquireRequest, ahead int) driver.AcquireResult {
	t.Helper()
	r := enqueue(t, store, req)[0]
	if r.Granted || r.Ahead != ahead {
		t.Fatalf("%s: %+v, want %d ahead", req.Name, r, ahead)
	}
	return r
}

// enter is enqueue of one request that must be granted at once.
func enter(t *testing.T, store driver.Store, req driver.AcquireRequest) held {
	t.Helper()
	r := enqueue(t, store, req)[0]
	if !r.Granted || r.Found || r.Remaining != req.TTL {
		t.Fatalf("%s: %+v", req.Name, r)
	}
	return held{req, r}
}

// has is enqueue of one request to which the name must have been handed over, for most
// at most.
func has(t *testing.T, store driver.Store, req driver.AcquireRequest, most time.Duration) held {
	t.Helper()
	r := enqueue(t, store, req)[0]
	if !r.Granted || !r.Found || r.Remaining > most || r.Remaining < most-minute/2 {
		t.Fatalf("%s: %+v, want at most %v", req.Name, r, most)
	}
	return held{req, r}
}

// free releases one lease. It returns the waiters of the same store that it went to.
func free(t *testing.T, store driver.Store, req driver.ReleaseRequest) []driver.HandOver {
	t.Helper()
	res, err := store.Release(t.Context(), []driver.ReleaseRequest{req})
	if err != nil || len(res) != 1 || !res[0].Freed {
		t.Fatalf("Release = %+v, %v", res, err)
	}
	return res[0].Next
}

// pass is free where the name must go to waiters of the same store.
func pass(t *testing.T, store driver.Store, from held, to ...driver.AcquireRequest) []held {
	t.Helper()
	next := free(t, store, from.release())
	if len(next) != len(to) {
		t.Fatalf("%s: next are %+v, want %d", from.Name, next, len(to))
	}
	all := make([]held, len(to))
	for i, req := range to {
		at := slices.IndexFunc(next, func(n driver.HandOver) bool { return n.Acq == req.Acq })
		if at < 0 {
			t.Fatalf("%s: next are %+v, want %v", from.Name, next, req.Acq)
		}
		n := next[at]
		if n.Version <= from.Version || n.Version != next[0].Version || n.Remaining != req.TTL || n.Now < from.Now {
			t.Fatalf("%s: next is %+v after %+v", from.Name, n, from.AcquireResult)
		}
		all[i] = held{req, driver.AcquireResult{Granted: true, Version: n.Version, Remaining: n.Remaining, Now: n.Now}}
	}
	return all
}

// end is free where the name must go to nobody of the same store.
func end(t *testing.T, store driver.Store, h held) {
	t.Helper()
	if next := free(t, store, h.release()); len(next) > 0 {
		t.Fatalf("%s: next are %+v", h.Name, next)
	}
}

func abandon(t *testing.T, store driver.Store, reqs ...driver.AcquireRequest) {
	t.Helper()
	all := make([]driver.ReleaseRequest, len(reqs))
	for i, r := range reqs {
		all[i] = driver.ReleaseRequest{Name: r.Name, Acq: r.Acq, Shared: r.Shared}
	}
	if _, err := store.Release(t.Context(), all); err != nil {
		t.Fatal(err)
	}
}

func (s *suite) look(t *testing.T, name string) driver.Row {
	t.Helper()
	res, err := s.store.Read(t.Context(), driver.ReadRequest{Names: []string{name}})
	if err != nil || len(res.Rows) != 1 {
		t.Fatal(res, err)
	}
	return res.Rows[0]
}

func (s *suite) waiters(t *testing.T) ([]driver.Waiter, error) {
	t.Helper()
	res, err := s.store.Read(t.Context(), driver.ReadRequest{Waiters: true})
	return res.Waiters, err
}

// quiet checks that nobody holds a name or waits for it, and that newcomers get it.
func (s *suite) quiet(t *testing.T, name string) {
	t.Helper()
	if n := s.claims(t, name); n != 0 {
		t.Errorf("%s: %d claims are left", name, n)
	}
	if r := s.look(t, name); r.Held() || r.Gate > r.Now {
		t.Errorf("%+v", r)
	}
	end(t, s.store, s.take(t, writer(name)))
}

func (s *suite) sweep(t *testing.T) driver.SweepResult {
	t.Helper()
	res, err := s.store.Sweep(t.Context(), driver.SweepRequest{Limit: 10_000, Retention: hour})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// crashed is sweep. It returns the holders of a name that have crashed.
func (s *suite) crashed(t *testing.T, name string) (crashed []driver.Holder) {
	t.Helper()
	for _, c := range s.sweep(t).Crashed {
		if c.Name == name {
			crashed = append(crashed, c.Holder)
		}
	}
	return crashed
}
