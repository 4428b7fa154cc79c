package sqllock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
)

// The turn of a waiter comes by the release of its own Locker, or of another one.
func TestAMaxHoldBeginsWithTheTurnOfAWaiter(t *testing.T) {
	for what, own := range map[string]bool{"own": true, "another": false} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := newFake()
				b := newBench(t, db, nil)
				defer b.close()
				holder := b
				if !own {
					holder = newBench(t, db, nil)
					defer holder.close()
				}
				time.Sleep(time.Hour) // the clock of the process says more than a MaxHold
				lease := holder.lock("a")
				got := make(chan *sqllock.Lease)
				go func() { got <- b.lock("a", sqllock.MaxHold(20*time.Second)) }()
				time.Sleep(30 * time.Second)
				holder.unlock(lease)
				next := <-got
				began := time.Now()
				<-next.Context().Done()
				if held := time.Since(began); held < 15*time.Second || held > 20*time.Second {
					t.Errorf("it was held for %v", held)
				}
				var lost *sqllock.LostError
				if !errors.As(context.Cause(next.Context()), &lost) || lost.Reason != sqllock.LostMaxHold {
					t.Errorf("it ended because of %v", context.Cause(next.Context()))
				}
				_ = next.Unlock(t.Context())
			})
		})
	}
}

func TestATurnDoesNotWaitForARequestThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 30 * time.Second
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl, StatementTimeout: 3 * ttl})
		defer b.close()
		lease := b.lock("a")
		next := standing(t, b, t.Context(), "a")
		hang := after("line", 2*ttl)
		db.set(func(f *fake) { f.before = hang })
		time.Sleep(3 * time.Second) // the ticket is prolonged meanwhile
		began := time.Now()
		b.unlock(lease)
		second := <-next
		if second == nil {
			return
		}
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("the name was handed over after %v", took)
		}
		time.Sleep(ttl)
		if err := context.Cause(second.Context()); err != nil {
			t.Errorf("the lease ended: %v", err)
		}
		b.unlock(second)
		time.Sleep(ttl + time.Second) // the request arrives, and nobody wants what it gets
		if db.held("a") {
			t.Error("the name is held by nobody")
		}
	})
}
