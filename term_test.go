package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
)

func TestAHandedOverNameWhoseWaiterLearnsOfItLateIsRenewedBeforeItIsUsed(t *testing.T) {
	for what, opt := range map[string]sqllock.LockOption{
		"with a lock delay": sqllock.LockDelay(time.Minute), "with a minimum hold": sqllock.MinHold(time.Minute)} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := newFake()
				a, b := newBench(t, db, &sqllock.UniqueOptions{TTL: time.Second}), newBench(t, db, &sqllock.UniqueOptions{TTL: time.Second})
				defer a.close()
				defer b.close()
				first := a.lock("a")
				got := make(chan *sqllock.Lease)
				go func() {
					lease, err := b.Lock(t.Context(), "a", opt)
					if err != nil {
						t.Errorf("Lock: %v", err)
					}
					got <- lease
				}()
				synctest.Wait()
				a.unlock(first)
				db.set(func(f *fake) { f.skew = 2 * time.Second }) // as long as it takes until b learns of it
				lease := <-got
				if lease == nil {
					return
				}
				if left := lease.Remaining(); left < 900*time.Millisecond || left > time.Second {
					t.Errorf("%v remain", left)
				}
				db.set(func(f *fake) {
					if until := time.Duration(f.rows["a"].until-f.now()) * time.Microsecond; until < lease.Remaining() {
						t.Errorf("the database keeps the name for %v, the holder trusts it for %v", until, lease.Remaining())
					}
				})
				b.unlock(lease)
			})
		})
	}
}

func TestWaitersOfAShortTTLAreServedInOrderWithoutPush(t *testing.T) {
	for phase := 0; phase < 200; phase += 20 {
		synctest.Test(t, func(t *testing.T) {
			db := newFake()
			opts := &sqllock.UniqueOptions{TTL: sqllock.MinTTL, RetryMin: 10 * time.Second, RetryMax: 10 * time.Second}
			a := newBench(t, db, opts)
			defer a.close()
			first := a.lock("a")
			served := make(chan int, 3)
			for i := range 3 {
				b := newBench(t, db, opts)
				defer b.close()
				go func() {
					lease := b.lock("a")
					served <- i
					b.unlock(lease)
				}()
				time.Sleep(60 * time.Millisecond)
			}
			time.Sleep(time.Second + time.Duration(phase)*time.Millisecond)
			a.unlock(first)
			for i := range 3 {
				if got := <-served; got != i {
					t.Errorf("phase %d ms: waiter %d was served at the place of %d", phase, got, i)
				}
			}
		})
	}
}

func TestMaxHoldIsWhyALeaseHasEndedThatItsOwnLockerTakesNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, nil)
		defer b.close()
		lease := b.lock("a", sqllock.MaxHold(time.Second))
		b.suspend(5 * time.Second) // no timer has told of the end
		db.set(func(f *fake) { f.skew = 5 * time.Second })
		next, err := b.TryLock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		var lost *sqllock.LostError
		if err := lease.Unlock(t.Context()); !errors.As(err, &lost) || lost.Reason != sqllock.LostMaxHold {
			t.Errorf("Unlock = %v, want the reason %v", err, sqllock.LostMaxHold)
		}
		b.unlock(next)
	})
}

func TestMaxHoldLeavesStatementsTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, nil)
		defer b.close()
		for kind, d := range map[string]time.Duration{"grant": 50 * time.Millisecond, "release": time.Second} { // a cold connection
			db.set(func(f *fake) { f.before = after(kind, d) })
			lease, err := b.TryLock(t.Context(), "a", sqllock.MaxHold(100*time.Millisecond))
			if err != nil {
				t.Fatalf("TryLock while %s takes %v: %v", kind, d, err)
			}
			b.unlock(lease)
			if n := db.count(kind); n != 1 && kind == "release" {
				t.Errorf("it took %d statements of kind %s", n, kind)
			}
			db.set(func(f *fake) { clear(f.sent) })
		}
	})
}

func TestAValueIsCopiedWhenTheOptionIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, nil)
		defer b.close()
		value := []byte("mine")
		opt := sqllock.Value(value)
		copy(value, "gone")
		lease := b.lock("a", opt)
		if got := string(db.row("a").value); got != "mine" {
			t.Errorf("the value is %q", got)
		}
		b.unlock(lease)
	})
}

func TestAnUnlockAfterCloseHasGivenUpSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, nil)
		lease := b.lock("a")
		several, err := b.LockAll(t.Context(), []string{"b", "c"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close = %v", err)
		}
		before := db.all()
		for _, err := range []error{lease.Unlock(t.Context()), several.Unlock(t.Context())} {
			if err == nil || errors.Is(err, sqllock.ErrNotHeld) {
				t.Errorf("Unlock = %v", err)
			}
		}
		if n := db.all() - before; n != 0 {
			t.Errorf("%d statements after Close has returned", n)
		}
	})
}

func TestAGrantThatNobodyWaitsForAnyMoreIsGivenBackOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, nil)
		defer b.close()
		db.set(func(f *fake) { f.before = after("grant", time.Second) })
		for i := range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			if _, err := b.TryLock(ctx, fmt.Sprint("name ", i)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("TryLock = %v", err)
			}
			cancel()
			time.Sleep(2 * time.Second)
		}
		time.Sleep(10 * time.Minute) // its TTL, many times
		if n := db.count("abandon"); n != 10 {
			t.Errorf("10 grants were given back by %d statements", n)
		}
		var left int
		db.set(func(f *fake) {
			for _, x := range f.rows {
				if x.acq != (driver.ID{}) {
					left++
				}
			}
		})
		if left > 0 {
			t.Errorf("%d names are not free", left)
		}
	})
}

// The Unlock ends the context that it is given before it asks the database.
func TestAnUnlockWithTheContextOfItsLeaseKeepsItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		const left = 200 * time.Millisecond
		unlocks := map[string]func(ctx context.Context) error{
			"Unlock": func(ctx context.Context) error {
				lease, err := b.Lock(ctx, "a")
				if err != nil {
					return err
				}
				bound, unbind := lease.Bind(ctx)
				defer unbind()
				return lease.Unlock(bound)
			},
			"Unlock of several": func(ctx context.Context) error {
				leases, err := b.LockAll(ctx, []string{"b", "c"})
				if err != nil {
					return err
				}
				bound, unbind := leases.Bind(ctx)
				defer unbind()
				return leases.Unlock(bound)
			},
		}
		for what, unlock := range unlocks {
			db.set(func(f *fake) { f.before = after("release", time.Hour) })
			ctx, cancel := context.WithTimeout(t.Context(), left)
			began := time.Now()
			err := unlock(ctx)
			cancel()
			if took := time.Since(began); err == nil || took != left {
				t.Errorf("%s: %v after %v, want an error after %v", what, err, took, left)
			}
			db.set(func(f *fake) { f.before = nil })
			time.Sleep(time.Minute)
		}
	})
}

// A LockAll that fails gives back what it has; a lease that has re-entered one of its terms keeps the
// minimum hold.
func TestAMinimumHoldOutlivesTheCallThatBeganTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newFake(), &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		other := b.lock("b")
		owner := sqllock.WithOwner(t.Context(), "x")
		ctx, leave := context.WithCancel(owner)
		failed := make(chan error, 1)
		go func() {
			_, err := b.LockAll(ctx, []string{"a", "b"}, sqllock.MinHold(time.Hour))
			failed <- err
		}()
		synctest.Wait()
		again, err := b.Lock(owner, "a")
		if err != nil {
			t.Fatal(err)
		}
		leave()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Errorf("LockAll = %v", err)
		}
		b.unlock(again)
		if lease, err := b.TryLock(t.Context(), "a"); !errors.Is(err, sqllock.ErrHeld) {
			t.Errorf("TryLock = %v, %v, although the minimum hold is not over", lease, err)
		}
		b.unlock(other)
	})
}
