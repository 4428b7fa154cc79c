package lockmysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/lockmysql"
)

// sessionMode is one of the modes that keep locks in sessions.
type sessionMode struct {
	name string
	open func(*lockmysql.Database, context.Context, driver.Client, driver.SessionOptions) (driver.SessionStore, error)
}

var (
	forUpdate    = sessionMode{"for update", (*lockmysql.Database).OpenForUpdate}
	advisory     = sessionMode{"advisory", (*lockmysql.Database).OpenAdvisory}
	sessionModes = []sessionMode{forUpdate, advisory}
)

// eachMode runs a test for both modes on every server, each on a database of its own.
func eachMode(t *testing.T, test func(t *testing.T, f *fixture, m sessionMode)) {
	for _, m := range sessionModes {
		t.Run(m.name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, f *fixture) { test(t, f, m) })
		})
	}
}

const sessionTTL = 30 * time.Second

// client is a Locker's store, its instance and the handle it works on.
type client struct {
	driver.SessionStore
	id driver.ID
	db *sql.DB
}

// on opens a store on a handle.
func (m sessionMode) on(t *testing.T, db *sql.DB, ttl time.Duration, opts ...lockmysql.Option) *client {
	t.Helper()
	id := newID()
	s, err := m.open(lockmysql.DB(db, opts...), t.Context(), driver.Client{Instance: id, Label: "host/test/1"}, driver.SessionOptions{TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return &client{s, id, db}
}

// client opens a store on a handle of its own.
func (m sessionMode) client(t *testing.T, f *fixture, params ...string) *client {
	t.Helper()
	return m.on(t, f.Open(t, params...), sessionTTL)
}

// session opens a session, which is closed when the test ends.
func (c *client) session(t *testing.T) driver.Session {
	t.Helper()
	s, err := c.Session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// ask asks a session of its own for one lock.
func (c *client) ask(t *testing.T, r driver.AcquireRequest) (driver.Session, driver.AcquireResult) {
	t.Helper()
	s := c.session(t)
	res, err := s.Grant(t.Context(), []driver.AcquireRequest{r})
	if err != nil || len(res) != 1 {
		t.Fatalf("Grant: %v, %v", res, err)
	}
	return s, res[0]
}

// lock gets one lock or fails.
func (c *client) lock(t *testing.T, r driver.AcquireRequest) (driver.Session, driver.AcquireResult) {
	t.Helper()
	s, res := c.ask(t, r)
	if !res.Granted {
		t.Fatalf("%q is not granted: %+v", r.Name, res)
	}
	return s, res
}

// wantDenied checks that nobody gets a lock, and returns what they are told.
func (c *client) wantDenied(t *testing.T, r driver.AcquireRequest) driver.AcquireResult {
	t.Helper()
	s, res := c.ask(t, r)
	if res.Granted {
		t.Errorf("%q is granted: %+v", r.Name, res)
	}
	giveBack(t, s)
	return res
}

// unlock releases a lock that is held. It tries again if somebody has locked its row for a moment.
func unlock(t *testing.T, s driver.Session, r driver.AcquireRequest, res driver.AcquireResult) {
	t.Helper()
	release := []driver.ReleaseRequest{{Name: r.Name, Acq: r.Acq, Version: res.Version, MinHold: r.MinHold, Shared: r.Shared}}
	freed, err := s.Release(t.Context(), release)
	for tries := 0; errors.Is(err, lockmysql.ErrLocked) && tries < 5; tries++ {
		freed, err = s.Release(t.Context(), release)
	}
	if err != nil || len(freed) != 1 || !freed[0] {
		t.Errorf("Release: %v, %v", freed, err)
	}
}

func giveBack(t *testing.T, s driver.Session) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// pings renews one lock.
func pings(t *testing.T, s driver.Session, r driver.AcquireRequest, res driver.AcquireResult) driver.RenewStatus {
	t.Helper()
	renew := []driver.RenewRequest{{Name: r.Name, Acq: r.Acq, Version: res.Version, TTL: sessionTTL, Holds: 1, Shared: r.Shared}}
	all, err := s.Renew(t.Context(), renew)
	for tries := 1; err == nil && all.Now == 0 && tries < 20; tries++ { // the clock was not told in the time that a renewal gives it
		all, err = s.Renew(t.Context(), renew)
	}
	if err != nil || len(all.Status) != 1 || all.Now == 0 {
		t.Fatalf("Renew: %+v, %v", all, err)
	}
	return all.Status[0]
}

// eventually waits until a condition is met. It looks once more when the time is over: the machine
// may have taken it.
func eventually(t *testing.T, what string, within time.Duration, met func() bool) {
	t.Helper()
	for end := time.Now().Add(within); ; time.Sleep(10 * time.Millisecond) {
		late := time.Now().After(end)
		if met() {
			return
		}
		if late {
			t.Fatalf("not so after %v: %s", within, what)
		}
	}
}

// eventuallyGets waits until somebody gets a lock.
func (c *client) eventuallyGets(t *testing.T, r driver.AcquireRequest, within time.Duration) (s driver.Session, res driver.AcquireResult) {
	t.Helper()
	eventually(t, fmt.Sprintf("%q is granted", r.Name), within, func() bool {
		s, res = c.ask(t, r)
		if !res.Granted {
			giveBack(t, s)
		}
		return res.Granted
	})
	return s, res
}

// connections are those of the database but for the one that asks.
func connections(t *testing.T, db *sql.DB) (ids []int64) {
	t.Helper()
	rows, err := db.Query(`SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()`)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

func killSessions(t *testing.T, db *sql.DB) {
	t.Helper()
	for _, id := range connections(t, db) {
		_, _ = db.Exec(fmt.Sprintf("KILL %d", id)) // it may be gone already
	}
}

func TestASessionHoldsALockUntilItReleasesIt(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, f *fixture, m sessionMode) {
		for name, params := range sessions(t, f) {
			t.Run(name, func(t *testing.T) {
				a, b := m.client(t, f, params...), m.client(t, f)
				r := request("größer " + name)
				r.Value = []byte{0, 1, '\'', '\\'}
				s, res := a.lock(t, r)
				if skew := time.Since(time.UnixMicro(res.Now)).Abs(); skew > time.Minute || res.Remaining != sessionTTL || res.Version != res.Now || res.Crashed != (driver.Holder{}) {
					t.Errorf("granted: %+v", res)
				}
				want := driver.Holder{Acq: r.Acq, Owner: r.Owner, Label: "host/test/1", Version: res.Version, Since: res.Now}
				if got := b.wantDenied(t, request(r.Name)); got.Holder != want || got.Now < res.Now {
					t.Errorf("a rival is told %+v, want holder %+v", got, want)
				}
				if again, err := s.Grant(t.Context(), []driver.AcquireRequest{r}); err != nil || !again[0].Granted || !again[0].Found || again[0].Version != res.Version {
					t.Errorf("repeated: %+v, %v", again, err)
				}
				row := lookSession(t, b, r.Name)
				if row.Holder != want || !row.Session || row.Holds != 1 || string(row.Value) != string(r.Value) {
					t.Errorf("a look: %+v", row)
				}
				if status := pings(t, s, r, res); status != driver.Renewed {
					t.Errorf("renewal: %v", status)
				}
				if status := pings(t, s, request(r.Name), res); status != driver.Ended {
					t.Errorf("renewal of another acq: %v", status)
				}
				unlock(t, s, r, res)
				if freed, err := s.Release(t.Context(), []driver.ReleaseRequest{{Name: r.Name, Acq: r.Acq, Version: res.Version}}); err != nil || freed[0] {
					t.Errorf("a second release: %v, %v", freed, err)
				}
				row = lookSession(t, b, r.Name)
				if row.Held() || row.Session || row.Ended != driver.EndedReleased || row.Holder.Version != res.Version || row.Holder.Until < res.Now || row.Value != nil {
					t.Errorf("a look after the release: %+v", row)
				}
				next := request(r.Name)
				s2, res2 := b.lock(t, next)
				if res2.Version <= res.Version || res2.Crashed != (driver.Holder{}) {
					t.Errorf("the next: %+v, after %+v", res2, res)
				}
				unlock(t, s2, next, res2)
				giveBack(t, s)
				select {
				case <-s.Gone():
				default:
					t.Error("a session that was closed is not gone")
				}
				if _, err := s.Grant(t.Context(), []driver.AcquireRequest{r}); !errors.Is(err, sql.ErrConnDone) || a.Classify(err) != driver.Unreachable {
					t.Errorf("a grant after Close: %v", err)
				}
			})
		}
	})
}

func lookSession(t *testing.T, c *client, name string) driver.Row {
	t.Helper()
	rows, err := c.Look(t.Context(), []string{name})
	if err != nil || len(rows) != 1 || rows[0].Name != name || rows[0].Now == 0 {
		t.Fatalf("Look: %+v, %v", rows, err)
	}
	return rows[0]
}
