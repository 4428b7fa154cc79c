package gocronlock_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockmysql"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
)

// child is what a process does that a test has started, where tests start some.
var child func() error

func TestMain(m *testing.M) {
	if os.Getenv(envChild) != "" {
		if err := child(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	for _, p := range allPairs() {
		testdb.Expect("gocron "+p.mode, p.engine)
	}
	testdb.Main(m)
}

// envChild is set in the environment of a process that a test has started.
const envChild = "GOCRONLOCK_TEST_CHILD"

const (
	unique    = "unique"
	forUpdate = "for update"
	advisory  = "advisory"
)

// long is a TTL that does not end within a test.
const long = 2 * testTimeout

// pair is a mode on a database.
type pair struct{ mode, engine string }

func allPairs() []pair {
	pairs := []pair{{unique, testdb.SQLite}}
	for _, mode := range []string{unique, forUpdate, advisory} {
		for _, engine := range []string{testdb.Postgres, testdb.MariaDB, testdb.MySQL} {
			pairs = append(pairs, pair{mode, engine})
		}
	}
	return pairs
}

// each runs a test for all modes on all databases that are there, beside other tests.
func each(t *testing.T, fn func(t *testing.T, p pair, d *testdb.Database)) {
	t.Parallel()
	engines := testdb.All()
	for _, p := range allPairs() {
		if slices.Contains(engines, p.engine) {
			t.Run(path.Join(p.mode, p.engine), func(t *testing.T) {
				t.Parallel()
				fn(t, p, testdb.New(t, p.engine))
			})
		}
	}
}

// eachSerial is each for tests that start processes: those of one mode are not in the way of
// another's on the same database.
func eachSerial(t *testing.T, fn func(t *testing.T, p pair, d *testdb.Database)) {
	t.Parallel()
	for _, engine := range testdb.All() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			for _, p := range allPairs() {
				if p.engine == engine {
					t.Run(p.mode, func(t *testing.T) { fn(t, p, testdb.New(t, engine)) })
				}
			}
		})
	}
}

// database is a server as all modes need it.
type database interface {
	driver.Migratable
	driver.UniqueDatabase
	driver.ForUpdateDatabase
	driver.AdvisoryDatabase
}

// openLocks makes the tables and a Locker.
func openLocks(ctx context.Context, p pair, db *sql.DB, o sqllock.UniqueOptions) (*sqllock.Locker, error) {
	if o.TTL == long { // a busy machine takes a while to connect
		o.StatementTimeout = long / 4
	}
	if p.engine == testdb.SQLite {
		d := locksqlite.DB(db)
		if err := migrations.Up(ctx, d); err != nil {
			return nil, err
		}
		return sqllock.NewUnique(ctx, d, &o)
	}
	if p.engine == testdb.Postgres {
		d := lockpg.DB(db)
		if err := migrations.Up(ctx, d); err != nil {
			return nil, err
		}
		return openMode(ctx, p.mode, d, o)
	}
	d := lockmysql.DB(db)
	if err := migrations.Up(ctx, d); err != nil {
		return nil, err
	}
	return openMode(ctx, p.mode, d, o)
}

func openMode(ctx context.Context, mode string, d database, o sqllock.UniqueOptions) (*sqllock.Locker, error) {
	switch mode {
	case forUpdate:
		return sqllock.NewForUpdate(ctx, d, &sqllock.ForUpdateOptions{TTL: o.TTL, StatementTimeout: o.StatementTimeout, RetryMax: o.RetryMax, Hooks: o.Hooks})
	case advisory:
		return sqllock.NewAdvisory(ctx, d, &sqllock.AdvisoryOptions{TTL: o.TTL, StatementTimeout: o.StatementTimeout, RetryMax: o.RetryMax, Hooks: o.Hooks})
	}
	return sqllock.NewUnique(ctx, d, &o)
}

// newLocks is openLocks for a test, at whose end the Locker is closed.
func newLocks(t *testing.T, p pair, d *testdb.Database, o sqllock.UniqueOptions) *sqllock.Locker {
	t.Helper()
	locks, err := openLocks(t.Context(), p, d.Open(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		if err := locks.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return locks
}

// newScheduler returns a scheduler that is shut down at the end of the test, and before
// what it was made with is closed.
func newScheduler(t *testing.T, opts ...gocron.SchedulerOption) gocron.Scheduler {
	t.Helper()
	s, err := gocron.NewScheduler(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Shutdown() })
	return s
}

// newJob has a scheduler run a function every now and then.
func newJob(t *testing.T, s gocron.Scheduler, every time.Duration, name string, fn any, opts ...gocron.JobOption) gocron.Job {
	t.Helper()
	j, err := s.NewJob(gocron.DurationJob(every), gocron.NewTask(fn), append(opts, gocron.WithName(name))...)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// testTimeout is more than anything takes.
const testTimeout = time.Minute

// eventually waits until cond holds.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", testTimeout, what)
		}
	}
}

// receive waits for something on a channel.
func receive[T any](t *testing.T, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(testTimeout):
		t.Fatalf("not within %v: %s", testTimeout, what)
		panic("unreachable")
	}
}
