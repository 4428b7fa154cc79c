package sqllock_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
)

// Who means "never" writes the longest time that there is.

func TestAnIntervalWithoutEndMakesNoPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		const lockers = 20 // the pauses are spread at random
		for range lockers {
			b := newBench(t, db, &sqllock.UniqueOptions{Reaper: &sqllock.ReaperOptions{Interval: math.MaxInt64}})
			defer b.close()
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if n := db.statements(); n != 0 {
			t.Errorf("%d statements in a day", n)
		}
	})
}

func TestAMaxHoldWithoutEndIsNoBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newFake(), &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		time.Sleep(time.Hour) // its clock has run for a while
		lease := b.lock("a", sqllock.MaxHold(math.MaxInt64))
		time.Sleep(10 * ttl)
		b.unlock(lease)
	})
}

func TestPausesWithoutEndHarmNoWaiter(t *testing.T) {
	for _, barging := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			db := newFake()
			o := &sqllock.UniqueOptions{TTL: ttl, RetryMin: math.MaxInt64, RetryMax: math.MaxInt64,
				StatementTimeout: math.MaxInt64, Barging: barging, Reaper: &sqllock.ReaperOptions{Off: true}}
			holder, waiter := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl}), newBench(t, db, o)
			defer waiter.close()
			holder.lock("a")
			got := make(chan *sqllock.Lease, 1)
			go func() { got <- waiter.lock("a") }()
			time.Sleep(5 * ttl)
			if n := db.statements(); n > 200 {
				t.Errorf("%d statements while one holds and one waits", n)
			}
			holder.crash() // the waiter looks again when the lease expires
			lease := <-got
			waiter.unlock(lease)
		})
	}
}

func TestAMaxHoldOfALockerWithoutEndIsNoBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now().Add(-time.Hour)
		l, err := sqllock.NewSessionsWithClock(newFakeSessions(), func() time.Duration { return time.Since(start) },
			&sqllock.ForUpdateOptions{TTL: ttl, MaxHold: math.MaxInt64, Reaper: &sqllock.ReaperOptions{Off: true}}, 2)
		if err != nil {
			t.Fatal(err)
		}
		lease, err := l.Lock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * ttl)
		if err := lease.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
