package monitor_test

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/monitor"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
)

func TestMain(m *testing.M) { testdb.Main(m) }

func newLocks(t *testing.T) *sqllock.Locker {
	t.Helper()
	db := testdb.New(t, testdb.SQLite).Open(t)
	if err := migrations.Up(t.Context(), locksqlite.DB(db)); err != nil {
		t.Fatal(err)
	}
	locks, err := sqllock.NewUnique(t.Context(), locksqlite.DB(db), &sqllock.UniqueOptions{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	return locks
}

func lock(t *testing.T, locks *sqllock.Locker, name string) *sqllock.Lease {
	t.Helper()
	lease, err := locks.Lock(t.Context(), name)
	if err != nil {
		t.Error(err)
	}
	t.Cleanup(func() { _ = lease.Unlock(context.Background()) })
	return lease
}

func TestGrantsAndHandOversBetweenTwoReadingsAreCounted(t *testing.T) {
	t.Parallel()
	locks := newLocks(t)
	sampler := monitor.NewSampler(locks, time.Second, time.Second)
	counts := func(grants, handOvers float64) {
		t.Helper()
		g, h, err := sampler.Counted(t.Context())
		if err != nil || math.Round(g*1e6)/1e6 != grants || math.Round(h*1e6)/1e6 != handOvers {
			t.Errorf("%v grants and %v hand-overs, want %v and %v: %v", g, h, grants, handOvers, err)
		}
	}
	held := []*sqllock.Lease{lock(t, locks, "awaited/1"), lock(t, locks, "awaited/2")}
	renewed := lock(t, locks, "held on")
	var got sync.WaitGroup
	for _, lease := range held {
		got.Go(func() { lock(t, locks, lease.Name()) })
		for info := (sqllock.Info{}); info.Waiters == 0; time.Sleep(time.Millisecond) {
			var err error
			if info, err = locks.Inspect(t.Context(), lease.Name()); err != nil {
				t.Fatal(err)
			}
		}
	}
	counts(0, 0) // there is no reading before
	for _, name := range []string{"new/1", "new/2", "new/3"} {
		lock(t, locks, name)
	}
	for _, lease := range held {
		if err := lease.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	got.Wait()
	counts(5, 2)
	if err := renewed.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	lock(t, locks, "held on")
	counts(1, 0)
	counts(0, 0)
}
