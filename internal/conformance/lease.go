package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/sqllock/sqllock"
)

var leasePromises = []promise{
	{sentence: "a lease outlives several TTLs while it is held", test: testRenewal},
	{sentence: "Remaining is positive, never more than the TTL, and grows with each renewal", test: testRemaining},
	{sentence: "a lease that is not renewed any more frees its name when it expires", test: testExpiry},
	{sentence: "many leases of different TTLs are all renewed", test: testMixedTTLs, needs: needLeases},
	{sentence: "the row says who holds, since when, and the token", test: testRow, needs: needTable},
	{sentence: "releasing keeps the row and its version", test: testReleaseKeepsRow, needs: needTable},
	{sentence: "renewal and re-entry keep the version", test: testRenewalKeepsVersion, needs: needTable},
	{sentence: "a renewal never shortens a lease", test: testRenewalNeverShortens, needs: needTable},
}

func testRenewal(e *env) {
	ttl := e.ttl(2 * time.Second)
	l, other := e.locker(&Options{TTL: ttl}), e.locker(&Options{TTL: ttl})
	lease := e.lock(l, e.name("k"))
	for end := time.Now().Add(3*ttl + ttl/2); time.Now().Before(end); time.Sleep(ttl / 20) {
		e.live(lease)
		e.wantHeld(other, lease.Name())
	}
	e.unlock(lease)
	e.unlock(e.try(other, lease.Name()))
}

func testRemaining(e *env) {
	ttl := e.ttl(2 * time.Second)
	l := e.locker(&Options{TTL: ttl})
	lease := e.lock(l, e.name("k"))
	rises, last := 0, lease.Remaining()
	for end := time.Now().Add(2*ttl + ttl/2); time.Now().Before(end); time.Sleep(ttl / 50) {
		left := lease.Remaining()
		if left <= 0 || left > ttl {
			e.Fatalf("Remaining is %v of a TTL of %v", left, ttl)
		}
		if left > last {
			rises++
		}
		last = left
	}
	if rises < 2 {
		e.Errorf("it rose %d times in two and a half TTLs", rises)
	}
	e.unlock(lease)
	if left := lease.Remaining(); left > 0 {
		e.Errorf("Remaining is %v after Unlock", left)
	}
}

func testExpiry(e *env) {
	ttl := e.ttl(2 * time.Second)
	crashing := e.looseLocker(e.handle(), &Options{TTL: ttl})
	other := e.locker(&Options{TTL: ttl})
	name := e.name("k")
	lease := e.lock(crashing, name)
	left := lease.Remaining()
	start := time.Now()
	e.abandon(crashing)
	take := func() error {
		next, err := other.TryLock(e.ctx(), name)
		e.oneOf(next, err)
		if err != nil {
			return err
		}
		if took := time.Since(start); took < left {
			e.Errorf("the name was taken after %v, when its holder could believe in it for %v", took, left)
		}
		if next.Token() <= lease.Token() {
			e.Errorf("token %d follows token %d", next.Token(), lease.Token())
		}
		e.unlock(next)
		return nil
	}
	free := false // early, if this process was paused before it sent a request
	for !free && time.Since(start) < left-ttl/4 {
		err := take()
		var held *sqllock.HeldError
		if free = err == nil; !free && (!errors.As(err, &held) || !errors.Is(err, sqllock.ErrHeld)) {
			e.Fatalf("TryLock of a held name: want a *HeldError that is an ErrHeld, got %v", err)
		}
		time.Sleep(ttl / 20)
	}
	e.eventually(ttl+time.Second, "the name is free", func() bool { return free || take() == nil })
	e.wantLost("Unlock of the lease that expired", lease.Unlock(e.ctx()))
}

func testMixedTTLs(e *env) {
	short := e.ttl(2 * time.Second)
	l := e.locker(&Options{TTL: short})
	var leases []*sqllock.Lease
	for i := range 40 {
		leases = append(leases, e.lock(l, e.name("k"), sqllock.TTL(short*time.Duration(1+i%4))))
	}
	for end := time.Now().Add(3 * short); time.Now().Before(end); time.Sleep(short / 10) {
		for _, lease := range leases {
			e.live(lease)
		}
	}
	for _, lease := range leases {
		e.unlock(lease)
	}
}

func testRow(e *env) {
	l := e.locker(&Options{TTL: long, Label: "host/program/42"})
	lease := e.lockWith(sqllock.WithOwner(e.ctx(), "job-7"), l, e.name("k"))
	r := e.row(lease.Name())
	if !r.Held || r.Owner != "job-7" || r.Label != "host/program/42" || r.Version != lease.Token() || r.Holds != 1 {
		e.Errorf("the row of the lease with token %d is %+v", lease.Token(), r)
	}
	if d := time.Duration(r.ExpiresAt-r.AcquiredAt) * time.Microsecond; d < long-time.Second || d > long+time.Second {
		e.Errorf("it expires %v after it was acquired, want about %v", d, long)
	}
	e.unlock(lease)

	lease = e.lock(l, lease.Name())
	if r := e.row(lease.Name()); r.Owner != lease.Owner() {
		e.Errorf("the row's owner is %q, the lease's %q", r.Owner, lease.Owner())
	}
	e.unlock(lease)
}

func testReleaseKeepsRow(e *env) {
	l := e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	e.unlock(lease)
	r := e.row(lease.Name()) // fails if there is none
	if r.Held || r.Version != lease.Token() || r.Holds != 0 || r.Owner != "" {
		e.Errorf("the row of a name that was released at version %d is %+v", lease.Token(), r)
	}
}

func testRenewalKeepsVersion(e *env) {
	ttl := e.ttl(2 * time.Second)
	l := e.locker(&Options{TTL: ttl})
	lease := e.lock(l, e.name("k"))
	was := e.row(lease.Name())
	e.eventually(timeLimit, "the lease is renewed", func() bool { return e.row(lease.Name()).ExpiresAt > was.ExpiresAt })
	again := e.lockWith(lease.Context(), l, lease.Name())
	is := e.row(lease.Name())
	if is.Version != lease.Token() || lease.Token() != was.Version || is.AcquiredAt != was.AcquiredAt {
		e.Errorf("token %d: the row was %+v and is %+v", lease.Token(), was, is)
	}
	e.unlock(again)
	e.unlock(lease)
}

func testRenewalNeverShortens(e *env) {
	ttl := e.ttl(2 * time.Second)
	l := e.locker(&Options{TTL: ttl})
	lease := e.lock(l, e.name("k"))
	if err := e.h.Table.Stretch(e.ctx(), e.handle(), lease.Name()); err != nil {
		e.Fatal(err)
	}
	was := e.row(lease.Name())
	again := e.lockWith(lease.Context(), l, lease.Name())
	e.eventually(timeLimit, "the lease is renewed", func() bool { return e.row(lease.Name()).Holds == 2 })
	if is := e.row(lease.Name()); is.ExpiresAt < was.ExpiresAt {
		e.Errorf("it expired at %d and expires at %d", was.ExpiresAt, is.ExpiresAt)
	}
	if left := lease.Remaining(); left > ttl {
		e.Errorf("Remaining is %v, more than the TTL", left)
	}
	e.unlock(again)
	e.unlock(lease)
}

var contextPromises = []promise{
	{sentence: "cancelling the context of Lock after it returned changes nothing", test: testAcquireContext},
	{sentence: "the lease's context carries the values of the context of Lock", test: testContextValues},
	{sentence: "after Unlock the lease's context is cancelled with cause ErrUnlocked", test: testUnlockedCause},
	{sentence: "Bind ends with the lease", test: testBindLease},
	{sentence: "Bind ends with the other context and leaves the lease alone", test: testBindContext},
}

type testKey struct{}

func testAcquireContext(e *env) {
	ttl := e.ttl(2 * time.Second)
	l, other := e.locker(&Options{TTL: ttl}), e.locker(&Options{TTL: ttl})
	ctx, cancel := context.WithTimeout(context.Background(), timeLimit)
	lease := e.lockWith(ctx, l, e.name("k"))
	cancel()
	if _, ok := lease.Context().Deadline(); ok {
		e.Error("the lease's context has the deadline of the acquisition")
	}
	for end := time.Now().Add(ttl + ttl/2); time.Now().Before(end); time.Sleep(ttl / 20) {
		e.live(lease)
	}
	e.wantHeld(other, lease.Name())
	e.unlock(lease)
}

func testContextValues(e *env) {
	l := e.locker(&Options{TTL: long})
	lease := e.lockWith(context.WithValue(e.ctx(), testKey{}, "from Lock"), l, e.name("k"))
	if v := lease.Context().Value(testKey{}); v != "from Lock" {
		e.Errorf("the value is %v", v)
	}
	bound, cancel := lease.Bind(context.WithValue(e.ctx(), testKey{}, "from Bind"))
	defer cancel()
	if v := bound.Value(testKey{}); v != "from Bind" {
		e.Errorf("the value of the bound context is %v", v)
	}
	e.unlock(lease)
}

func testUnlockedCause(e *env) {
	l := e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	derived, cancel := context.WithCancel(lease.Context())
	defer cancel()
	e.live(lease)
	e.unlock(lease)
	for what, ctx := range map[string]context.Context{"the lease's": lease.Context(), "a derived": derived} {
		receive(e, ctx.Done(), what+" context is done")
		e.wantError(what+" context's Err", ctx.Err(), context.Canceled)
		e.wantError(what+" context's cause", context.Cause(ctx), sqllock.ErrUnlocked)
	}
}

func testBindLease(e *env) {
	l := e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	bound, cancel := lease.Bind(context.Background())
	defer cancel()
	if err := bound.Err(); err != nil {
		e.Errorf("Err of a bound context while the lease is held: %v", err)
	}
	e.unlock(lease)
	receive(e, bound.Done(), "the bound context is done")
	e.wantError("cause of the bound context", context.Cause(bound), sqllock.ErrUnlocked)

	late, cancelLate := lease.Bind(context.Background())
	defer cancelLate()
	e.wantError("cause of a context that is bound after the lease", context.Cause(late), sqllock.ErrUnlocked)
	receive(e, late.Done(), "it is done")
}

func testBindContext(e *env) {
	l := e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	ctx, end := context.WithCancelCause(context.Background())
	bound, cancel := lease.Bind(ctx)
	defer cancel()
	end(context.DeadlineExceeded)
	receive(e, bound.Done(), "the bound context is done")
	e.wantError("cause of the bound context", context.Cause(bound), context.DeadlineExceeded)
	e.live(lease)

	given, cancelGiven := lease.Bind(context.Background())
	cancelGiven()
	e.wantError("a bound context that was given back", given.Err(), context.Canceled)
	e.live(lease)
	e.unlock(lease)
}
