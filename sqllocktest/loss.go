package sqllocktest

import (
	"context"
	"errors"
	"time"

	"github.com/sqllock/sqllock"
)

var lossPromises = []promise{
	{sentence: "a lease that the database does not know any more is lost at the next renewal", test: testLossIsTold, needs: needTable},
	{sentence: "a loss is seen in every way in which one can look", test: testLossEverywhere, needs: needTable},
	{sentence: "loss is sticky", test: testLossIsSticky, needs: needTable},
	{sentence: "whoever lost a lease frees nobody else's", test: testLostUnlock, needs: needTable},
	{sentence: "Unlock tells of a loss that no renewal has found yet", test: testUnlockFindsLoss, needs: needTable},
	{sentence: "a renewal revives no lease that has expired", test: testNoRevival, needs: needTable},
	{sentence: "a lost lease makes way for others of the same process", test: testLossLetsIn, needs: needTable},
	{sentence: "the loss of one lease does not touch the others", test: testLossOfOne, needs: needTable},
}

// lose makes a lease lost by giving its name to next. The TTL of the lease must
// be short.
func (e *env) lose(lease *sqllock.Lease, next *sqllock.Locker) *sqllock.Lease {
	e.Helper()
	e.expire(lease.Name())
	taken := e.try(next, lease.Name())
	receive(e, lease.Context().Done(), "the lease is lost")
	return taken
}

func testLossIsTold(e *env) {
	ttl := e.ttl(3 * time.Second)
	l, other := e.locker(&Options{TTL: ttl}), e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	start := time.Now()
	next := e.lose(lease, other)
	if took := time.Since(start); took > ttl-ttl/4 {
		e.Errorf("it was told after %v, which is not the next renewal but the end of the TTL %v", took, ttl)
	}
	lost := e.wantLost("the cause", context.Cause(lease.Context()))
	if lost.Reason != sqllock.LostTaken || lost.Name != lease.Name() || lost.Token != lease.Token() {
		e.Errorf("want the reason %q, got %+v", sqllock.LostTaken, lost)
	}
	if next.Token() <= lease.Token() {
		e.Errorf("token %d follows token %d", next.Token(), lease.Token())
	}
	e.unlock(next)
}

func testLossEverywhere(e *env) {
	l, other := e.locker(&Options{TTL: e.ttl(time.Second)}), e.locker(&Options{TTL: long})
	outer := e.lock(l, e.name("k"))
	inner := e.lockWith(outer.Context(), l, outer.Name())
	bound, cancel := inner.Bind(context.Background())
	defer cancel()
	derived, cancelDerived := context.WithCancel(outer.Context())
	defer cancelDerived()
	next := e.lose(outer, other)
	for what, ctx := range map[string]context.Context{
		"outer": outer.Context(), "inner": inner.Context(), "bound": bound, "derived": derived,
	} {
		receive(e, ctx.Done(), what+" context is done")
		e.wantError(what+" Err", ctx.Err(), context.Canceled)
		e.wantLost(what+" cause", context.Cause(ctx))
	}
	for _, lease := range []*sqllock.Lease{outer, inner} {
		if left := lease.Remaining(); left > 0 {
			e.Errorf("Remaining of a lost lease is %v", left)
		}
		late, cancel := lease.Bind(context.Background())
		e.wantLost("a context that is bound after the loss", context.Cause(late))
		cancel()
		e.wantLost("Unlock", lease.Unlock(e.ctx()))
		e.wantError("second Unlock", lease.Unlock(e.ctx()), sqllock.ErrNotHeld)
		e.wantLost("the cause after Unlock", context.Cause(lease.Context()))
	}
	e.unlock(next)
}

func testLossIsSticky(e *env) {
	ttl := e.ttl(time.Second)
	l, other := e.locker(&Options{TTL: ttl}), e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	e.unlock(e.lose(lease, other))
	// The name is free again, and even the same Locker may get it.
	again := e.try(l, lease.Name())
	for end := time.Now().Add(ttl); time.Now().Before(end); time.Sleep(ttl / 20) {
		if lease.Context().Err() == nil || lease.Remaining() > 0 {
			e.Fatalf("the lost lease is back: Err %v, Remaining %v", lease.Context().Err(), lease.Remaining())
		}
	}
	e.live(again)
	e.unlock(again)
}

func testLostUnlock(e *env) {
	ttl := e.ttl(time.Second)
	l, other := e.locker(&Options{TTL: ttl}), e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	next := e.lose(lease, other)
	e.wantLost("Unlock", lease.Unlock(e.ctx()))
	// Also what is done about it in the background must not.
	for end := time.Now().Add(ttl); time.Now().Before(end); time.Sleep(ttl / 20) {
		e.wantHeld(l, lease.Name())
	}
	if r := e.row(lease.Name()); !r.Held || r.Version != next.Token() {
		e.Errorf("the row is %+v, want version %d held", r, next.Token())
	}
	e.unlock(next)
}

func testUnlockFindsLoss(e *env) {
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	e.expire(lease.Name())
	next := e.try(other, lease.Name())
	e.live(lease) // it cannot know
	e.wantLost("Unlock", lease.Unlock(e.ctx()))
	e.wantHeld(l, lease.Name())
	e.live(next)
	e.unlock(next)
}

// testNoRevival has a lease expire in the database and nobody take it. The holder
// must not go on as if nothing had been: somebody may have been in between.
func testNoRevival(e *env) {
	l := e.locker(&Options{TTL: e.ttl(time.Second)})
	lease := e.lock(l, e.name("k"))
	e.expire(lease.Name())
	receive(e, lease.Context().Done(), "the lease is lost")
	if lost := e.wantLost("the cause", context.Cause(lease.Context())); lost.Reason != sqllock.LostTaken {
		e.Errorf("want the reason %q, got %q", sqllock.LostTaken, lost.Reason)
	}
	if r := e.row(lease.Name()); r.ExpiresAt > 1 && r.Held {
		e.Errorf("the row was revived: %+v", r)
	}
	e.wantLost("Unlock", lease.Unlock(e.ctx()))
	e.unlock(e.lock(l, lease.Name()))
}

func testLossLetsIn(e *env) {
	l, other := e.locker(&Options{TTL: e.ttl(time.Second), RetryMax: 50 * time.Millisecond}), e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	waiting := locking(e.ctx(), l, lease.Name())
	silent(e, waiting, "Lock returned while the name was held")
	e.unlock(e.lose(lease, other))
	next := e.granted(waiting) // though the first holder has not unlocked
	if next.Token() <= lease.Token() {
		e.Errorf("token %d follows token %d", next.Token(), lease.Token())
	}
	e.wantLost("Unlock", lease.Unlock(e.ctx()))
	e.live(next)
	e.unlock(next)
}

func testLossOfOne(e *env) {
	ttl := e.ttl(time.Second)
	l, other := e.locker(&Options{TTL: ttl}), e.locker(&Options{TTL: long})
	var leases []*sqllock.Lease
	for range 5 {
		leases = append(leases, e.lock(l, e.name("k")))
	}
	next := e.lose(leases[2], other)
	time.Sleep(ttl)
	for i, lease := range leases {
		err := lease.Unlock(e.ctx())
		if i == 2 && !errors.Is(err, sqllock.ErrLost) || i != 2 && err != nil {
			e.Errorf("lease %d: Unlock: %v", i, err)
		}
	}
	e.unlock(next)
}
