package sqllock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
)

// Each waits on a connection of its own, which the application lacks meanwhile.
func TestFewRowsThatSomebodyHasLockedAreWaitedForAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const few, many = 4, 20
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		var leases []*sqllock.Lease
		for i := range many {
			leases = append(leases, b.lock(fmt.Sprint("locked ", i)))
		}
		var waiting, most atomic.Int32
		db.set(func(f *fake) {
			for i := range many {
				f.locked[fmt.Sprint("locked ", i)] = true
			}
			f.before = func(ctx context.Context, kind string) error {
				if kind == "renew alone" {
					most.Store(max(most.Load(), waiting.Add(1)))
					defer waiting.Add(-1)
				}
				return after("renew alone", 100*time.Millisecond)(ctx, kind)
			}
		})
		time.Sleep(2 * ttl)
		if n := most.Load(); n != few {
			t.Errorf("%d were waited for at once, want %d", n, few)
		}
		for _, lease := range leases {
			if lease.Remaining() <= 0 {
				t.Errorf("%q was lost", lease.Name())
			}
			b.unlock(lease)
		}
	})
}
