package conformance

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock"
)

var reentryPromises = []promise{
	{sentence: "nobody re-enters who does not ask for it", test: testNotReentrant},
	{sentence: "Lock with the lease's context re-enters: same token, no statement", test: testReentry},
	{sentence: "n locks need n unlocks", test: testUnlockTimes},
	{sentence: "each handle of a term has a context of its own", test: testReentryContexts},
	{sentence: "the row shows the number of leases of a term from the next renewal on", test: testLeasesInRow, needs: needTable},
	{sentence: "re-entry works from a context derived from Do's", test: testReentryInDo},
	{sentence: "a lease's context locks other names as a stranger", test: testOtherNames},
	{sentence: "goroutines that share a lease's context exclude each other on other names", test: testSharedContext},
	{sentence: "after Unlock the lease's context starts a new term", test: testReentryAfterUnlock},
	{sentence: "the context of an inner lease that was unlocked leads to the outer one", test: testReentryAfterInner},
	{sentence: "a lease of another Locker is not re-entered", test: testReentryOtherLocker},
	{sentence: "WithoutOwner takes lease and owner out of a context", test: testWithoutOwner},
	{sentence: "re-entering with a lost lease fails with its LostError", test: testReentryLost},
}

func testReentryAfterInner(e *env) {
	l := e.locker(&Options{TTL: long})
	outer := e.lock(l, e.name("k"))
	inner := e.lockWith(outer.Context(), l, outer.Name())
	e.unlock(inner)
	again := e.lockWith(context.WithoutCancel(inner.Context()), l, outer.Name())
	if again.Token() != outer.Token() {
		e.Errorf("token %d in token %d", again.Token(), outer.Token())
	}
	e.unlock(again)
	e.unlock(outer)
}

func testNotReentrant(e *env) {
	l := e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	again, err := l.Lock(ctx, lease.Name())
	e.oneOf(again, err)
	e.wantError("Lock of a name that the same code holds", err, context.DeadlineExceeded)
	e.unlock(lease)
}

func testReentry(e *env) {
	db, recorder := e.open(e.source(), poolSize)
	l := e.lockerOn(db, &Options{TTL: long})
	outer := e.lock(l, e.name("k"))
	before := recorder.statements.Load()
	ctx := outer.Context()
	for call, f := range map[string]func(context.Context, string, ...sqllock.LockOption) (*sqllock.Lease, error){
		"Lock": l.Lock, "TryLock": l.TryLock,
	} {
		inner, err := f(ctx, outer.Name())
		e.oneOf(inner, err)
		if err != nil {
			e.Fatalf("%s: %v", call, err)
		}
		if inner == outer {
			e.Errorf("%s returned the outer lease itself", call)
		}
		if inner.Token() != outer.Token() || inner.Owner() != outer.Owner() {
			e.Errorf("%s: token %d of %q in token %d of %q", call, inner.Token(), inner.Owner(), outer.Token(), outer.Owner())
		}
		e.live(inner)
		e.unlock(inner)
		e.live(outer)
	}
	if n := recorder.statements.Load() - before; n != 0 {
		e.Errorf("re-entering sent %d statements", n)
	}
	e.unlock(outer)
}

func testUnlockTimes(e *env) {
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	leases := []*sqllock.Lease{e.lock(l, e.name("k"))}
	name := leases[0].Name()
	const n = 4
	for i := 1; i < n; i++ { // each within the one before
		leases = append(leases, e.lockWith(leases[i-1].Context(), l, name))
	}
	// In any order: here the first is the first to go.
	for i, lease := range leases {
		e.wantHeld(other, name)
		e.live(lease)
		e.unlock(lease)
		e.wantError("second Unlock", lease.Unlock(e.ctx()), sqllock.ErrNotHeld)
		for _, rest := range leases[i+1:] {
			e.live(rest)
		}
	}
	e.unlock(e.try(other, name))
}

func testReentryContexts(e *env) {
	l := e.locker(&Options{TTL: long})
	outer := e.lockWith(context.WithValue(e.ctx(), testKey{}, "outer"), l, e.name("k"))
	inner := e.lockWith(context.WithValue(outer.Context(), testKey{}, "inner"), l, outer.Name())
	if v := inner.Context().Value(testKey{}); v != "inner" {
		e.Errorf("the inner context's value is %v", v)
	}
	e.unlock(inner)
	e.wantError("cause of the inner context", context.Cause(inner.Context()), sqllock.ErrUnlocked)
	if left := inner.Remaining(); left > 0 {
		e.Errorf("the inner lease's Remaining is %v after its Unlock", left)
	}
	e.live(outer)
	e.unlock(outer)
	e.wantError("cause of the outer context", context.Cause(outer.Context()), sqllock.ErrUnlocked)
}

func testLeasesInRow(e *env) {
	l := e.locker(&Options{TTL: e.ttl(2 * time.Second)})
	outer := e.lock(l, e.name("k"))
	inner := e.lockWith(outer.Context(), l, outer.Name())
	third := e.lockWith(inner.Context(), l, outer.Name())
	for _, step := range []struct {
		unlock *sqllock.Lease
		leases int
	}{{nil, 3}, {inner, 2}, {outer, 1}} {
		if step.unlock != nil {
			e.unlock(step.unlock)
		}
		e.eventually(timeLimit, fmt.Sprintf("the row says %d leases", step.leases), func() bool {
			return e.row(outer.Name()).Holds == step.leases
		})
	}
	e.unlock(third)
	if r := e.row(outer.Name()); r.Holds != 0 || r.Held {
		e.Errorf("the row of a free name is %+v", r)
	}
}

func testReentryInDo(e *env) {
	l := e.locker(&Options{TTL: long})
	name := e.name("k")
	err := l.Do(e.ctx(), name, func(ctx context.Context, outer *sqllock.Lease) error {
		derived, cancel := context.WithTimeout(context.WithValue(ctx, testKey{}, "below"), timeLimit)
		defer cancel()
		ran, err := l.TryDo(derived, name, func(_ context.Context, inner *sqllock.Lease) error {
			if inner.Token() != outer.Token() {
				e.Errorf("token %d within token %d", inner.Token(), outer.Token())
			}
			return nil
		})
		if !ran {
			e.Error("TryDo with Do's context did not run")
		}
		e.live(outer)
		return err
	})
	if err != nil {
		e.Errorf("Do: %v", err)
	}
}

func testOtherNames(e *env) {
	l := e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	first := e.lockWith(lease.Context(), l, e.name("other"))
	if first.Owner() == lease.Owner() {
		e.Errorf("another name got the same owner %q", first.Owner())
	}
	e.wantHeldWith(lease.Context(), l, first.Name())
	e.unlock(lease)
	e.live(first)
	// first's context descends from lease's, which is over now.
	second := e.lockWith(first.Context(), l, first.Name())
	e.unlock(second)
	e.unlock(first)
}

// testSharedContext is a read, a pause and a write of a counter, under a lock
// that all goroutines take with the context of one lease.
func testSharedContext(e *env) {
	l := e.locker(&Options{TTL: long, RetryMax: 20 * time.Millisecond})
	outer, inner := e.name("outer"), e.name("inner")
	var counter atomic.Int64 // its Load and Store are what the lock must protect
	const goroutines, times = 8, 5
	err := l.Do(e.ctx(), outer, func(ctx context.Context, _ *sqllock.Lease) error {
		var wg sync.WaitGroup
		for range goroutines {
			wg.Go(func() {
				for range times {
					err := l.Do(ctx, inner, func(context.Context, *sqllock.Lease) error {
						n := counter.Load()
						time.Sleep(time.Millisecond)
						counter.Store(n + 1)
						return nil
					})
					if err != nil {
						e.Errorf("Do: %v", err)
					}
				}
			})
		}
		wg.Wait()
		return nil
	})
	if err != nil {
		e.Errorf("Do: %v", err)
	}
	if n := counter.Load(); n != goroutines*times {
		e.Errorf("%d of %d additions are there", n, goroutines*times)
	}
}

func testReentryAfterUnlock(e *env) {
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	first := e.lock(l, e.name("k"))
	ctx := context.WithoutCancel(first.Context())
	e.unlock(first)
	second, err := l.TryLock(ctx, first.Name())
	e.oneOf(second, err)
	if err != nil {
		e.Fatalf("TryLock with the context of a lease that was unlocked: %v", err)
	}
	if second.Token() <= first.Token() {
		e.Errorf("token %d follows token %d", second.Token(), first.Token())
	}
	e.unlock(second)

	// It does not get in either when somebody else holds the name.
	third := e.try(other, first.Name())
	e.wantHeldWith(ctx, l, first.Name())
	e.unlock(third)
}

func testReentryOtherLocker(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	lease := e.lock(a, e.name("k"))
	e.wantHeldWith(lease.Context(), b, lease.Name())
	e.unlock(lease)
}

func testWithoutOwner(e *env) {
	l := e.locker(&Options{TTL: long})
	ctx := sqllock.WithOwner(context.WithValue(e.ctx(), testKey{}, "stays"), "job-7")
	lease := e.lockWith(ctx, l, e.name("k"))
	for what, ctx := range map[string]context.Context{"the owner's": ctx, "the lease's": lease.Context()} {
		without := sqllock.WithoutOwner(ctx)
		e.wantHeldWith(without, l, lease.Name())
		if v := without.Value(testKey{}); v != "stays" {
			e.Errorf("%s context lost its value: %v", what, v)
		}
		free := e.lockWith(without, l, e.name("free"))
		if free.Owner() == "job-7" {
			e.Errorf("%s context kept the owner", what)
		}
		// What is locked with it is re-entered all the same.
		e.unlock(e.lockWith(free.Context(), l, free.Name()))
		e.unlock(free)
	}
	e.unlock(e.lockWith(lease.Context(), l, lease.Name()))
	e.unlock(lease)
}

func testReentryLost(e *env) {
	e.losable()
	l, other := e.locker(&Options{TTL: e.ttl(2 * time.Second)}), e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	ctx := lease.Context()
	next := e.lose(lease, other)
	for _, c := range []context.Context{ctx, context.WithoutCancel(ctx)} {
		again, err := l.Lock(c, lease.Name())
		e.oneOf(again, err)
		if lost := e.wantLost("Lock with a lost lease", err); lost.Token != lease.Token() {
			e.Errorf("the LostError is of token %d, the lease of %d", lost.Token, lease.Token())
		}
		again, err = l.TryLock(c, lease.Name())
		e.oneOf(again, err)
		e.wantLost("TryLock with a lost lease", err)
	}
	e.live(next)
	e.unlock(next)
	e.wantLost("Unlock", lease.Unlock(e.ctx()))
}
