package sqllock_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
)

// busiest returns, from when it is called, the most connections of a pool that were
// in use at a time.
func busiest(t *testing.T, db *sql.DB) (read func() int64) {
	var most atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			most.Store(max(most.Load(), int64(db.Stats().InUse)))
			time.Sleep(200 * time.Microsecond)
		}
	})
	return func() int64 {
		stop()
		wg.Wait()
		return most.Load()
	}
}

// Elsewhere each grant waits for its flush: there the conformance suite has hundreds.
//
// It is not parallel: all databases of a server share the table of locks.
func TestTenThousandAdvisoryLocksTakeTwoConnectionsOfPostgres(t *testing.T) {
	const n, callers = 10_000, 16
	onEngines(t, func(name string) bool { return name == testdb.Postgres }, func(t *testing.T, e *engine, d *testdb.Database) {
		db := d.Open(t)
		l, err := sqllock.NewAdvisory(t.Context(), e.open(db).(driver.AdvisoryDatabase), &sqllock.AdvisoryOptions{
			TTL: 2 * time.Minute, StatementTimeout: 30 * time.Second, // a session that a busy machine ends is not the question
		})
		if err != nil {
			t.Fatal(err)
		}
		inUse := busiest(t, db)
		leases := make([]*sqllock.Lease, n)
		var next atomic.Int64
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for i := next.Add(1) - 1; i < n; i = next.Add(1) - 1 {
					lease, err := l.TryLock(t.Context(), fmt.Sprint("held/", i))
					if err != nil {
						t.Error(err)
						return
					}
					leases[i] = lease
				}
			})
		}
		wg.Wait()
		time.Sleep(2500 * time.Millisecond) // they are renewed, and written down
		for i, lease := range leases {
			if lease == nil || lease.Context().Err() != nil {
				t.Fatalf("%d is lost", i)
			}
		}
		listed := 0
		for _, err := range l.List(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			listed++
		}
		if listed != n {
			t.Errorf("List yields %d of %d names", listed, n)
		}
		next.Store(0)
		for range callers {
			wg.Go(func() {
				for i := next.Add(1) - 1; i < n; i = next.Add(1) - 1 {
					if err := leases[i].Unlock(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if most := inUse(); most > 3 { // one of them is List's
			t.Errorf("%d connections were in use", most)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestFiveHundredWaitersForFiftyNamesTakeEightConnections(t *testing.T) {
	t.Parallel()
	const names, waiters = 50, 500
	onEachServer(t, func(t *testing.T, e *engine, d *testdb.Database) {
		for mode, open := range map[string]func(*sql.DB) (*sqllock.Locker, error){
			"for update": func(db *sql.DB) (*sqllock.Locker, error) {
				return sqllock.NewForUpdate(t.Context(), e.open(db).(driver.ForUpdateDatabase), &sqllock.ForUpdateOptions{RetryMax: 100 * time.Millisecond})
			},
			"advisory": func(db *sql.DB) (*sqllock.Locker, error) {
				return sqllock.NewAdvisory(t.Context(), e.open(db).(driver.AdvisoryDatabase), &sqllock.AdvisoryOptions{RetryMax: 100 * time.Millisecond})
			},
		} {
			t.Run(mode, func(t *testing.T) {
				db := d.Open(t)
				l, err := open(db)
				if err != nil {
					t.Fatal(err)
				}
				inUse := busiest(t, db)
				var inside [names]atomic.Int32
				var wg sync.WaitGroup
				for i := range waiters {
					wg.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
						defer cancel()
						if err := l.Do(ctx, fmt.Sprint("waited for/", i%names), func(context.Context, *sqllock.Lease) error {
							if inside[i%names].Add(1) != 1 {
								t.Error("two holders")
							}
							inside[i%names].Add(-1)
							return nil
						}); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
				if most := inUse(); most > 8 {
					t.Errorf("%d connections were in use", most)
				}
				if err := l.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	})
}
