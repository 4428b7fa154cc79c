package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/sqllock/sqllock"
)

var lockPromises = []promise{
	{sentence: "TryLock of a held name says who holds it, since when and until when", test: testHeldError},
	{sentence: "two callers of one Locker exclude each other", test: testSameLocker},
	{sentence: "Lock waits until the holder unlocks, and gets a higher token", test: testLockWaits},
	{sentence: "Unlock lets the next one in at once and not after the TTL", test: testUnlockFrees},
	{sentence: "tokens rise strictly over hundreds of terms and stay below 2^53", test: testTokensRise},
	{sentence: "every acquisition has an owner of its own", test: testOwners},
	{sentence: "a second Unlock returns ErrNotHeld and frees nothing", test: testSecondUnlock},
	{sentence: "Unlock works with a cancelled context", test: testUnlockCancelled},
	{sentence: "a lease may be unlocked by many goroutines at once, and one of them does it", test: testUnlockRace},
}

func testHeldError(e *env) {
	a := e.locker(&Options{TTL: long, Label: "holder of the lease"})
	b := e.locker(&Options{TTL: long})
	name := e.name("k")
	lease := e.try(a, name)
	held := e.known(b, name)
	if held.Name != name || held.Label != "holder of the lease" || held.Owner != lease.Owner() {
		e.Errorf("want name %q, the label and owner %q, got %+v", name, lease.Owner(), held)
	}
	if e.inSessions() {
		if !held.Until.IsZero() {
			e.Errorf("a session keeps the name, and Until is %v", held.Until)
		}
	} else if d := held.Until.Sub(held.Since); d < long-time.Second || d > long+time.Second {
		e.Errorf("from Since to Until there are %v, want about the TTL %v", d, long)
	}
	// Clocks of different machines; but a time zone that got in would show.
	if d := time.Since(held.Since).Abs(); d > 10*time.Minute {
		e.Errorf("Since is %v, %v away from now", held.Since, d)
	}
	e.unlock(lease)
	e.unlock(e.try(b, name))
}

func testSameLocker(e *env) {
	l := e.locker(&Options{TTL: long, Label: "one and the same"})
	name := e.name("k")
	lease := e.try(l, name)
	if held := e.wantHeld(l, name); held.Label != "one and the same" {
		e.Errorf("want its own label, got %+v", held)
	}
	waiting := locking(e.ctx(), l, name)
	silent(e, waiting, "Lock returned while the name was held")
	e.unlock(lease)
	e.unlock(e.granted(waiting))
}

func testLockWaits(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	first := e.lock(a, name)
	waiting := locking(e.ctx(), b, name)
	silent(e, waiting, "Lock returned while the name was held")
	e.live(first)
	e.unlock(first)
	second := e.granted(waiting)
	if second.Token() <= first.Token() {
		e.Errorf("token %d follows token %d", second.Token(), first.Token())
	}
	e.live(second)
	e.unlock(second)
}

func testUnlockFrees(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	for range 5 {
		e.unlock(e.try(a, name)) // TryLock does not wait
		e.unlock(e.try(b, name))
	}
}

func testTokensRise(e *env) {
	lockers := []*sqllock.Locker{e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})}
	name := e.name("k")
	last := int64(0)
	for i := range 300 {
		lease := e.try(lockers[i%len(lockers)], name)
		token := lease.Token()
		if token <= last || token >= 1<<53 {
			e.Fatalf("term %d: token %d after %d", i, token, last)
		}
		last = token
		e.unlock(lease)
	}
}

func testOwners(e *env) {
	l := e.locker(&Options{TTL: long})
	seen := make(map[string]bool)
	for _, s := range []string{"a", "b", "c"} {
		name := e.name(s)
		lease := e.try(l, name)
		if owner := lease.Owner(); owner == "" || seen[owner] {
			e.Errorf("owner %q is empty or not new", owner)
		}
		seen[lease.Owner()] = true
		if lease.Name() != name || lease.Shared() {
			e.Errorf("Name %q, Shared %v of a lease of %q", lease.Name(), lease.Shared(), name)
		}
		e.unlock(lease)
	}
}

func testSecondUnlock(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	first := e.try(a, name)
	e.unlock(first)
	e.wantError("second Unlock", first.Unlock(e.ctx()), sqllock.ErrNotHeld)

	second := e.try(b, name)
	e.wantError("Unlock of an old lease", first.Unlock(e.ctx()), sqllock.ErrNotHeld)
	e.wantHeld(a, name)
	e.live(second)
	e.unlock(second)

	// The same, where the next holder is of the same Locker.
	third := e.try(b, name)
	e.wantError("Unlock of an old lease", second.Unlock(e.ctx()), sqllock.ErrNotHeld)
	e.wantHeld(a, name)
	e.unlock(third)
}

func testUnlockCancelled(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	lease := e.try(a, name)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := lease.Unlock(ctx); err != nil {
		e.Errorf("Unlock: %v", err)
	}
	e.unlock(e.try(b, name))

	lease = e.try(a, name)
	if err := lease.Unlock(lease.Context()); err != nil {
		e.Errorf("Unlock with the lease's own context: %v", err)
	}
	e.unlock(e.try(b, name))
}

func testUnlockRace(e *env) {
	l := e.locker(&Options{TTL: long})
	const n = 8
	for range 5 {
		lease := e.try(l, e.name("k"))
		errs := make(chan error, n)
		for range n {
			go func() { errs <- lease.Unlock(context.Background()) }()
		}
		done := 0
		for range n {
			switch err := receive(e, errs, "Unlock returns"); {
			case err == nil:
				done++
			case !errors.Is(err, sqllock.ErrNotHeld):
				e.Errorf("Unlock: %v", err)
			}
		}
		if done != 1 {
			e.Errorf("%d of %d Unlocks returned nil", done, n)
		}
	}
}
