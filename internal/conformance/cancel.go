package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sqllock/sqllock"
)

var cancelPromises = []promise{
	{sentence: "a context that is cancelled already gets nothing and asks nothing", test: testCancelledBefore},
	{sentence: "a context that ends during the wait ends it promptly and says so", test: testCancelledWhileWaiting},
	{sentence: "a deadline that passes during the wait ends it with DeadlineExceeded", test: testDeadlineWhileWaiting},
	{sentence: "the error of a wait says what was waited for, and the cause", test: testWaitErrorSaysWhat},
	{sentence: "a cancelled Lock leaves the name free, whenever it is cancelled", test: testCancelledLeavesNothing, quiet: true},
	{sentence: "one caller's cancellation fails no neighbour", test: testCancelNeighbours},
}

func testCancelledBefore(e *env) {
	db, recorder := e.open(e.source(), poolSize)
	l := e.lockerOn(db, &Options{TTL: long})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	late, cancelLate := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancelLate()
	name := e.name("k")
	before := recorder.statements.Load()
	for call, f := range calls {
		e.wantError(call+" with a cancelled context", f(ctx, l, name), context.Canceled)
		e.wantError(call+" past its deadline", f(late, l, name), context.DeadlineExceeded)
	}
	if n := recorder.statements.Load() - before; n != 0 {
		e.Errorf("%d statements were sent", n)
	}
	e.unlock(e.try(l, name))
}

func testCancelledWhileWaiting(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	lease := e.lock(a, name)
	for what, l := range map[string]*sqllock.Locker{"the same Locker": a, "another Locker": b} {
		ctx, cancel := context.WithCancel(context.Background())
		waiting := locking(ctx, l, name)
		silent(e, waiting, "Lock returned while the name was held")
		start := time.Now()
		cancel()
		r := receive(e, waiting, "a cancelled Lock returns")
		e.oneOf(r.lease, r.err)
		e.wantError(what, r.err, context.Canceled)
		if took := time.Since(start); took > 2*time.Second+slack() {
			e.Errorf("%s: it took %v to hear of the cancellation", what, took)
		}
	}
	e.live(lease)
	e.unlock(lease)
	e.gone(b, name)
	e.gone(a, name)
}

func testDeadlineWhileWaiting(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	lease := e.lock(a, name)
	for what, l := range map[string]*sqllock.Locker{"the same Locker": a, "another Locker": b} {
		const wait = 200 * time.Millisecond
		start := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		got, err := l.Lock(ctx, name)
		took := time.Since(start)
		cancel()
		e.oneOf(got, err)
		e.wantError(what, err, context.DeadlineExceeded)
		if took < wait || took > wait+2*time.Second+slack() {
			e.Errorf("%s: Lock took %v with a time-out of %v", what, took, wait)
		}
	}
	e.unlock(lease)
	e.gone(b, name)
}

func testWaitErrorSaysWhat(e *env) {
	a, b := e.locker(&Options{TTL: long, Label: "the one in the way"}), e.locker(&Options{TTL: long})
	name := e.name("wanted")
	lease := e.lock(a, name, noted)
	why := errors.New("because of the test")
	var err error
	// Who is in the way is said if the database has answered by then.
	mentions := func(word string) bool { return strings.Contains(fmt.Sprint(err), word) }
	for pause := 50 * time.Millisecond; !mentions("the one in the way") && pause < timeLimit; pause *= 4 {
		ctx, cancel := context.WithCancelCause(context.Background())
		waiting := locking(ctx, b, name)
		time.Sleep(pause)
		silent(e, waiting, "Lock returned while the name was held")
		cancel(why)
		err = receive(e, waiting, "a cancelled Lock returns").err
		e.wantError("Lock", err, context.Canceled)
		e.wantError("Lock", err, why)
	}
	for _, word := range []string{name, "the one in the way"} {
		if !mentions(word) {
			e.Errorf("%q is not in the error: %v", word, err)
		}
	}
	e.unlock(lease)
}

// testCancelledLeavesNothing cancels Lock of a free name at all kinds of moments
// of the statement that grants it. The TTL is long: nothing expires meanwhile.
func testCancelledLeavesNothing(e *env) {
	db, _ := e.open(e.source(), poolSize)
	l, other := e.lockerOn(db, &Options{TTL: long}), e.locker(&Options{TTL: long})
	goroutines := 0
	for range 20 { // one that has not begun to run is not known for what it is
		goroutines = max(goroutines, len(lockerGoroutines()))
		e.unlock(e.lock(other, e.name("warm")))
		e.unlock(e.lock(l, e.name("warm")))
	}
	cancelled := 0
	const rounds = 60
	for i := range rounds {
		name := e.name(fmt.Sprint(i))
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*2*e.h.pace/rounds)
		lease, err := l.Lock(ctx, name)
		cancel()
		e.oneOf(lease, err)
		if err == nil {
			e.live(lease)
			e.unlock(lease)
		} else {
			e.wantError("Lock", err, context.DeadlineExceeded)
			cancelled++
		}
		e.wantFree(other, name, timeLimit)
	}
	e.Logf("%d of %d were cancelled in time", cancelled, rounds)
	e.eventually(timeLimit, "no connection is in use but the one that is kept", func() bool {
		return db.Stats().InUse <= 1
	})
	e.wantGoroutines(goroutines + 1) // one cleans up
}

func testCancelNeighbours(e *env) {
	l := e.locker(&Options{TTL: long})
	errs := make(chan error)
	const n = 40
	for i := range n {
		go func() {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if i%2 == 0 { // half of them are cancelled some time
				time.AfterFunc(time.Duration(i)*100*time.Microsecond, cancel)
			}
			lease, err := l.Lock(ctx, e.name(fmt.Sprint(i)))
			if err == nil {
				err = lease.Unlock(ctx)
			}
			if i%2 == 0 && errors.Is(err, context.Canceled) {
				err = nil
			}
			errs <- err
		}()
	}
	for range n {
		if err := receive(e, errs, "Lock and Unlock return"); err != nil {
			e.Error(err)
		}
	}
}
