package lockpg_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockpg"
)

// sessionMode is one of the modes that keep locks in sessions.
type sessionMode struct {
	name string
	open func(*lockpg.Database, context.Context, driver.Client, driver.SessionOptions) (driver.SessionStore, error)
}

var (
	forUpdate    = sessionMode{"for update", (*lockpg.Database).OpenForUpdate}
	advisory     = sessionMode{"advisory", (*lockpg.Database).OpenAdvisory}
	sessionModes = []sessionMode{forUpdate, advisory}
)

const sessionTTL = 30 * time.Second

// settings are DSN parameters with which everything must work.
var settings = map[string][]string{
	"the defaults":        nil,
	"SERIALIZABLE":        {"default_transaction_isolation=serializable"},
	"the simple protocol": {"default_query_exec_mode=simple_protocol", "default_transaction_isolation=repeatable read"},
	"exec":                {"default_query_exec_mode=exec", "synchronous_commit=off"},
}

// eachMode runs a test for both modes, each on a database of its own.
func eachMode(t *testing.T, test func(t *testing.T, d *testdb.Database, m sessionMode)) {
	t.Helper()
	for _, m := range sessionModes {
		t.Run(m.name, func(t *testing.T) {
			d := withTables(t)
			test(t, d, m)
		})
	}
}

// client is a Locker's store, its instance, and the handle that it works on.
type client struct {
	driver.SessionStore
	id driver.ID
	db *sql.DB
}

var instances atomic.Int32

// on opens a store on a handle. Before PostgreSQL 14 no silent session of advisory mode ends.
func (m sessionMode) on(t *testing.T, db *sql.DB, ttl time.Duration, opts ...lockpg.Option) *client {
	t.Helper()
	n := instances.Add(1)
	id := driver.ID{7, byte(n >> 8), byte(n)}
	s, err := patiently(func() (driver.SessionStore, error) {
		return m.open(lockpg.DB(db, opts...), t.Context(), driver.Client{Instance: id, Label: "host/test/1"}, driver.SessionOptions{TTL: ttl, AllowSilentHolders: true})
	})
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
func (m sessionMode) client(t *testing.T, d *testdb.Database, params ...string) *client {
	t.Helper()
	return m.on(t, d.Open(t, params...), sessionTTL)
}

var acqs atomic.Int32

// ask is a request for a lock by a new acquisition.
func ask(name string) driver.AcquireRequest {
	n := int(acqs.Add(1))
	return driver.AcquireRequest{Name: name, Acq: acq(n), Owner: fmt.Sprint("owner ", n), TTL: sessionTTL}
}

func askShared(name string) driver.AcquireRequest {
	r := ask(name)
	r.Shared = true
	return r
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

// try asks a session of its own for one lock.
func (c *client) try(t *testing.T, r driver.AcquireRequest) (driver.Session, driver.AcquireResult) {
	t.Helper()
	s := c.session(t)
	res, err := s.Grant(t.Context(), []driver.AcquireRequest{r})
	if err != nil || len(res) != 1 {
		t.Fatalf("Grant: %v, %v", res, err)
	}
	return s, res[0]
}

// take gets one lock or fails.
func (c *client) take(t *testing.T, r driver.AcquireRequest) (driver.Session, driver.AcquireResult) {
	t.Helper()
	s, res := c.try(t, r)
	if !res.Granted {
		t.Fatalf("%q is not granted: %+v", r.Name, res)
	}
	return s, res
}

// denied checks that a lock cannot be had, and returns what the loser is told.
func (c *client) denied(t *testing.T, r driver.AcquireRequest) driver.AcquireResult {
	t.Helper()
	s, res := c.try(t, r)
	if res.Granted {
		t.Errorf("%q is granted: %+v", r.Name, res)
	}
	giveBack(t, s)
	return res
}

// gets waits until somebody has a lock.
func (c *client) gets(t *testing.T, r driver.AcquireRequest, within time.Duration) (s driver.Session, res driver.AcquireResult) {
	t.Helper()
	eventually(t, fmt.Sprintf("%q is granted", r.Name), within, func() bool {
		if s, res = c.try(t, r); !res.Granted {
			giveBack(t, s)
		}
		return res.Granted
	})
	return s, res
}

func giveBack(t *testing.T, s driver.Session) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
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

func releaseOf(r driver.AcquireRequest, res driver.AcquireResult) driver.ReleaseRequest {
	return driver.ReleaseRequest{Name: r.Name, Acq: r.Acq, Version: res.Version, MinHold: r.MinHold, Shared: r.Shared}
}

func renewalOf(r driver.AcquireRequest, res driver.AcquireResult) driver.RenewRequest {
	return driver.RenewRequest{Name: r.Name, Acq: r.Acq, Version: res.Version, TTL: sessionTTL, Holds: 1, Shared: r.Shared}
}

// letGo releases a lock that is held.
func letGo(t *testing.T, s driver.Session, r driver.AcquireRequest, res driver.AcquireResult) {
	t.Helper()
	freed, err := s.Release(t.Context(), []driver.ReleaseRequest{releaseOf(r, res)})
	if err != nil || len(freed) != 1 || !freed[0] {
		t.Errorf("Release: %v, %v", freed, err)
	}
}

// ping renews one lock.
func ping(t *testing.T, s driver.Session, r driver.AcquireRequest, res driver.AcquireResult) driver.RenewStatus {
	t.Helper()
	all, err := s.Renew(t.Context(), []driver.RenewRequest{renewalOf(r, res)})
	if err != nil || len(all.Status) != 1 || all.Now == 0 {
		t.Fatalf("Renew: %+v, %v", all, err)
	}
	return all.Status[0]
}

func (c *client) look(t *testing.T, name string) driver.Row {
	t.Helper()
	rows, err := c.Look(t.Context(), []string{name})
	if err != nil || len(rows) != 1 || rows[0].Name != name || rows[0].Now == 0 {
		t.Fatalf("Look: %+v, %v", rows, err)
	}
	return rows[0]
}

// killSessions ends all other sessions of the database.
func killSessions(t *testing.T, db *sql.DB) {
	t.Helper()
	mustExec(t, db, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
}

// allSettings are those of a connection.
func allSettings(t *testing.T, conn *sql.Conn) (s string) {
	t.Helper()
	err := conn.QueryRowContext(t.Context(), `SELECT string_agg(name || ' = ' || setting || ' ' || source, chr(10) ORDER BY name) FROM pg_settings
		WHERE name NOT LIKE 'plpgsql.%'`).Scan(&s)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
