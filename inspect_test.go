package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
)

type (
	driverGrant = driver.AcquireRequest
	driverID    = driver.ID
)

func TestTheFormerHolderHearsOfAForcedUnlockAtItsNextRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		holder, operator := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl}), newBench(t, db, nil)
		defer holder.close()
		defer operator.close()
		lease := holder.lock("a", sqllock.Value([]byte("v")))
		info, err := operator.ForceUnlock(t.Context(), "a")
		if err != nil || info.State != sqllock.StateHeld || info.Token != lease.Token() || info.Owner != lease.Owner() || string(info.Value) != "v" {
			t.Errorf("ForceUnlock = %+v, %v", info, err)
		}
		next := operator.lock("a") // somebody else has it already
		if next.Token() <= lease.Token() {
			t.Errorf("token %d after %d", next.Token(), lease.Token())
		}
		time.Sleep(ttl/3 + 50*time.Millisecond)
		wantReason(t, context.Cause(lease.Context()), sqllock.LostRevoked)
		wantReason(t, lease.Unlock(t.Context()), sqllock.LostRevoked)
		operator.unlock(next)
	})
}

func TestAForcedUnlockByTheHoldersOwnLockerIsHeardOfAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newFake(), nil)
		defer b.close()
		lease := b.lock("a")
		if _, err := b.ForceUnlock(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		wantReason(t, context.Cause(lease.Context()), sqllock.LostRevoked)
		b.unlock(b.lock("a"))
	})
}

func TestAnUnlockAfterAForcedOneSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		holder, operator := newBench(t, db, nil), newBench(t, db, nil)
		defer holder.close()
		defer operator.close()
		lease := holder.lock("a")
		if _, err := operator.ForceUnlock(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		wantReason(t, lease.Unlock(t.Context()), sqllock.LostRevoked) // before any renewal
	})
}

func TestForceUnlockOfAFreeNameIsNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newFake(), nil)
		defer b.close()
		b.unlock(b.lock("a"))
		for _, name := range []string{"a", "unknown"} {
			if _, err := b.ForceUnlock(t.Context(), name); !errors.Is(err, sqllock.ErrNotHeld) {
				t.Errorf("ForceUnlock(%q) = %v, want ErrNotHeld", name, err)
			}
		}
	})
}

func TestForceUnlockTermEndsTheTermWithTheTokenAndNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b, operator := newBench(t, db, nil), newBench(t, db, nil)
		defer b.close()
		defer operator.close()
		first := b.lock("a")
		b.unlock(first)
		lease := b.lock("a")
		for token, want := range map[int64]error{
			-1: sqllock.ErrInvalidOption, 0: sqllock.ErrInvalidOption,
			first.Token(): sqllock.ErrNotHeld, lease.Token() + 1: sqllock.ErrNotHeld,
		} {
			if _, err := operator.ForceUnlockTerm(t.Context(), "a", token); !errors.Is(err, want) {
				t.Errorf("ForceUnlockTerm of the token %d = %v, want %v", token, err, want)
			}
		}
		if !db.held("a") {
			t.Error("the term has ended")
		}
		if info, err := operator.ForceUnlockTerm(t.Context(), "a", lease.Token()); err != nil || info.Token != lease.Token() || db.held("a") {
			t.Errorf("ForceUnlockTerm = %+v, %v", info, err)
		}
		<-lease.Context().Done()
		wantReason(t, lease.Unlock(t.Context()), sqllock.LostRevoked)
	})
}

func TestForceUnlockWaitsForALockedRowAndIsNotRepeatedAfterAnUnclearReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, nil)
		defer b.close()
		lease := b.lock("a")
		defer func() { _ = lease.Unlock(t.Context()) }()
		db.set(func(f *fake) { f.before = failing("revoke", errDeadlock) })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := b.ForceUnlock(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errDeadlock) {
			t.Errorf("ForceUnlock of a locked row = %v", err)
		}
		time.AfterFunc(5*time.Second, func() { db.set(func(f *fake) { f.before = nil }) })
		if _, err := b.ForceUnlock(t.Context(), "a"); err != nil {
			t.Errorf("ForceUnlock of a row that was locked for a while = %v", err)
		}
		db.set(func(f *fake) { f.after = failing("revoke", errNoReply) })
		second := b.lock("a")
		n := db.count("revoke")
		if _, err := b.ForceUnlock(t.Context(), "a"); !errors.Is(err, errNoReply) || db.count("revoke") != n+1 {
			t.Errorf("ForceUnlock without a reply = %v after %d statements", err, db.count("revoke")-n)
		}
		_ = second.Unlock(t.Context())
	})
}

func TestForceUnlockThatHasToTryAgainLeavesTheNextHolderAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		holder, operator := newBench(t, db, nil), newBench(t, db, &sqllock.UniqueOptions{RetryMin: time.Minute, RetryMax: time.Minute})
		defer holder.close()
		defer operator.close()
		first := holder.lock("a")
		db.set(func(f *fake) { f.before = once("revoke", errDeadlock) })
		done := make(chan error, 1)
		go func() {
			_, err := operator.ForceUnlock(t.Context(), "a")
			done <- err
		}()
		synctest.Wait()
		holder.unlock(first)
		next := holder.lock("a")
		if err := <-done; !errors.Is(err, sqllock.ErrNotHeld) || !strings.Contains(err.Error(), "the term has ended meanwhile") {
			t.Errorf("ForceUnlock = %v", err)
		}
		holder.unlock(next)
	})
}

func TestForceUnlockThatHasToTryAgainStillEndsAMinimumHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		holder, operator := newBench(t, db, nil), newBench(t, db, &sqllock.UniqueOptions{RetryMin: time.Minute, RetryMax: time.Minute})
		defer holder.close()
		defer operator.close()
		first := holder.lock("a", sqllock.MinHold(time.Hour))
		db.set(func(f *fake) { f.before = once("revoke", errDeadlock) })
		done := make(chan error, 1)
		go func() {
			_, err := operator.ForceUnlock(t.Context(), "a")
			done <- err
		}()
		synctest.Wait()
		holder.unlock(first)
		if err := <-done; err != nil {
			t.Errorf("ForceUnlock = %v", err)
		}
		next, err := holder.TryLock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		holder.unlock(next)
	})
}

func TestAnExpiredHolderThatIsForcedCountsAsACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		crash(t, db, "a")
		crashes := 0
		b := newBench(t, db, &sqllock.UniqueOptions{Hooks: &sqllock.Hooks{Crashed: func(sqllock.CrashedEvent) { crashes++ }}})
		time.Sleep(2 * time.Second)
		if info, err := b.ForceUnlock(t.Context(), "a"); err != nil || info.State != sqllock.StateExpired {
			t.Errorf("ForceUnlock = %+v, %v", info, err)
		}
		b.close()
		if crashes != 1 {
			t.Errorf("%d crashes were told", crashes)
		}
	})
}

func TestAReadThatTheDatabaseRefusesIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, nil)
		defer b.close()
		b.unlock(b.lock("a"))
		for kind, look := range map[string]func() error{
			"look": func() error { _, err := b.Inspect(t.Context(), "a"); return err },
			"list": func() (last error) {
				for _, err := range b.List(t.Context()) {
					last = err
				}
				return last
			},
		} {
			db.set(func(f *fake) { f.before = failing(kind, errDenied) })
			if err := look(); !errors.Is(err, errDenied) {
				t.Errorf("%s: %v", kind, err)
			}
		}
	})
}

func TestAListYieldsWhatIsNotFreeUntilItIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, nil)
		defer b.close()
		for _, name := range []string{"a", "b", "c"} {
			defer b.unlock(b.lock(name))
		}
		b.unlock(b.lock("free"))
		b.unlock(b.lock("kept", sqllock.MinHold(time.Hour)))
		names := func(opts ...sqllock.ListOption) (names []string) {
			for info, err := range b.List(t.Context(), opts...) {
				if err != nil {
					t.Fatal(err)
				}
				names = append(names, info.Name+" "+info.State.String())
			}
			return names
		}
		if got := fmt.Sprint(names()); got != "[a held b held c held kept released]" {
			t.Errorf("List: %s", got)
		}
		if got := fmt.Sprint(names(sqllock.IncludeFree())); got != "[a held b held c held free released kept released]" {
			t.Errorf("List with free names: %s", got)
		}
		for info := range b.List(t.Context()) {
			if info.Name != "a" {
				t.Error("it went on after break")
			}
			break
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		n := 0
		for _, err := range b.List(ctx) {
			if n++; !errors.Is(err, context.Canceled) || n > 1 {
				t.Errorf("List with a context that is over: %v", err)
			}
		}
	})
}

func TestListOptionsThatCannotBeAreRefusedBeforeAnySQL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, nil)
		defer b.close()
		for _, c := range []struct {
			opt  sqllock.ListOption
			want error
		}{
			{sqllock.Prefix("a\x00"), sqllock.ErrInvalidName},
			{sqllock.Prefix("a\xff"), sqllock.ErrInvalidName},
			{sqllock.After(strings.Repeat("x", 256)), sqllock.ErrInvalidName},
			{sqllock.Limit(0), sqllock.ErrInvalidOption},
			{sqllock.Limit(-1), sqllock.ErrInvalidOption},
		} {
			for _, err := range b.List(t.Context(), c.opt) {
				if !errors.Is(err, c.want) {
					t.Errorf("List = %v, want %v", err, c.want)
				}
			}
		}
		if n := db.count("list"); n > 0 {
			t.Errorf("%d statements", n)
		}
	})
}

func TestOperatorCallsCheckTheirArgumentsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, nil)
		results := func(name string) []error {
			_, inspect := b.Inspect(t.Context(), name)
			_, force := b.ForceUnlock(t.Context(), name)
			errs := []error{inspect, force}
			for _, err := range b.Watch(t.Context(), name) {
				errs = append(errs, err)
			}
			return errs
		}
		for _, err := range results("") {
			if !errors.Is(err, sqllock.ErrInvalidName) {
				t.Errorf("an empty name: %v", err)
			}
		}
		b.close()
		for _, err := range results("a") {
			if err != sqllock.ErrClosed {
				t.Errorf("a closed Locker: %v", err)
			}
		}
		if len(db.sent) > 0 {
			t.Errorf("statements were sent: %v", db.sent)
		}
	})
}

func TestAWatchYieldsEachChangeInOrderAndTheLastOneForCertain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b, other := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl}), newBench(t, db, nil)
		defer b.close()
		defer other.close()
		ctx, cancel := context.WithCancel(t.Context())
		var seen []string
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			for info, err := range b.Watch(ctx, "a") {
				if err != nil {
					seen = append(seen, fmt.Sprint(errors.Is(err, context.Canceled)))
					continue
				}
				seen = append(seen, info.State.String())
			}
		}()
		step := func() { time.Sleep(2 * time.Second) }
		step()
		lease := b.lock("a")
		step()
		b.unlock(lease)
		step()
		crash(t, db, "a")
		time.Sleep(500 * time.Millisecond)
		db.set(func(f *fake) { f.before = failing("look", errDown) })
		step() // it expires meanwhile
		db.set(func(f *fake) { f.before = nil })
		step()
		lease = b.lock("a")
		step()
		if _, err := other.ForceUnlock(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		step()
		_ = lease.Unlock(t.Context())
		for range 50 { // under load
			b.unlock(b.lock("a"))
		}
		step()
		cancel()
		<-watched
		got := fmt.Sprint(seen)
		const want = "[unknown held released held expired held forced"
		if len(got) < len(want) || got[:len(want)] != want || seen[len(seen)-2] != "released" || seen[len(seen)-1] != "true" {
			t.Errorf("seen %s, want %s … released, and the end of the context", got, want)
		}
	})
}

func TestAWatcherSeesAnExpiryWhenItHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		crash(t, db, "a") // for a second
		b := newBench(t, db, &sqllock.UniqueOptions{RetryMin: time.Hour, RetryMax: time.Hour})
		defer b.close()
		start := time.Now()
		for info, err := range b.Watch(t.Context(), "a") {
			if err != nil {
				t.Fatal(err)
			}
			if info.State == sqllock.StateExpired {
				break
			}
		}
		if took := time.Since(start); took > 1100*time.Millisecond {
			t.Errorf("it was seen after %v, and happened after a second", took)
		}
	})
}

// Somebody has written the end of all time into the row.
func TestAWatchOfATermWithoutEndPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		lease := b.lock("a")
		db.set(func(f *fake) {
			f.rows["a"].until = math.MaxInt64
			f.before = func(context.Context, string) error {
				if f.count("read") > 1000 {
					return errDenied
				}
				return nil
			}
		})
		before := db.count("read")
		ctx, cancel := context.WithTimeout(t.Context(), ttl/4)
		defer cancel()
		for _, err := range b.Watch(ctx, "a") {
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
		if n := db.count("read") - before; n > 100 {
			t.Errorf("the row was read %d times in %v", n, ttl/4)
		}
		db.set(func(f *fake) { f.before = nil })
		_ = lease.Unlock(t.Context())
	})
}
