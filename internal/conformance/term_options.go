package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock"
)

// holdPromises are about the options of a hold, pair by pair.
var termOptionPromises = []promise{
	{sentence: "options of a term that make no sense are refused before any SQL", test: testInvalidTermOptions},
	{sentence: "MinHold keeps the name after an Unlock until it is over, and says until when", test: testMinimumTerm},
	{sentence: "of a fast job on many nodes MinHold lets one run", test: testMinimumTermOnce},
	{sentence: "TTL and MinHold: a holder that crashes keeps the name for the longer of them", test: testMinimumTermCrash, needs: needTable},
	{sentence: "MinHold: the name of a session that was ended is kept until it is over", test: testMinimumTermSession, needs: needSessions},
	{sentence: "TTL and MaxHold: a renewed lease ends with MaxHold, its holder is told, and the next one gets the name", test: testMaximumTerm},
	{sentence: "TTL and LockDelay: the row is kept for both, the holder trusts the TTL", test: testLockDelay, needs: needTable},
	{sentence: "LockDelay: after an Unlock in time the name is free at once", test: testLockDelayUnlock},
	{sentence: "LockDelay: after a loss and an Unlock the name is kept all the same", test: testLockDelayLost},
	{sentence: "MinHold and MaxHold: the holder is told at the one, the name is kept until the other", test: testMinimumAndMaximumTerm},
	{sentence: "MinHold and LockDelay: the delay is for a crash, not for an Unlock", test: testMinimumTermAndLockDelay},
	{sentence: "MaxHold and LockDelay: the delay begins when the term is over, Unlock or not", test: testMaximumTermAndLockDelay},
	{sentence: "Wait, Tries and TryLock take a name that is kept for one that is held", test: testWaitForMinimumTerm},
	{sentence: "a re-entry leaves the options of the lease as they are", test: testReentryKeepsTermOptions},
	{sentence: "a value is shown as long as the row names its holder", test: testValue},
	{sentence: "values of any bytes up to 64 KiB come back as they were", test: testValueBytes},
}

func testInvalidTermOptions(e *env) {
	l, _, recorder := e.unused()
	before := recorder.statements.Load()
	for what, opt := range map[string]sqllock.LockOption{
		"MinHold below 0": sqllock.MinHold(-1), "MinHold over a day": sqllock.MinHold(24*time.Hour + 1),
		"MaxHold 0": sqllock.MaxHold(0), "MaxHold below 0": sqllock.MaxHold(-time.Second), "MaxHold too short": sqllock.MaxHold(100*time.Millisecond - 1),
		"LockDelay below 0": sqllock.LockDelay(-1), "LockDelay over a day": sqllock.LockDelay(24*time.Hour + 1),
		"Value over 64 KiB": sqllock.Value(make([]byte, 64<<10+1)),
	} {
		for call, f := range calls {
			e.wantError(call+" with "+what, f(e.ctx(), l, "k", opt), sqllock.ErrInvalidOption)
		}
	}
	if n := recorder.statements.Load() - before; n != 0 {
		e.Errorf("%d statements were sent", n)
	}
}

func testMinimumTerm(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	minHold := e.ttl(2 * time.Second)
	requested := time.Now()
	lease := e.lock(a, name, sqllock.MinHold(minHold))
	e.unlock(lease)
	for what, l := range map[string]*sqllock.Locker{"the same Locker": a, "another": b} {
		if held := e.wantHeld(l, name); held.Until.IsZero() || held.Owner != "" || held.Label != "" {
			e.Errorf("%s is told of %+v", what, held)
		}
	}
	next := e.lock(b, name)
	if took := time.Since(requested); took < minHold {
		e.Errorf("the next one got the name after %v, before %v were over", took, minHold)
	}
	if next.Token() <= lease.Token() {
		e.Errorf("token %d follows token %d", next.Token(), lease.Token())
	}
	e.unlock(next)
	e.unlock(e.try(a, name)) // of the next one nobody has asked for a minimum
}

func testMinimumTermOnce(e *env) {
	name := e.name("job")
	var ran atomic.Int32
	done := make(chan error)
	const nodes = 5
	for range nodes {
		l := e.locker(&Options{TTL: long})
		go func() {
			_, err := l.TryDo(context.Background(), name, func(context.Context, *sqllock.Lease) error {
				ran.Add(1)
				return nil
			}, sqllock.MinHold(time.Hour))
			done <- err
		}()
	}
	for range nodes {
		if err := receive(e, done, "TryDo returns"); err != nil {
			e.Errorf("TryDo: %v", err)
		}
	}
	if n := ran.Load(); n != 1 {
		e.Errorf("the job ran %d times", n)
	}
}

// kept is for how long after the grant the row keeps a name.
func (e *env) kept(name string) time.Duration {
	e.Helper()
	r := e.row(name)
	return time.Duration(r.ExpiresAt-r.AcquiredAt) * time.Microsecond
}

func (e *env) wantKept(name string, want time.Duration) {
	e.Helper()
	got := e.kept(name)
	if e.h.Nodes > 1 && got > want && got < want+long/4 {
		return // it counts from the first database that has granted the name until most have ended it
	}
	if got != want {
		e.Errorf("the row keeps the name for %v after the grant, want %v", got, want)
	}
}

func testMinimumTermCrash(e *env) {
	l := e.locker(&Options{TTL: long})
	shorter, longer := e.name("shorter"), e.name("longer")
	crashing := e.looseLocker(e.handle(), &Options{TTL: long})
	e.lock(crashing, shorter, sqllock.MinHold(time.Second))
	lease := e.lock(crashing, longer, sqllock.MinHold(2*long))
	if left := lease.Remaining(); left > long {
		e.Errorf("the holder trusts %v of a TTL of %v", left, long)
	}
	e.abandon(crashing)
	e.wantKept(shorter, long)
	e.wantKept(longer, 2*long)
	e.wantHeld(l, longer)
	e.expire(longer)
	e.wantFree(l, longer, timeLimit)
}

func testMinimumTermSession(e *env) {
	e.losable()
	l := e.locker(&Options{TTL: long})
	crashing := e.looseLocker(e.handle(), &Options{TTL: long})
	const minHold = 3 * time.Second
	requested := time.Now()
	lease := e.lock(crashing, e.name("k"), sqllock.MinHold(minHold))
	e.crash(crashing, lease)
	e.warm(l)
	if held := e.wantHeld(l, lease.Name()); held.Until.IsZero() {
		e.Errorf("the HeldError is %+v", held)
	}
	next := e.lock(l, lease.Name())
	if took := time.Since(requested); took < minHold {
		e.Errorf("the next one got the name %v after the grant, before %v were over", took, minHold)
	}
	e.unlock(next)
}

func testMaximumTerm(e *env) {
	ttl := e.ttl(2 * time.Second)
	l, other := e.locker(&Options{TTL: ttl}), e.locker(&Options{TTL: long})
	name := e.name("k")
	maxHold := ttl*2 + ttl/2
	before := time.Now()
	lease := e.lock(l, name, sqllock.MaxHold(maxHold))
	next := locking(e.ctx(), other, name)
	<-lease.Context().Done()
	if held := time.Since(before); held < maxHold-ttl/10-50*time.Millisecond || held > maxHold+timeLimit/4 {
		e.Errorf("the holder was told after %v, with a MaxHold of %v", held, maxHold)
	}
	if lost := e.wantLost("the context", context.Cause(lease.Context())); lost.Reason != sqllock.LostMaxHold {
		e.Errorf("the reason is: %s", lost.Reason)
	}
	successor := e.granted(next)
	if took := time.Since(before); took < maxHold-ttl/10-50*time.Millisecond {
		e.Errorf("the next one got the name after %v", took)
	}
	e.wantLost("Unlock", lease.Unlock(e.ctx()))
	e.live(successor)
	e.unlock(successor)
	for round := 1; !e.handsOverShortly(other, name); round++ { // a slow machine can be too late
		if round == 5 {
			e.Fatal("a lease that the same Locker hands over is over when Lock returns, five times")
		}
	}
}

// handsOverShortly has a Locker hand a name over to itself, for a short MaxHold. It reports whether
// the next holder had time.
func (e *env) handsOverShortly(l *sqllock.Locker, name string) bool {
	e.Helper()
	first := e.lock(l, name)
	waiting := locking(e.ctx(), l, name, sqllock.MaxHold(200*time.Millisecond))
	silent(e, waiting, "Lock returned while the name was held")
	e.unlock(first)
	r := receive(e, waiting, "Lock returns")
	if r.err != nil {
		e.wantLost("Lock", r.err)
		return false
	}
	defer func() { _ = r.lease.Unlock(e.ctx()) }()
	return r.lease.Remaining() > 100*time.Millisecond
}

func testLockDelay(e *env) {
	ttl := e.ttl(2 * time.Second)
	l := e.locker(&Options{TTL: ttl})
	lease := e.lock(l, e.name("k"), sqllock.LockDelay(time.Hour))
	if left := lease.Remaining(); left > ttl {
		e.Errorf("the holder trusts %v of a TTL of %v", left, ttl)
	}
	e.wantKept(lease.Name(), ttl+time.Hour)
	e.eventually(timeLimit, "a renewal keeps the delay", func() bool { return e.kept(lease.Name()) > ttl+time.Hour+ttl/4 })
	if left := lease.Remaining(); left > ttl {
		e.Errorf("after a renewal the holder trusts %v of a TTL of %v", left, ttl)
	}
	e.unlock(lease)
}

func testLockDelayUnlock(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	lease := e.lock(a, e.name("k"), sqllock.LockDelay(time.Hour))
	e.unlock(lease)
	e.unlock(e.try(b, lease.Name()))
}

func testLockDelayLost(e *env) {
	e.losable()
	ttl := e.ttl(2 * time.Second)
	l, other := e.locker(&Options{TTL: ttl}), e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"), sqllock.LockDelay(time.Hour))
	unpin := func() {}
	if e.inSessions() {
		e.kill()
	} else {
		unpin = e.pin(lease.Name()) // nothing can be renewed
	}
	receive(e, lease.Context().Done(), "the lease is lost")
	unpin()
	e.wantLost("Unlock", lease.Unlock(e.ctx()))
	time.Sleep(300 * time.Millisecond)
	e.warm(other)
	e.wantHeld(other, lease.Name())
}

func testMinimumAndMaximumTerm(e *env) {
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	maxHold := e.ttl(500 * time.Millisecond)
	minHold := 3 * maxHold
	before := time.Now()
	lease := e.lock(l, name, sqllock.MinHold(minHold), sqllock.MaxHold(maxHold))
	<-lease.Context().Done()
	if lost := e.wantLost("Unlock", lease.Unlock(e.ctx())); lost.Reason != sqllock.LostMaxHold {
		e.Errorf("the reason is: %s", lost.Reason)
	}
	next := e.lock(other, name)
	if took := time.Since(before); took < minHold-50*time.Millisecond {
		e.Errorf("the next one got the name after %v, want %v", took, minHold)
	}
	e.unlock(next)
}

func testMinimumTermAndLockDelay(e *env) {
	l := e.locker(&Options{TTL: long})
	unlocked, crashed := e.name("unlocked"), e.name("crashed")
	e.unlock(e.lock(l, unlocked, sqllock.MinHold(time.Second), sqllock.LockDelay(time.Hour)))
	e.unlock(e.lock(l, unlocked)) // long before the delay would be over
	if e.inSessions() {
		return // what is kept of a crash is another promise
	}

	crashing := e.looseLocker(e.handle(), &Options{TTL: long})
	e.lock(crashing, crashed, sqllock.MinHold(2*long), sqllock.LockDelay(time.Hour))
	e.abandon(crashing)
	e.wantKept(crashed, 2*long+time.Hour)
}

func testMaximumTermAndLockDelay(e *env) {
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	maxHold, delay := e.ttl(300*time.Millisecond), e.ttl(2*time.Second)
	before := time.Now()
	lease := e.lock(l, name, sqllock.MaxHold(maxHold), sqllock.LockDelay(delay))
	<-lease.Context().Done()
	e.wantLost("Unlock", lease.Unlock(e.ctx()))
	next := e.lock(other, name)
	// The holder lets go earlier by the margin for clocks of different rates.
	if took, least := time.Since(before), maxHold-maxHold/100-50*time.Millisecond+delay; took < least {
		e.Errorf("the next one got the name after %v, want %v", took, least)
	}
	e.unlock(next)
}

func testWaitForMinimumTerm(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	e.unlock(e.lock(a, name, sqllock.MinHold(time.Hour)))
	lease, err := b.Lock(e.ctx(), name, sqllock.Tries(2))
	e.oneOf(lease, err)
	for what, err := range map[string]error{"Tries": err, "Wait": e.waitInVain(b, name)} {
		var held *sqllock.HeldError
		if !errors.As(err, &held) || time.Until(held.Until) < 30*time.Minute {
			e.Errorf("%s: want a HeldError that says until when, got %v", what, err)
		}
	}
	if _, err := b.ForceUnlock(e.ctx(), name); err != nil {
		e.Errorf("ForceUnlock of a name that is kept: %v", err)
	}
	e.unlock(e.lock(b, name)) // the last request of a wait may just end
}

func testReentryKeepsTermOptions(e *env) {
	l := e.locker(&Options{TTL: long})
	outer := e.lock(l, e.name("k"), sqllock.Value([]byte("outer")))
	opts := []sqllock.LockOption{sqllock.MaxHold(100 * time.Millisecond), sqllock.LockDelay(time.Hour),
		sqllock.MinHold(time.Hour), sqllock.Value([]byte("inner"))}
	if !e.inSessions() {
		opts = append(opts, sqllock.TTL(time.Hour))
	}
	inner := e.lockWith(outer.Context(), l, outer.Name(), opts...)
	if !e.inSessions() {
		e.wantKept(outer.Name(), long)
	}
	time.Sleep(200 * time.Millisecond)
	e.live(inner)
	if info := e.inspect(l, outer.Name()); string(info.Value) != "outer" {
		e.Errorf("the value is %q", info.Value)
	}
	e.unlock(inner)
	e.unlock(outer)
	e.unlock(e.try(l, outer.Name()))
}

func testValue(e *env) {
	e.losable()
	l := e.locker(&Options{TTL: long})
	name := e.name("k")
	shows := func(when, want string) {
		e.Helper()
		if info := e.inspect(l, name); string(info.Value) != want {
			e.Errorf("%s the value is %q, want %q", when, info.Value, want)
		}
	}
	lease := e.lock(l, name, sqllock.Value([]byte("first")))
	shows("while it is held", "first")
	e.unlock(lease)
	shows("after an Unlock", "")

	crashing := e.looseLocker(e.handle(), &Options{TTL: long})
	e.crash(crashing, e.lock(crashing, name, sqllock.Value([]byte("second"))))
	shows("when the lease has expired", "second")
	lease = e.lock(l, name)
	shows("while the next one holds the name", "")
	e.unlock(lease)

	lease = e.lock(l, name, sqllock.Value([]byte("third")))
	if info, err := l.ForceUnlock(e.ctx(), name); err != nil || string(info.Value) != "third" {
		e.Errorf("ForceUnlock = %+v, %v", info, err)
	}
	e.wantLost("Unlock", lease.Unlock(e.ctx()))
	shows("after a ForceUnlock", "")
}

func testValueBytes(e *env) {
	l := e.locker(&Options{TTL: long})
	every := make([]byte, 64<<10)
	for i := range every {
		every[i] = byte(i + i>>8)
	}
	for _, value := range [][]byte{nil, {}, {0}, []byte(`\x00'"\`), []byte("\xff\xfe"), every} {
		lease := e.lock(l, e.name("k"), sqllock.Value(value))
		if info := e.inspect(l, lease.Name()); !bytes.Equal(info.Value, value) {
			e.Errorf("a value of %d bytes came back as one of %d: %s", len(value), len(info.Value), fmt.Sprintf("%.20q", info.Value))
		}
		e.unlock(lease)
	}
}
