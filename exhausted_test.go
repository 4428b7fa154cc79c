package sqllock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
)

// usedUp is a database whose pool gives nothing but the connection that was reserved
// in time.
type usedUp struct {
	*laned
	full *atomic.Bool
}

func (s *usedUp) Exhausted() bool { return s.full.Load() }

func (s *usedUp) Release(ctx context.Context, reqs []driver.ReleaseRequest) ([]driver.ReleaseResult, error) {
	if s.full.Load() {
		<-ctx.Done()
		return nil, driver.ErrNoConnection
	}
	return s.laned.Release(ctx, reqs)
}

func TestAnUnlockThatFindsThePoolUsedUpWaitsForTheReservedConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		store := &usedUp{&laned{db, new(atomic.Bool)}, new(atomic.Bool)}
		b := newBenchOn(t, store, db, nil)
		defer b.close()
		lease := b.lock("held")
		store.full.Store(true)
		db.set(func(f *fake) { f.before = after("grant", 100*time.Millisecond) })
		other := make(chan *sqllock.Lease)
		go func() { other <- b.lock("other") }() // has the reserved connection for 100 ms
		time.Sleep(10 * time.Millisecond)
		began := time.Now()
		b.unlock(lease)
		if took := time.Since(began); took > 200*time.Millisecond {
			t.Errorf("Unlock took %v", took)
		}
		if n := db.count("release"); n != 1 {
			t.Errorf("%d releases were sent, want 1", n)
		}
		b.unlock(<-other)
	})
}
