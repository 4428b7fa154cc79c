package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
)

func TestAStatementThatHangsForLongLeasesCostsNoShortOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: 30 * time.Second})
		defer b.close()
		long := b.lock("long")
		defer long.Unlock(context.Background())
		time.Sleep(9800 * time.Millisecond)
		var hung atomic.Bool
		db.set(func(f *fake) {
			f.before = func(ctx context.Context, k string) error {
				if k == "renew" && hung.CompareAndSwap(false, true) {
					<-ctx.Done() // one statement hangs, on one connection
					return ctx.Err()
				}
				return nil
			}
		})
		time.Sleep(199 * time.Millisecond)
		short := b.lock("short", sqllock.TTL(time.Second))
		time.Sleep(1500 * time.Millisecond)
		if short.Remaining() <= 0 {
			t.Errorf("short lost: %v", context.Cause(short.Context()))
		}
		_ = short.Unlock(context.Background())
	})
}

func TestCloseWaitsUntilWhatNobodyWaitedForIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		db.after = after("grant", time.Second)
		db.before = after("abandon", 5*time.Millisecond)
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: 30 * time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := b.Lock(ctx, "a")
		if err == nil {
			t.Error("Lock got a lease in spite of its context")
		}
		if err := b.Close(t.Context()); err != nil || db.held("a") {
			t.Errorf("Close = %v, the name is held: %v", err, db.held("a"))
		}
	})
}

// usedUpPool is a pool of which the application has everything but the reserved connection.
type usedUpPool struct{ *fake }

func (p usedUpPool) block(ctx context.Context) error {
	<-ctx.Done()
	return fmt.Errorf("%w: %w", driver.ErrNoConnection, ctx.Err())
}

func (p usedUpPool) Acquire(ctx context.Context, _ []driver.AcquireRequest) ([]driver.AcquireResult, error) {
	return nil, p.block(ctx)
}

func (p usedUpPool) Renew(ctx context.Context, _ []driver.RenewRequest, _ bool) (driver.RenewResults, error) {
	return driver.RenewResults{}, p.block(ctx)
}

func (p usedUpPool) Release(ctx context.Context, _ []driver.ReleaseRequest) ([]driver.ReleaseResult, error) {
	return nil, p.block(ctx)
}

func TestWaitersDoNotStarveRenewalsWhenThePoolIsUsedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := newPooled(f, usedUpPool{f}, f, always)
		start := time.Now()
		l, err := sqllock.NewWithClock(s, func() time.Duration { return time.Since(start) }, &sqllock.UniqueOptions{TTL: 9 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		lease, err := l.Lock(t.Context(), "mine")
		if err != nil {
			t.Fatal(err)
		}
		f.set(func(f *fake) { f.before = after("grant", 5*time.Millisecond) })
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 500 { // 500 waiters for names that others hold
			occupy(f, fmt.Sprint(i), time.Hour)
			wg.Go(func() { _, _ = l.Lock(ctx, fmt.Sprint(i)) })
		}
		time.Sleep(20 * time.Second)
		if lease.Context().Err() != nil {
			t.Errorf("lost: %v (renewals %d, grants %d)", context.Cause(lease.Context()), f.count("renew"), f.count("grant"))
		}
		cancel()
		wg.Wait()
		_ = lease.Unlock(context.Background())
		_ = l.Close(context.Background())
	})
}

func TestLockedRowsDoNotStarveRenewalsWhenThePoolIsUsedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := newPooled(f, usedUpPool{f}, f, always)
		start := time.Now()
		l, err := sqllock.NewWithClock(s, func() time.Duration { return time.Since(start) }, &sqllock.UniqueOptions{TTL: 9 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		var all []*sqllock.Lease
		for i := range 6 {
			le, err := l.Lock(t.Context(), fmt.Sprint(i))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, le)
		}
		f.set(func(f *fake) {
			for i := 1; i < 6; i++ {
				f.locked[fmt.Sprint(i)] = true
			}
			f.before = func(ctx context.Context, k string) error {
				if k != "renew alone" {
					return nil
				}
				time.Sleep(time.Second)
				return errDeadlock // 55P03
			}
		})
		time.Sleep(20 * time.Second)
		if all[0].Context().Err() != nil {
			t.Errorf("the lease whose row nobody locked is lost: %v", context.Cause(all[0].Context()))
		}
		for _, le := range all {
			_ = le.Unlock(context.Background())
		}
		_ = l.Close(context.Background())
	})
}

func TestADatabaseThatDoesNotAnswerIsNotReportedAsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		db.before = after("grant", time.Hour)
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		_, err := b.Lock(t.Context(), "a", sqllock.Wait(time.Second))
		if errors.Is(err, sqllock.ErrHeld) {
			t.Errorf("frozen database reported as %v", err)
		}
	})
}

func TestTryLockDoesNotTryAgainForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		db.before = failing("grant", errDeadlock)
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		if _, err := b.TryLock(ctx, "a"); !errors.Is(err, errDeadlock) || time.Since(began) > ttl {
			t.Errorf("TryLock = %v after %v, want the deadlock soon", err, time.Since(began))
		}
	})
}

func TestAGrantProvesThatAnEarlierTermIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		one := b.lock("a")
		db.set(func(f *fake) { f.rows["a"].acq, f.rows["a"].until = driver.ID{}, 0 }) // freed by hand
		two, err := b.TryLock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if one.Remaining() > 0 || two.Remaining() <= 0 {
			t.Errorf("the old lease has %v, the new one %v", one.Remaining(), two.Remaining())
		}
		if err := one.Unlock(t.Context()); !errors.Is(err, sqllock.ErrLost) {
			t.Errorf("Unlock of the old lease = %v, want ErrLost", err)
		}
		synctest.Wait()
		if !db.held("a") {
			t.Error("the Unlock of the old lease freed the new one")
		}
		b.unlock(two)
	})
}

func TestACancelledContextDoesNotReenter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newFake(), &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		one := b.lock("a")
		ctx, cancel := context.WithCancel(one.Context())
		cancel()
		two, err := b.Lock(ctx, "a")
		if two != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("Lock = %v, %v; want Canceled", two, err)
		}
		b.unlock(one)
	})
}

// fullPool is a pool that releases nothing while it is full.
type fullPool struct {
	*fake
	full atomic.Bool
}

func (p *fullPool) Release(ctx context.Context, reqs []driver.ReleaseRequest) ([]driver.ReleaseResult, error) {
	if p.full.Load() {
		<-ctx.Done()
		return nil, driver.ErrNoConnection
	}
	return p.fake.Release(ctx, reqs)
}

func TestAnUnlockThatFindsThePoolUsedUpWaitsForTheReservedConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		pool := &fullPool{fake: db}
		b := newBenchOn(t, newPooled(db, pool, db, pool.full.Load), db, nil)
		defer b.close()
		lease := b.lock("held")
		pool.full.Store(true)
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
