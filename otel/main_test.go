package otellock_test

import (
	"context"
	"database/sql"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
)

func TestMain(m *testing.M) { testdb.Main(m) }

const (
	testTimeout = time.Minute
	ttl         = 6 * time.Second
	timeout     = ttl / 2 // of calls that give up; a lease has been renewed by then
)

// newLocks returns a Locker with hooks. Close it to have all events.
func newLocks(t *testing.T, d *testdb.Database, hooks sqllock.Hooks) *sqllock.Locker {
	t.Helper()
	db := d.Open(t)
	if err := migrations.Up(t.Context(), locksqlite.DB(db)); err != nil {
		t.Fatal(err)
	}
	locks, err := sqllock.NewUnique(t.Context(), locksqlite.DB(db), &sqllock.UniqueOptions{
		TTL: ttl, Hooks: &hooks, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	return locks
}

func lock(t *testing.T, locks *sqllock.Locker, name string, opts ...sqllock.LockOption) *sqllock.Lease {
	t.Helper()
	lease, err := locks.Lock(context.Background(), name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func unlock(t *testing.T, lease *sqllock.Lease) {
	t.Helper()
	if err := lease.Unlock(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// work does what the metrics are about, each at least once: grants, waits, hand-overs, calls
// that give up, renewals, a loss, a crashed holder and a statement that fails.
func work(t *testing.T, d *testdb.Database, locks *sqllock.Locker) {
	t.Helper()
	held := lock(t, locks, "k")
	if _, err := locks.TryLock(context.Background(), "k"); err == nil {
		t.Fatal("the name is not held")
	}
	giveUp(t, locks)
	awaitWaiters(t, locks, "k", 0)
	next := make(chan *sqllock.Lease)
	go func() {
		lease, err := locks.Lock(context.Background(), "k")
		if err != nil {
			t.Error(err)
		}
		next <- lease
	}()
	awaitWaiters(t, locks, "k", 1)
	unlock(t, held)
	unlock(t, <-next)

	reader, err := locks.RLock(context.Background(), "r")
	if err != nil {
		t.Fatal(err)
	}
	unlock(t, reader)

	lost := lock(t, locks, "lost")
	if _, err := locks.ForceUnlock(context.Background(), "lost"); err != nil {
		t.Fatal(err)
	}
	_ = lost.Unlock(context.Background())

	db := d.Open(t)
	execute(t, db, `INSERT OR REPLACE INTO sqllock_lock (name, acq, locker, owner, label, version, holds, since, expires_at)
		VALUES ('crashed', randomblob(16), randomblob(16), 'o', 'l', 7, 1, 1700000000000000, 1700000001000000)`)
	if _, err := locks.Reaper().Reap(context.Background()); err != nil {
		t.Fatal(err)
	}
	execute(t, db, `ALTER TABLE sqllock_lock RENAME TO away`)
	if _, err := locks.TryLock(context.Background(), "refused"); err == nil {
		t.Fatal("there is no table")
	}
	execute(t, db, `ALTER TABLE away RENAME TO sqllock_lock`)
}

// giveUp waits for k in vain, in each way.
func giveUp(t *testing.T, locks *sqllock.Locker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var all sync.WaitGroup
	inVain := func(call func() error) {
		all.Go(func() {
			if call() == nil {
				t.Error("the name is not held")
			}
		})
	}
	inVain(func() error { _, err := locks.Lock(context.Background(), "k", sqllock.Wait(timeout)); return err })
	inVain(func() error { _, err := locks.Lock(ctx, "k"); return err })
	inVain(func() error { _, err := locks.LockAll(ctx, []string{"a", "k"}); return err })
	all.Wait()
}

func awaitWaiters(t *testing.T, locks *sqllock.Locker, name string, n int) {
	t.Helper()
	for end := time.Now().Add(testTimeout); ; time.Sleep(5 * time.Millisecond) {
		info, err := locks.Inspect(context.Background(), name)
		if err == nil && info.Waiters == n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d wait for %s, want %d: %v", info.Waiters, name, n, err)
		}
	}
}

func execute(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(context.Background(), statement); err != nil {
		t.Fatal(err)
	}
}
