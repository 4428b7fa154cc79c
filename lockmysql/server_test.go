package lockmysql_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockmysql"
	"github.com/sqllock/sqllock/migrations"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// fixture is a database with tables.
type fixture struct{ *testdb.Database }

// eachServer runs a test on every MySQL and MariaDB there is.
func eachServer(t *testing.T, test func(t *testing.T, f *fixture)) {
	for _, engine := range testdb.Engines() {
		if engine != testdb.MariaDB && engine != testdb.MySQL {
			continue
		}
		t.Run(engine, func(t *testing.T) {
			f := &fixture{testdb.New(t, engine)}
			f.migrate(t)
			test(t, f)
		})
	}
}

func (f *fixture) migrate(t *testing.T) {
	t.Helper()
	if err := migrations.Up(t.Context(), lockmysql.DB(f.Open(t))); err != nil {
		t.Fatal(err)
	}
}

// isolation is the DSN parameter for an isolation level, whose name differs.
func (f *fixture) isolation(t *testing.T, level string) string {
	t.Helper()
	return f.variable(t, "isolation") + "='" + level + "'"
}

// variable is the name of transaction_… here, which was tx_… once.
func (f *fixture) variable(t *testing.T, what string) (name string) {
	t.Helper()
	err := f.Open(t).QueryRow(`SHOW VARIABLES WHERE Variable_name IN (?, ?)`, "tx_"+what, "transaction_"+what).Scan(&name, new(string))
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// store opens a store on a handle of its own, with one connection, so that what
// the session counts is what the store did.
func (f *fixture) store(t *testing.T, params ...string) (driver.Store, *sql.DB) {
	t.Helper()
	db := f.Open(t, params...)
	db.SetMaxOpenConns(1)
	return open(t, db), db
}

func open(t *testing.T, db *sql.DB) driver.Store {
	t.Helper()
	return openClient(t, db, driver.Client{Instance: newID(), Label: "host/test/1"})
}

// reserve returns a store on a connection of its own.
func reserve(t *testing.T, s driver.Store) driver.Store {
	t.Helper()
	own, err := lockmysql.Reserve(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = own.Close() })
	return own
}

func openClient(tb testing.TB, db *sql.DB, client driver.Client) driver.Store {
	tb.Helper()
	s, err := lockmysql.DB(db).OpenUnique(tb.Context(), client)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

func exec(t *testing.T, db interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, query string, args ...any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if _, err := db.ExecContext(ctx, query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// questions is how many statements the only connection of db has run.
func questions(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	if err := db.QueryRow(`SHOW SESSION STATUS LIKE 'Questions'`).Scan(new(string), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

func newID() (id driver.ID) {
	_, _ = rand.Read(id[:])
	return id
}

const minute = time.Minute

func request(name string) driver.AcquireRequest { return requestBy("owner of "+name, name) }

func requestBy(owner, name string) driver.AcquireRequest {
	return driver.AcquireRequest{Name: name, Acq: newID(), Owner: owner, TTL: minute}
}

func requests(n int, format string) []driver.AcquireRequest {
	reqs := make([]driver.AcquireRequest, n)
	for i := range reqs {
		reqs[i] = request(fmt.Sprintf(format, i))
	}
	return reqs
}

// patiently calls again while the database wants to be asked again, as a Locker does: on a busy
// machine those whom a call waits for may be late.
func patiently[R any](call func() (R, error)) (res R, err error) {
	for range 10 {
		if res, err = call(); err == nil || lockmysql.Classify(err) != driver.Again {
			break
		}
	}
	return res, err
}

func grant(t *testing.T, s driver.Store, reqs ...driver.AcquireRequest) []driver.AcquireResult {
	t.Helper()
	res, err := patiently(func() ([]driver.AcquireResult, error) { return s.Acquire(t.Context(), reqs) })
	if err != nil {
		t.Fatalf("Grant: %v", err)
	}
	if len(res) != len(reqs) {
		t.Fatalf("Grant: %d results for %d requests", len(res), len(reqs))
	}
	return res
}

// take grants all or fails.
func take(t *testing.T, s driver.Store, reqs ...driver.AcquireRequest) []driver.AcquireResult {
	t.Helper()
	res := grant(t, s, reqs...)
	for i, r := range res {
		if !r.Granted {
			t.Fatalf("Grant: %q is not granted: %+v", reqs[i].Name, r)
		}
	}
	return res
}

func renewals(reqs []driver.AcquireRequest, res []driver.AcquireResult, ttl time.Duration) []driver.RenewRequest {
	out := make([]driver.RenewRequest, len(reqs))
	for i := range reqs {
		out[i] = driver.RenewRequest{Name: reqs[i].Name, Acq: reqs[i].Acq, Version: res[i].Version, TTL: ttl, Holds: 1}
	}
	return out
}

func renew(t *testing.T, s driver.Store, wait bool, reqs ...driver.RenewRequest) driver.RenewResults {
	t.Helper()
	res, err := s.Renew(t.Context(), reqs, wait)
	for try := 0; wait && err != nil && lockmysql.Classify(err) == driver.Again && try < 20; try++ {
		res, err = s.Renew(t.Context(), reqs, wait)
	}
	if err != nil {
		t.Fatalf("Renew: %v", err)
	}
	return res
}

func releases(reqs []driver.AcquireRequest, res []driver.AcquireResult) []driver.ReleaseRequest {
	out := make([]driver.ReleaseRequest, len(reqs))
	for i := range reqs {
		out[i] = driver.ReleaseRequest{Name: reqs[i].Name, Acq: reqs[i].Acq, Version: res[i].Version}
	}
	return out
}

func release(t *testing.T, s driver.Store, reqs ...driver.ReleaseRequest) []bool {
	t.Helper()
	res, err := s.Release(t.Context(), reqs)
	for try := 0; err != nil && lockmysql.Classify(err) == driver.Again && try < 20; try++ {
		res, err = s.Release(t.Context(), reqs)
	}
	if err != nil {
		t.Errorf("Release: %v", err)
	}
	freed := make([]bool, len(res))
	for i, r := range res {
		freed[i] = r.Freed
	}
	return freed
}

// lockRow locks the rows of names in a transaction of its own and returns what
// ends it.
func lockRow(t *testing.T, db *sql.DB, names ...string) (unlock func()) {
	t.Helper()
	tx, err := db.BeginTx(context.Background(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := tx.QueryRow("SELECT version FROM `sqllock_lock` WHERE name = ? FOR UPDATE", name).Scan(new(int64)); err != nil {
			t.Fatal(err)
		}
	}
	unlock = func() { _ = tx.Rollback() }
	t.Cleanup(unlock)
	return unlock
}
