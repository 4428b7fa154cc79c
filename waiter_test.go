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

// occupy lets a stranger hold name for d.
func occupy(db *fake, name string, d time.Duration) {
	db.set(func(f *fake) {
		f.rows[name] = &row{acq: driver.ID{1}, owner: "stranger", version: 1, until: f.now() + d.Microseconds()}
	})
}

func TestAWaiterWakesWhenTheHoldersLeaseExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		occupy(db, "a", 20*time.Second)
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl, RetryMin: 7 * time.Second, RetryMax: time.Minute})
		defer b.close()
		began := time.Now()
		lease := b.lock("a")
		if took := time.Since(began); took < 20*time.Second || took > 20*time.Second+10*time.Millisecond {
			t.Errorf("the name was free after 20s and taken after %v", took)
		}
		b.unlock(lease)
	})
}

func TestOneProcessSendsOneContenderPerName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		occupy(db, "a", time.Minute)
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl, RetryMin: time.Second, RetryMax: time.Second})
		defer b.close()
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				lease, err := b.Lock(t.Context(), "a")
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(10 * time.Millisecond)
				b.unlock(lease)
			})
		}
		time.Sleep(59 * time.Second)
		if got := db.count("grant"); got > 2*60 {
			t.Errorf("%d requests by 100 waiters in a minute of one request per second", got)
		}
		wg.Wait()
		if got := db.count("grant"); got > 2*60+100+10 {
			t.Errorf("%d requests: the waiters polled while their own process held the name", got)
		}
		if n := b.QueueLen(); n != 0 {
			t.Errorf("%d names are kept in memory when nobody holds or waits", n)
		}
	})
}

func TestWaitersOfOneProcessAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newFake(), &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		first := b.lock("a")
		var order []int
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				lease, err := b.Lock(t.Context(), "a")
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, i)
				b.unlock(lease)
			})
			time.Sleep(time.Millisecond)
		}
		b.unlock(first)
		wg.Wait()
		for i, got := range order {
			if got != i {
				t.Fatalf("served in the order %v", order)
			}
		}
	})
}

func TestAWaiterThatIsCancelledMakesWayForTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		occupy(db, "a", 10*time.Second)
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		ctx, cancel := context.WithCancelCause(t.Context())
		errs := make(chan error)
		go func() {
			_, err := b.Lock(ctx, "a")
			errs <- err
		}()
		synctest.Wait()
		got := make(chan *sqllock.Lease)
		go func() { got <- b.lock("a") }()
		synctest.Wait()
		why := errors.New("no more need")
		cancel(why)
		err := <-errs
		if !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
			t.Errorf("the cancelled Lock = %v, want Canceled and its cause", err)
		}
		b.unlock(<-got)
	})
}

func TestWaitAndTriesBoundAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		occupy(db, "a", time.Hour)
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		began := time.Now()
		_, err := b.Lock(t.Context(), "a", sqllock.Wait(10*time.Second))
		var held *sqllock.HeldError
		if !errors.As(err, &held) || held.Owner != "stranger" || time.Since(began) != 10*time.Second {
			t.Errorf("Lock = %v after %v", err, time.Since(began))
		}
		before := db.count("grant")
		_, err = b.Lock(t.Context(), "a", sqllock.Tries(4))
		if !errors.As(err, &held) || db.count("grant")-before != 4 {
			t.Errorf("Lock = %v after %d requests, want ErrHeld after 4", err, db.count("grant")-before)
		}
		mine := b.lock("mine")
		if _, err = b.Lock(t.Context(), "mine", sqllock.Wait(time.Second)); !errors.As(err, &held) || held.Owner != mine.Owner() {
			t.Errorf("Lock of what this process holds = %v", err)
		}
		b.unlock(mine)
	})
}

func TestAnExplicitOwnerReentersItsTermPastTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newFake(), &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		job := sqllock.WithOwner(t.Context(), "job-7")
		blocker := b.lock("a")
		leases := make(chan *sqllock.Lease, 3)
		enter := func(ctx context.Context) {
			lease, err := b.Lock(ctx, "a")
			if err != nil {
				t.Error(err)
				return
			}
			leases <- lease
		}
		go enter(job)
		synctest.Wait()
		go enter(t.Context())
		synctest.Wait()
		go enter(job) // behind the other, but of the first one's owner
		synctest.Wait()
		b.unlock(blocker)
		synctest.Wait()
		if len(leases) != 2 {
			t.Fatalf("%d leases, want the two of job-7", len(leases))
		}
		one, two := <-leases, <-leases
		if one.Token() != two.Token() || one.Owner() != "job-7" || two.Owner() != "job-7" {
			t.Errorf("tokens %d and %d of owners %q and %q", one.Token(), two.Token(), one.Owner(), two.Owner())
		}
		b.unlock(one)
		b.unlock(two)
		b.unlock(<-leases)
	})
}

func TestCloseEndsWaitersAndWaitsForHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		occupy(db, "other", time.Hour)
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		lease := b.lock("a")
		waited := make(chan error)
		for _, name := range []string{"a", "other"} {
			go func() {
				_, err := b.Lock(t.Context(), name)
				waited <- err
			}()
		}
		synctest.Wait()
		closed := make(chan error)
		go func() { closed <- b.Close(t.Context()) }()
		for range 2 {
			if err := <-waited; !errors.Is(err, sqllock.ErrClosed) {
				t.Errorf("a waiter got %v, want ErrClosed", err)
			}
		}
		<-lease.Context().Done()
		if cause := context.Cause(lease.Context()); cause != sqllock.ErrClosed {
			t.Errorf("cause = %v, want ErrClosed", cause)
		}
		time.Sleep(3 * ttl)
		if !db.held("a") || len(closed) != 0 {
			t.Error("the name was freed under its holder, or Close did not wait")
		}
		if _, err := b.Lock(t.Context(), "b"); !errors.Is(err, sqllock.ErrClosed) {
			t.Errorf("Lock = %v, want ErrClosed", err)
		}
		b.unlock(lease)
		if err := <-closed; err != nil {
			t.Errorf("Close = %v", err)
		}
		if db.held("a") {
			t.Error("the name is held after its holder's Unlock")
		}
	})
}

func TestCloseThatRunsOutOfTimeLeavesTheNameToItsExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		lease := b.lock("a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close = %v, want DeadlineExceeded", err)
		}
		if !db.held("a") {
			t.Error("Close freed the name under its holder")
		}
		time.Sleep(ttl)
		if db.held("a") || lease.Remaining() > 0 {
			t.Error("the lease did not end by its expiry")
		}
		if err := lease.Unlock(t.Context()); !errors.Is(err, sqllock.ErrLost) {
			t.Errorf("Unlock = %v, want ErrLost", err)
		}
	})
}

func TestManyNamesAndGoroutinesNeverOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newFake(), &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		inside := make([]int, 50)
		var wg sync.WaitGroup
		for g := range 200 {
			wg.Go(func() {
				for r := range 10 {
					i := (g + r*7) % len(inside)
					err := b.Do(t.Context(), fmt.Sprint(i), func(context.Context, *sqllock.Lease) error {
						inside[i]++
						if inside[i] != 1 {
							t.Error("two at once")
						}
						time.Sleep(time.Millisecond)
						inside[i]--
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
	})
}

func TestWaitersThatGiveUpDoNotHurryTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		occupy(db, "a", time.Hour)
		b := newBench(t, db, &sqllock.UniqueOptions{RetryMin: time.Second, RetryMax: time.Second})
		defer b.close()
		began := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := b.Lock(t.Context(), "a", sqllock.Tries(4))
			if took := time.Since(began); !errors.Is(err, sqllock.ErrHeld) || took < 1500*time.Millisecond {
				t.Errorf("four tries with pauses of half a second at least took %v: %v", took, err)
			}
		})
		time.Sleep(time.Millisecond)
		for i := range 20 {
			wg.Go(func() {
				_, err := b.Lock(t.Context(), "a", sqllock.Tries(4), sqllock.Wait(time.Duration(i+1)*10*time.Millisecond))
				if !errors.Is(err, sqllock.ErrHeld) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
}

// The reply to a grant comes late. Meanwhile an operator has ended the term, and another caller of the
// process has the next one.
func TestAGrantThatIsNotedLateEndsNoLaterTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, nil)
		defer b.close()
		var later atomic.Bool
		db.set(func(f *fake) {
			f.after = func(ctx context.Context, kind string) error {
				if kind == "grant" && !later.Swap(true) {
					time.Sleep(time.Second)
				}
				return nil
			}
		})
		late := make(chan error)
		go func() {
			_, err := b.TryLock(t.Context(), "a")
			late <- err
		}()
		time.Sleep(100 * time.Millisecond)
		if _, err := b.ForceUnlock(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		lease, err := b.TryLock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if err := <-late; !errors.Is(err, sqllock.ErrLost) {
			t.Errorf("the first TryLock = %v", err)
		}
		if lease.Context().Err() != nil {
			t.Errorf("the later lease: %v", lease.Context().Err())
		}
		b.unlock(lease)
	})
}
