package gooselock_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	gooselock "github.com/sqllock/sqllock/goose"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockmysql"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/migrations"
)

func TestMain(m *testing.M) {
	if os.Getenv(envEngine) != "" {
		if err := replica(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	for _, mode := range modes {
		for _, engine := range []string{testdb.Postgres, testdb.MariaDB, testdb.MySQL} {
			testdb.Expect("goose "+mode, engine)
		}
	}
	testdb.Main(m)
}

// The modes, and the two ways in which goose can use a Locker.
const (
	unique    = "unique"
	forUpdate = "for update"
	advisory  = "advisory"

	bySession = "by session"
	byLocker  = "by locker"
)

var (
	modes = []string{unique, forUpdate, advisory}
	ways  = []string{bySession, byLocker}
)

const lockName = "migrations"

// A TTL that a test waits for, or outlasts, and one for where a loss would be that of a
// busy machine.
const (
	shortTTL = 5 * time.Second
	longTTL  = 30 * time.Second
)

// How long the slow migration takes.
const (
	takesLong  = shortTTL + time.Second // longer than a lease lives without renewals
	takesShort = 2 * time.Second
)

// database is a server as all modes need it.
type database interface {
	driver.Migratable
	driver.UniqueDatabase
	driver.ForUpdateDatabase
	driver.AdvisoryDatabase
}

func target(engine string, db *sql.DB) database {
	if engine == testdb.Postgres {
		return lockpg.DB(db)
	}
	return lockmysql.DB(db)
}

// openLocks makes the tables and a Locker.
func openLocks(ctx context.Context, mode string, d database, ttl time.Duration) (*sqllock.Locker, error) {
	if err := migrations.Up(ctx, d); err != nil {
		return nil, err
	}
	label := fmt.Sprint(os.Getpid())
	switch mode {
	case unique:
		return sqllock.NewUnique(ctx, d, &sqllock.UniqueOptions{TTL: ttl, Label: label})
	case forUpdate:
		return sqllock.NewForUpdate(ctx, d, &sqllock.ForUpdateOptions{TTL: ttl, Label: label})
	}
	return sqllock.NewAdvisory(ctx, d, &sqllock.AdvisoryOptions{TTL: ttl, Label: label})
}

// newLocks is openLocks for a test, at whose end the Locker is closed.
func newLocks(t *testing.T, mode, engine string, db *sql.DB, ttl time.Duration) *sqllock.Locker {
	t.Helper()
	locks, err := openLocks(t.Context(), mode, target(engine, db), ttl)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := locks.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return locks
}

func newLocker(t *testing.T, locks *sqllock.Locker, opts ...sqllock.LockOption) *gooselock.Locker {
	t.Helper()
	l, err := gooselock.New(locks, lockName, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// option hands the Locker to goose.
func option(way string, l *gooselock.Locker) goose.ProviderOption {
	if way == bySession {
		return goose.WithSessionLocker(l)
	}
	return goose.WithLocker(l)
}

// newProvider returns goose with the migrations of these tests, of which the slow one
// takes as long as is said.
func newProvider(engine string, db *sql.DB, way string, l *gooselock.Locker, takes time.Duration, opts ...goose.ProviderOption) (*goose.Provider, error) {
	dialect := goose.DialectMySQL
	if engine == testdb.Postgres {
		dialect = goose.DialectPostgres
	}
	return goose.NewProvider(dialect, db, files(engine, takes), append(opts, option(way, l))...)
}

func mustProvider(t *testing.T, engine string, db *sql.DB, way string, l *gooselock.Locker, takes time.Duration, opts ...goose.ProviderOption) *goose.Provider {
	t.Helper()
	p, err := newProvider(engine, db, way, l, takes, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// up is goose's Up, for Do.
func up(p *goose.Provider) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := p.Up(ctx)
		return err
	}
}

// each runs a test for all modes on all servers that are there, beside other tests.
func each(t *testing.T, fn func(t *testing.T, mode string, d *testdb.Database)) {
	t.Parallel()
	for _, mode := range modes {
		on(t, mode, func(t *testing.T, d *testdb.Database) { fn(t, mode, d) })
	}
}

// onEach runs a test on all servers that are there, beside other tests.
func onEach(t *testing.T, fn func(t *testing.T, d *testdb.Database)) {
	t.Parallel()
	on(t, "", fn)
}

func on(t *testing.T, name string, fn func(t *testing.T, d *testdb.Database)) {
	for _, engine := range testdb.Engines() {
		t.Run(path.Join(name, engine), func(t *testing.T) {
			t.Parallel()
			fn(t, testdb.New(t, engine))
		})
	}
}

// checkRuns checks which of the migrations have run, and how often.
func checkRuns(t *testing.T, db *sql.DB, want ...int) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT version FROM runs ORDER BY version`)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var got []int
	for rows.Next() {
		var version int
		if err := rows.Scan(&version); err != nil {
			t.Fatal(err)
		}
		got = append(got, version)
	}
	if err := rows.Err(); err != nil || !slices.Equal(got, want) {
		t.Errorf("these migrations have run: %v, want %v; %v", got, want, err)
	}
}

// testTimeout is more than anything takes.
const testTimeout = time.Minute

// eventually waits until cond holds.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); !cond(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", testTimeout, what)
		}
	}
}
