package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/sqllock/sqllock"
)

var lossPromises = []promise{
	{sentence: "a lease that the database does not know any more is lost at the next renewal", test: testLossIsReported},
	{sentence: "a loss is seen in every way in which one can look", test: testLossEverywhere},
	{sentence: "loss is sticky", test: testLossIsSticky},
	{sentence: "the holder of a lost lease frees nobody else's", test: testLostUnlock},
	{sentence: "Unlock tells of a loss that no renewal has found yet", test: testUnlockFindsLoss},
	{sentence: "a renewal revives no lease that has expired", test: testNoRevival, needs: needTable},
	{sentence: "a lost lease makes way for others of the same process", test: testLossLetsIn},
	{sentence: "the loss of one lease does not touch the others", test: testLossOfOne},
}

// lose makes a lease of a test that is losable lost by giving its name to next. The
// TTL of the lease must be short.
func (e *env) lose(lease *sqllock.Lease, next *sqllock.Locker) *sqllock.Lease {
	e.Helper()
	e.over(lease)
	taken := e.lock(next, lease.Name())
	receive(e, lease.Context().Done(), "the lease is lost")
	return taken
}

func testLossIsReported(e *env) {
	e.losable()
	ttl := e.ttl(9 * time.Second)
	l, other := e.locker(&Options{TTL: ttl}), e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	start := time.Now()
	next := e.lose(lease, other)
	if took := time.Since(start); took > ttl-ttl/4 {
		e.Errorf("it was reported after %v, which is not the next renewal but the end of the TTL %v", took, ttl)
	}
	lost := e.wantLost("the cause", context.Cause(lease.Context()))
	e.wantReason(lost)
	if lost.Name != lease.Name() || lost.Token != lease.Token() {
		e.Errorf("the LostError of %q with token %d is %+v", lease.Name(), lease.Token(), lost)
	}
	if next.Token() <= lease.Token() {
		e.Errorf("token %d follows token %d", next.Token(), lease.Token())
	}
	e.unlock(next)
}

func testLossEverywhere(e *env) {
	e.losable()
	l, other := e.locker(&Options{TTL: e.ttl(2 * time.Second)}), e.locker(&Options{TTL: long})
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
	e.losable()
	ttl := e.ttl(2 * time.Second)
	l, other := e.locker(&Options{TTL: ttl}), e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	e.unlock(e.lose(lease, other))
	// The name is free again, and even the same Locker may get it.
	again := e.lock(l, lease.Name())
	for end := time.Now().Add(ttl); time.Now().Before(end); time.Sleep(ttl / 20) {
		if lease.Context().Err() == nil || lease.Remaining() > 0 {
			e.Fatalf("the lost lease is back: Err %v, Remaining %v", lease.Context().Err(), lease.Remaining())
		}
	}
	e.live(again)
	e.unlock(again)
}

func testLostUnlock(e *env) {
	e.losable()
	ttl := e.ttl(2 * time.Second)
	l, other := e.locker(&Options{TTL: ttl}), e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	next := e.lose(lease, other)
	e.wantLost("Unlock", lease.Unlock(e.ctx()))
	// Also what is done about it in the background must not.
	for end := time.Now().Add(ttl); time.Now().Before(end); time.Sleep(ttl / 20) {
		e.wantHeld(l, lease.Name())
	}
	if held := e.known(l, lease.Name()); held.Owner != next.Owner() {
		e.Errorf("%q holds the name, want %q", held.Owner, next.Owner())
	}
	e.live(next)
	e.unlock(next)
}

func testUnlockFindsLoss(e *env) {
	e.losable()
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	e.over(lease)
	next := e.lock(other, lease.Name())
	if !e.inSessions() {
		e.live(lease) // it cannot know
	}
	e.wantLost("Unlock", lease.Unlock(e.ctx()))
	e.wantHeld(l, lease.Name())
	e.live(next)
	e.unlock(next)
}

// testNoRevival has a lease expire in the database and nobody take it. The holder
// must not go on as if nothing had been: somebody may have been in between.
func testNoRevival(e *env) {
	l := e.locker(&Options{TTL: e.ttl(2 * time.Second)})
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
	e.losable()
	l := e.locker(&Options{TTL: e.ttl(2 * time.Second), RetryMax: 50 * time.Millisecond})
	lease := e.lock(l, e.name("k"))
	waiting := locking(e.ctx(), l, lease.Name())
	silent(e, waiting, "Lock returned while the name was held")
	e.over(lease)
	next := e.granted(waiting) // though the first holder has not unlocked
	if next.Token() <= lease.Token() {
		e.Errorf("token %d follows token %d", next.Token(), lease.Token())
	}
	e.wantLost("Unlock", lease.Unlock(e.ctx()))
	e.live(next)
	e.unlock(next)
}

func testLossOfOne(e *env) {
	ttl := e.ttl(2 * time.Second)
	l, other := e.locker(&Options{TTL: ttl}), e.locker(&Options{TTL: long})
	var leases []*sqllock.Lease
	for range 5 {
		leases = append(leases, e.lock(l, e.name("k")))
	}
	next := e.loseOne(leases[2], other)
	time.Sleep(ttl)
	for i, lease := range leases {
		err := lease.Unlock(e.ctx())
		if i == 2 && !errors.Is(err, sqllock.ErrLost) || i != 2 && err != nil {
			e.Errorf("lease %d: Unlock: %v", i, err)
		}
	}
	e.unlock(next)
}

// loseOne is lose for a lease beside others of its Locker, in any test.
func (e *env) loseOne(lease *sqllock.Lease, next *sqllock.Locker) *sqllock.Lease {
	e.Helper()
	if !e.inSessions() {
		return e.lose(lease, next)
	}
	e.known(next, lease.Name())
	if _, err := next.ForceUnlock(e.ctx(), lease.Name()); err != nil {
		e.Fatalf("ForceUnlock: %v", err)
	}
	return e.forced(next, lease.Name())
}
