package conformance

import (
	"context"
	"errors"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/sqllock/sqllock"
)

var closePromises = []promise{
	{sentence: "a closed Locker refuses every call", test: testClosed},
	{sentence: "Close ends those who wait", test: testCloseEndsWaiters},
	{sentence: "Close cancels the leases with ErrClosed and waits for their holders", test: testCloseWaits},
	{sentence: "Close keeps renewing what it waits for", test: testCloseRenews},
	{sentence: "Close gives up when its context ends and frees no name under running code", test: testCloseGivesUp},
	{sentence: "Unlock after Close gave up does no harm", test: testUnlockAfterClose},
	{sentence: "Close may be called twice and at once", test: testCloseTwice},
	{sentence: "Close right after a Lock that was cancelled leaves the name free", test: testCloseAfterCancel, quiet: true},
	{sentence: "Close leaves the handle open, no connection in use and no goroutine", test: testCloseLeavesNothing, quiet: true},
}

func testClosed(e *env) {
	db, recorder := e.open(e.source(), poolSize)
	l := e.looseLocker(db, &Options{TTL: long})
	if err := l.Close(e.ctx()); err != nil {
		e.Fatalf("Close: %v", err)
	}
	before := recorder.statements.Load()
	for call, f := range calls {
		e.wantError(call, f(e.ctx(), l, e.name("k")), sqllock.ErrClosed)
	}
	if n := recorder.statements.Load() - before; n != 0 {
		e.Errorf("%d statements were sent", n)
	}
	if err := db.PingContext(e.ctx()); err != nil {
		e.Errorf("the application's handle does not work any more: %v", err)
	}
}

func testCloseEndsWaiters(e *env) {
	holder := e.locker(&Options{TTL: long})
	lease := e.lock(holder, e.name("k"))
	l := e.looseLocker(e.handle(), &Options{TTL: long, RetryMin: time.Hour, RetryMax: time.Hour})
	var waiting []<-chan result
	for range 3 { // the head of the queue and others
		waiting = append(waiting, locking(e.ctx(), l, lease.Name()))
	}
	for _, ch := range waiting {
		silent(e, ch, "Lock returned while the name was held")
	}
	if err := l.Close(e.ctx()); err != nil {
		e.Errorf("Close: %v", err)
	}
	for _, ch := range waiting {
		r := receive(e, ch, "Lock returns")
		e.oneOf(r.lease, r.err)
		e.wantError("Lock", r.err, sqllock.ErrClosed)
	}
	e.live(lease)
	e.unlock(lease)
	e.gone(holder, lease.Name()) // none of them took it
}

// closing calls Close on a goroutine of its own.
func closing(ctx context.Context, l *sqllock.Locker) <-chan error {
	ch := make(chan error, 1)
	go func() { ch <- l.Close(ctx) }()
	return ch
}

func testCloseWaits(e *env) {
	other := e.locker(&Options{TTL: long})
	l := e.looseLocker(e.handle(), &Options{TTL: long})
	outer := e.lock(l, e.name("k"))
	inner := e.lockWith(outer.Context(), l, outer.Name())
	closed := closing(e.ctx(), l)
	for _, lease := range []*sqllock.Lease{outer, inner} {
		receive(e, lease.Context().Done(), "the lease's context is done")
		e.wantError("the cause", context.Cause(lease.Context()), sqllock.ErrClosed)
		if lease.Remaining() <= 0 {
			e.Error("the lease is not held any more, though nobody has unlocked it")
		}
		e.wantHeld(other, outer.Name())
		silent(e, closed, "Close returned while a lease was held")
		if err := lease.Unlock(e.ctx()); err != nil {
			e.Errorf("Unlock during Close: %v", err)
		}
	}
	if err := receive(e, closed, "Close returns"); err != nil {
		e.Errorf("Close: %v", err)
	}
	e.unlock(e.try(other, outer.Name()))
}

func testCloseRenews(e *env) {
	ttl := e.ttl(2 * time.Second)
	other := e.locker(&Options{TTL: long})
	l := e.looseLocker(e.handle(), &Options{TTL: ttl})
	lease := e.lock(l, e.name("k"))
	closed := closing(e.ctx(), l)
	for end := time.Now().Add(2 * ttl); time.Now().Before(end); time.Sleep(ttl / 20) {
		e.wantHeld(other, lease.Name())
		if lease.Remaining() <= 0 {
			e.Fatal("the lease ran out while Close waited for its holder")
		}
	}
	e.unlock(lease)
	if err := receive(e, closed, "Close returns"); err != nil {
		e.Errorf("Close: %v", err)
	}
}

func testCloseGivesUp(e *env) {
	ttl := e.ttl(2 * time.Second)
	other := e.locker(&Options{TTL: long})
	l := e.looseLocker(e.handle(), &Options{TTL: ttl})
	lease := e.lock(l, e.name("k"))
	const wait = 200 * time.Millisecond
	start := time.Now() // before the context begins, else Close may seem to end before it
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	err := l.Close(ctx)
	if took := time.Since(start); took < wait || took > timeLimit/2 {
		e.Errorf("Close took %v with a context of %v", took, wait)
	}
	e.wantError("Close", err, context.DeadlineExceeded)
	left := lease.Remaining()
	start = time.Now()
	if left <= 0 {
		e.Error("the lease is over, though its holder still runs")
	}
	for time.Since(start) < left-ttl/4 {
		e.wantHeld(other, lease.Name())
		time.Sleep(ttl / 20)
	}
	e.wantFree(other, lease.Name(), ttl+time.Second)
	if left := lease.Remaining(); left > 0 {
		e.Errorf("the name was free while Remaining was %v", left)
	}
}

func testUnlockAfterClose(e *env) {
	ttl := e.ttl(2 * time.Second)
	other := e.locker(&Options{TTL: long})
	l := e.looseLocker(e.handle(), &Options{TTL: ttl})
	lease := e.lock(l, e.name("k"))
	e.abandon(l)
	start := time.Now()
	if err := lease.Unlock(e.ctx()); errors.Is(err, sqllock.ErrNotHeld) {
		e.Errorf("Unlock: %v", err)
	}
	if took := time.Since(start); took > timeLimit/2 {
		e.Errorf("Unlock took %v", took)
	}
	e.wantError("second Unlock", lease.Unlock(e.ctx()), sqllock.ErrNotHeld)
	e.wantFree(other, lease.Name(), ttl+time.Second)
}

func testCloseTwice(e *env) {
	l := e.looseLocker(e.handle(), &Options{TTL: long, Hooks: &sqllock.Hooks{Acquired: func(sqllock.AcquiredEvent) {}}})
	lease := e.lock(l, e.name("k"))
	first, second := closing(e.ctx(), l), closing(e.ctx(), l)
	silent(e, first, "Close returned while a lease was held")
	silent(e, second, "Close returned while a lease was held")
	e.unlock(lease)
	for _, ch := range []<-chan error{first, second, closing(e.ctx(), l)} {
		if err := receive(e, ch, "Close returns"); err != nil {
			e.Errorf("Close: %v", err)
		}
	}
}

// testCloseAfterCancel is what a program does that gives up and ends. The TTL is
// long: what is free in time did not expire.
func testCloseAfterCancel(e *env) {
	other := e.locker(&Options{TTL: long})
	const rounds = 30
	for i := range rounds {
		l := e.looseLocker(e.handle(), &Options{TTL: long})
		e.warm(l)
		name := e.name("k")
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*2*e.h.pace/rounds)
		lease, err := l.Lock(ctx, name)
		cancel()
		e.oneOf(lease, err)
		if err == nil {
			e.unlock(lease)
		}
		if err := l.Close(e.ctx()); err != nil {
			e.Errorf("Close: %v", err)
		}
		e.wantFree(other, name, timeLimit/4)
	}
}

func testCloseLeavesNothing(e *env) {
	db, _ := e.open(e.source(), poolSize)
	l := e.looseLocker(db, &Options{TTL: e.ttl(2 * time.Second), Hooks: &sqllock.Hooks{Unlocked: func(sqllock.UnlockedEvent) {}}})
	holder := e.locker(&Options{TTL: long})
	held := e.lock(holder, e.name("held"))
	for range 5 {
		lease := e.lock(l, e.name("k"))
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		_, err := l.Lock(ctx, held.Name())
		e.wantError("Lock", err, context.DeadlineExceeded)
		cancel()
		e.unlock(lease)
	}
	kept := e.lock(l, e.name("kept"))
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := l.Close(ctx); err == nil {
		e.Error("Close returned nil though a lease was held")
	}
	e.unlock(held)
	if e.inSessions() { // the session is left to the lease, until that is over
		e.eventually(kept.Remaining()+2*time.Second, "no connection is in use", func() bool { return db.Stats().InUse == 0 })
	} else if n := db.Stats().InUse; n != 0 {
		e.Errorf("%d connections are in use after Close", n)
	}
	if err := db.PingContext(e.ctx()); err != nil {
		e.Errorf("the application's handle does not work any more: %v", err)
	}
	_ = holder.Close(e.ctx())
	e.wantGoroutines(0)
}

// lockerFunction is on the stack of every goroutine that a Locker started: a function
// of its package, or of one that works for it.
var lockerFunction = regexp.MustCompile(`github\.com/sqllock/sqllock(/internal/(batch|session|sqlconn))?\.`)

// lockerGoroutines are the stacks of the goroutines of Lockers that there are in this process.
func lockerGoroutines() (stacks []string) {
	buf := make([]byte, 4<<20)
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if lockerFunction.MatchString(stack) {
			stacks = append(stacks, stack)
		}
	}
	return stacks
}

// wantGoroutines waits until Lockers have no more than so many goroutines.
func (e *env) wantGoroutines(most int) {
	e.Helper()
	stacks := lockerGoroutines()
	for end := time.Now().Add(timeLimit); len(stacks) > most; stacks = lockerGoroutines() {
		if time.Now().After(end) {
			e.Fatalf("Lockers have %d goroutines, want %d:\n%s", len(stacks), most, strings.Join(stacks, "\n\n"))
		}
		time.Sleep(5 * time.Millisecond)
	}
}
