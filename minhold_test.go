package sqllock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/netproxy"
	"github.com/sqllock/sqllock/internal/testdb"
)

// Callers who give up at every moment of a grant: what it got meanwhile is given back.
func TestACallThatFailedKeepsNothingWhateverItsMinHoldSays(t *testing.T) {
	onEachServer(t, func(t *testing.T, e *engine, d *testdb.Database) {
		proxy := netproxy.New(t, d.Addr())
		slow, quick := d.OpenVia(t, proxy.Addr()), d.Open(t)
		for mode, open := range map[string]func(database) (*sqllock.Locker, error){
			"unique": func(db database) (*sqllock.Locker, error) { return sqllock.NewUnique(t.Context(), db, nil) },
			"for update": func(db database) (*sqllock.Locker, error) {
				return sqllock.NewForUpdate(t.Context(), db.(driver.ForUpdateDatabase), nil)
			},
			"advisory": func(db database) (*sqllock.Locker, error) {
				return sqllock.NewAdvisory(t.Context(), db.(driver.AdvisoryDatabase), nil)
			},
		} {
			t.Run(mode, func(t *testing.T) {
				var lockers [2]*sqllock.Locker
				for i, db := range []database{e.open(slow), e.open(quick)} {
					l, err := open(db)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { closeSoon(l) })
					lockers[i] = l
				}
				proxy.Latency(5 * time.Millisecond)
				defer proxy.Latency(0)
				var failed sync.Map
				for wave := range 2 {
					var wg sync.WaitGroup
					for i := range 10 {
						wg.Go(func() {
							ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i*10+wave*5)*time.Millisecond)
							defer cancel()
							name := fmt.Sprintf("%s %d %d", mode, wave, i)
							if lease, err := lockers[0].Lock(ctx, name, sqllock.MinHold(time.Hour)); err != nil {
								failed.Store(name, err)
							} else {
								_ = lease.Unlock(context.WithoutCancel(t.Context()))
							}
						})
					}
					wg.Wait()
				}
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				failed.Range(func(name, why any) bool {
					lease, err := lockers[1].Lock(ctx, name.(string))
					if err != nil {
						t.Errorf("%q is kept by a call that failed (%v): %v", name, why, err)
						return false
					}
					_ = lease.Unlock(ctx)
					return true
				})
			})
		}
	})
}
