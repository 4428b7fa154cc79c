package sqllock_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
)

// once makes the first statement of a kind fail, behind or before the database.
func once(kind string, err error) func(context.Context, string) error {
	done := false
	return func(_ context.Context, k string) error {
		if k != kind || done {
			return nil
		}
		done = true
		return err
	}
}

func TestALockWhoseReplyWasLostIsAskedForAgainAndGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		db.after = once("grant", errNoReply)
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		began := time.Now()
		lease := b.lock("a")
		if waited := time.Since(began); waited > time.Second {
			t.Errorf("the name that this call held already was waited for: %v", waited)
		}
		if got := lease.Remaining(); got > sqllock.Trust(ttl) || got < ttl/2 {
			t.Errorf("Remaining() = %v", got)
		}
		b.unlock(lease)
	})
}

func TestAMaxHoldCountsFromTheRequestWhoseReplyWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		db.after = once("grant", errNoReply)
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		time.Sleep(time.Hour)
		began := time.Now()
		lease := b.lock("a", sqllock.MaxHold(20*time.Second))
		<-lease.Context().Done()
		if held := time.Since(began); held < 15*time.Second || held > 20*time.Second {
			t.Errorf("it was held for %v", held)
		}
		_ = lease.Unlock(t.Context())
	})
}

func TestACleanupThatFailsDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		db.after = failing("grant", errNoReply)
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: time.Hour})
		defer b.close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		db.set(func(f *fake) { f.before = failing("abandon", errDown) })
		for _, name := range []string{"bad", "good"} {
			wg.Go(func() {
				if _, err := b.Lock(ctx, name); err == nil {
					t.Errorf("%q was granted without a reply", name)
				}
			})
		}
		wg.Wait()
		db.set(func(f *fake) { f.before, f.after, f.poison["bad"] = nil, nil, errDenied })
		time.Sleep(time.Second)
		if db.held("good") || !db.held("bad") {
			t.Errorf("held: good %v, bad %v", db.held("good"), db.held("bad"))
		}
		db.set(func(f *fake) { delete(f.poison, "bad") })
	})
}

// What a request without a reply has written may be lost in a fail-over, although
// it can be read: see Locker.confirm.
func TestALeaseGrantedToALostRequestIsBelievedWhenARenewalHasConfirmedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		db.after = once("grant", errNoReply)
		db.before = failing("renew alone", errDown)
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		time.AfterFunc(3*time.Second, func() { db.set(func(f *fake) { f.before = nil }) })
		began := time.Now()
		lease := b.lock("a")
		if took := time.Since(began); took < 3*time.Second || db.count("renew alone") != 1 {
			t.Errorf("believed after %v and %d renewals", took, db.count("renew alone"))
		}
		row := time.Duration(db.row("a").until-time.Now().UnixMicro()) * time.Microsecond
		if got := lease.Remaining(); got > sqllock.Trust(ttl) || got > row {
			t.Errorf("Remaining() = %v, the row has %v", got, row)
		}
		b.unlock(lease)
	})
}

func TestALeaseGrantedToALostRequestThatHasExpiredIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		db.after = once("grant", errNoReply)
		db.before = after("renew alone", 2*ttl)
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl, StatementTimeout: 3 * ttl})
		defer b.close()
		time.AfterFunc(ttl, func() { db.set(func(f *fake) { f.before = nil }) })
		lease := b.lock("a")
		if lease.Remaining() < ttl/2 || db.row("a").version != lease.Token() {
			t.Errorf("Remaining() = %v", lease.Remaining())
		}
		b.unlock(lease)
	})
}

func TestATryLockWhoseReplyWasLostIsCleanedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		db.after = once("grant", errNoReply)
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		lease, err := b.TryLock(t.Context(), "a")
		if lease != nil || !errors.Is(err, errNoReply) {
			t.Fatalf("TryLock = %v, %v; want the error", lease, err)
		}
		time.Sleep(time.Second)
		if db.held("a") {
			t.Error("the name is still held a second later")
		}
	})
}

// A request that is under way may be committed in the moment in which it is undone.
func TestACleanupSettlesARequestUntilItWasReleasedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		db.after, db.before = once("grant", errNoReply), once("abandon", errDown)
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		if _, err := b.TryLock(t.Context(), "a"); !errors.Is(err, errNoReply) {
			t.Fatalf("TryLock: %v", err)
		}
		time.Sleep(ttl + time.Second)
		tries := db.settled()
		if len(tries) < 3 || !tries[0] || !tries[1] || slices.Contains(tries[2:], true) {
			t.Errorf("the tries were to settle: %v; want the failed one and the next", tries)
		}
	})
}

// A waiter that leaves has no request under way.
func TestAWaiterThatLeavesWaitsForNobodyWhoHasLockedTheRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b, other := newBench(t, db, nil), newBench(t, db, nil)
		defer b.close()
		defer other.close()
		lease := other.lock("a")
		ctx, cancel := context.WithCancel(t.Context())
		next := queuedWaiter(t, b, ctx, "a")
		time.Sleep(10 * time.Millisecond)
		cancel()
		<-next
		time.Sleep(time.Second)
		if tries := db.settled(); len(tries) != 1 || tries[0] {
			t.Errorf("the tries were to settle: %v", tries)
		}
		other.unlock(lease)
	})
}

func TestARequestThatArrivesLateIsCleanedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		late := make(chan struct{})
		delayed := false
		db.before = func(ctx context.Context, kind string) error {
			if kind != "grant" || delayed {
				return nil
			}
			delayed = true
			go func() { // the packet is under way still when the client gives up
				time.Sleep(ttl / 2)
				db.mu.Lock()
				defer db.mu.Unlock()
				if db.rows["a"] == nil {
					db.rows["a"] = &row{}
				}
				db.rows["a"].acq, db.rows["a"].until = db.last, db.now()+ttl.Microseconds()
				close(late)
			}()
			<-ctx.Done()
			return ctx.Err()
		}
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		if _, err := b.TryLock(t.Context(), "a"); err == nil {
			t.Fatal("TryLock returned no error")
		}
		<-late
		if !db.held("a") {
			t.Fatal("the test expects that the late request was granted")
		}
		time.Sleep(ttl - ttl/2)
		if db.held("a") {
			t.Error("what the late request took is still held when its TTL is over")
		}
	})
}

func TestALateTwinOfARequestCannotKeepTheNameAfterUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		db.after = once("grant", errNoReply)
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		lease := b.lock("a")
		acq := db.row("a").acq
		b.unlock(lease)
		time.Sleep(time.Second)
		db.set(func(f *fake) { f.rows["a"].acq, f.rows["a"].until = acq, f.now()+ttl.Microseconds() })
		time.Sleep(ttl - time.Second)
		if db.held("a") {
			t.Error("a late twin of the request holds the name")
		}
	})
}

func TestACallThatWasCancelledGivesBackWhatItsRequestGets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		db.after = after("grant", time.Second)
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		began := time.Now()
		if _, err := b.Lock(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock = %v, want DeadlineExceeded", err)
		}
		if time.Since(began) > 10*time.Millisecond {
			t.Error("Lock did not return when its context ended")
		}
		time.Sleep(2 * time.Second)
		if db.held("a") {
			t.Error("the name is held by nobody")
		}
	})
}

func TestAnUnlockWhoseReplyWasLostFreesTheName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		db.after = once("release", errNoReply)
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		lease := b.lock("a")
		b.unlock(lease)
		if db.held("a") {
			t.Error("the name is held")
		}
	})
}

// What an operator has ended was not held to the end, whether or not a reply was lost.
func TestAnUnlockWithoutAReplyTellsOfATermThatWasRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		holder, operator := newBench(t, db, nil), newBench(t, db, nil)
		defer holder.close()
		defer operator.close()
		lease := holder.lock("a")
		if _, err := operator.ForceUnlock(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		db.set(func(f *fake) { f.after = once("release", errNoReply) })
		wantReason(t, lease.Unlock(t.Context()), sqllock.LostRevoked)
	})
}

func TestAnUnlockWhoseReplyWasLostIsNotToldOfAMinimumHoldThatWasEndedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		holder, operator := newBench(t, db, &sqllock.UniqueOptions{RetryMin: time.Second}), newBench(t, db, nil)
		defer holder.close()
		defer operator.close()
		lease := holder.lock("a", sqllock.MinHold(time.Hour))
		unlocked := unlockWithoutReply(t, db, lease)
		if _, err := operator.ForceUnlock(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		if err := <-unlocked; err != nil {
			t.Errorf("Unlock = %v", err)
		}
	})
}

func TestAReaderWhoseUnlockGotNoReplyIsNotToldThatTheOthersWereForced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		one, other := newBench(t, db, &sqllock.UniqueOptions{RetryMin: time.Second}), newBench(t, db, nil)
		defer one.close()
		defer other.close()
		a, err := one.RLock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		b, err := other.RLock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		unlocked := unlockWithoutReply(t, db, a)
		if _, err := other.ForceUnlock(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		if err := <-unlocked; err != nil {
			t.Errorf("Unlock = %v", err)
		}
		wantReason(t, b.Unlock(t.Context()), sqllock.LostRevoked)
	})
}

// unlockWithoutReply calls Unlock, whose first request runs and gets no reply. It returns
// before the second.
func unlockWithoutReply(t *testing.T, db *fake, lease *sqllock.Lease) <-chan error {
	db.set(func(f *fake) { f.after = once("release", errNoReply) })
	unlocked := make(chan error, 1)
	go func() { unlocked <- lease.Unlock(t.Context()) }()
	synctest.Wait()
	return unlocked
}

func TestAnUnlockThatCannotReachTheDatabaseIsFinishedInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		lease := b.lock("a")
		db.set(func(f *fake) { f.before = failing("release", errDown) })
		began := time.Now()
		if err := lease.Unlock(t.Context()); !errors.Is(err, errDown) || errors.Is(err, sqllock.ErrLost) {
			t.Errorf("Unlock = %v, want the error of the database", err)
		}
		if took := time.Since(began); took > ttl {
			t.Errorf("Unlock took %v", took)
		}
		time.Sleep(time.Second)
		if db.held("a") {
			t.Error("the name is still held")
		}
	})
}

func TestAnUnlockWhoseCleanupHangsIsTriedAgainAfterAThirdOfTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 6 * time.Second
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		lease := b.lock("a")
		var hung atomic.Bool
		db.set(func(f *fake) {
			f.before = func(ctx context.Context, kind string) error {
				switch {
				case kind == "release":
					return errDenied
				case kind == "abandon" && hung.CompareAndSwap(false, true):
					<-ctx.Done()
					return ctx.Err()
				}
				return nil
			}
		})
		if err := lease.Unlock(t.Context()); !errors.Is(err, errDenied) {
			t.Errorf("Unlock = %v, want the error of the database", err)
		}
		time.Sleep(ttl/3 + ttl/10)
		if !hung.Load() || db.held("a") {
			t.Errorf("hung: %v, held: %v", hung.Load(), db.held("a"))
		}
	})
}

func TestANameIsCleanedUpSoonAfterALongOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: time.Hour})
		defer b.close()
		lease := b.lock("a")
		db.set(func(f *fake) { f.before = func(context.Context, string) error { return errDown } })
		if err := lease.Unlock(t.Context()); !errors.Is(err, errDown) {
			t.Errorf("Unlock = %v, want the error of the database", err)
		}
		time.Sleep(time.Minute)
		db.set(func(f *fake) { f.before = nil })
		time.Sleep(time.Second)
		if db.held("a") {
			t.Error("a second later the name is still held")
		}
	})
}

func TestWhatTheDatabaseSaysToTryAgainIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		db.before = once("grant", errDeadlock)
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		lease, err := b.TryLock(t.Context(), "a")
		if err != nil {
			t.Fatalf("TryLock after a deadlock = %v", err)
		}
		db.set(func(f *fake) { f.before = once("release", errDeadlock) })
		b.unlock(lease)
	})
}

func TestLockKeepsTryingAnUnreachableDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		db.before = failing("grant", errDown)
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		time.AfterFunc(time.Hour, func() { db.set(func(f *fake) { f.before = nil }) })
		began := time.Now()
		lease := b.lock("a")
		if took := time.Since(began); took < time.Hour || took > time.Hour+time.Second {
			t.Errorf("Lock took %v", took)
		}
		b.unlock(lease)

		db.set(func(f *fake) { f.before = failing("grant", errDown) })
		if _, err := b.TryLock(t.Context(), "a"); !errors.Is(err, errDown) {
			t.Errorf("TryLock = %v, want the error", err)
		}
		if _, err := b.Lock(t.Context(), "a", sqllock.Tries(3)); !errors.Is(err, errDown) {
			t.Errorf("Lock with Tries = %v, want the error", err)
		}
		if _, err := b.Lock(t.Context(), "a", sqllock.Wait(time.Second)); !errors.Is(err, errDown) {
			t.Errorf("Lock with Wait = %v, want the error", err)
		}
	})
}

func TestARefusalEndsLockAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		db.before = failing("grant", errDenied)
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		if _, err := b.Lock(t.Context(), "a"); !errors.Is(err, errDenied) {
			t.Errorf("Lock = %v, want the refusal", err)
		}
	})
}
