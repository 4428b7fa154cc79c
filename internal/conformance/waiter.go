package conformance

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock"
)

var waitPromises = []promise{
	{sentence: "waiters of one process are served in the order in which they came", test: testWaitersInOrder},
	{sentence: "however many wait in a process, one of them asks the database", test: testOneContender, quiet: true},
	{sentence: "a waiter for a name that its own process holds does not poll", test: testNoContender, quiet: true},
	{sentence: "a waiter that polls rarely looks when the holder's lease expires", test: testLookAtExpiry, needs: needLeases},
	{sentence: "a waiter gets in although another waiter of its process gave up", test: testWaiterGivesUp},
	{sentence: "every waiter is served in the end, across Lockers", test: testAllGranted},
}

func testWaitersInOrder(e *env) {
	l := e.locker(&Options{TTL: long})
	name := e.name("k")
	lease := e.lock(l, name)
	const n = 6
	served := make(chan int, n)
	for i := range n {
		go func() {
			lease, err := l.Lock(e.ctx(), name)
			if err != nil {
				e.Errorf("Lock: %v", err)
				return
			}
			served <- i
			if err := lease.Unlock(context.Background()); err != nil {
				e.Errorf("Unlock: %v", err)
			}
		}()
		time.Sleep(max(50*time.Millisecond, 15*e.h.pace)) // its place in the queue is all it takes meanwhile
	}
	silent(e, served, "a waiter was let in while the name was held")
	e.unlock(lease)
	for want := range n {
		if got := receive(e, served, "the next waiter is served"); got != want {
			e.Errorf("waiter %d was served in place %d", got, want)
		}
	}
}

// testOneContender counts statements while many wait for a name that another
// Locker holds.
func testOneContender(e *env) {
	holder := e.locker(&Options{TTL: long})
	name := e.name("k")
	lease := e.lock(holder, name)
	one := e.chatter(lease, 1)
	many := e.chatter(lease, 25)
	if many > 3*one+10 {
		e.Errorf("one waiter sends %d statements a second, 25 send %d", one, many)
	}
	if one == 0 {
		e.Error("a waiter sends nothing at all")
	}
	e.unlock(lease)
}

// testNoContender is testOneContender with the holder in the same Locker.
func testNoContender(e *env) {
	db, recorder := e.open(e.source(), poolSize)
	l := e.lockerOn(db, &Options{TTL: long, RetryMin: 20 * time.Millisecond, RetryMax: 20 * time.Millisecond})
	name := e.name("k")
	lease := e.lock(l, name)
	before := recorder.statements.Load()
	waiting := locking(e.ctx(), l, name)
	time.Sleep(500 * time.Millisecond)
	if n := recorder.statements.Load() - before; n > 18 { // to enter the queue; a poll would take more
		e.Errorf("%d statements were sent", n)
	}
	e.unlock(lease)
	e.unlock(e.granted(waiting))
}

// chatter returns how many statements a Locker sends in a second while n of its
// callers wait for a lease of another Locker.
func (e *env) chatter(lease *sqllock.Lease, n int) int64 {
	e.Helper()
	db, recorder := e.open(e.source(), poolSize)
	l := e.lockerOn(db, &Options{TTL: long, RetryMin: 50 * time.Millisecond, RetryMax: 50 * time.Millisecond})
	ctx, cancel := context.WithCancel(context.Background())
	var waiting []<-chan result
	for range n {
		waiting = append(waiting, locking(ctx, l, lease.Name()))
	}
	time.Sleep(300 * time.Millisecond)
	before := recorder.statements.Load()
	time.Sleep(time.Second)
	sent := recorder.statements.Load() - before
	cancel()
	for _, ch := range waiting {
		e.wantError("Lock", receive(e, ch, "a cancelled Lock returns").err, context.Canceled)
	}
	return sent
}

func testLookAtExpiry(e *env) {
	ttl := e.ttl(2 * time.Second)
	crashing := e.looseLocker(e.handle(), &Options{TTL: ttl})
	rare := e.locker(&Options{TTL: long, RetryMin: time.Hour, RetryMax: time.Hour})
	name := e.name("k")
	first := e.lock(crashing, name)
	start := time.Now()
	left := first.Remaining()
	e.abandon(crashing)
	second := e.lock(rare, name) // fails after timeLimit, long before the hour
	took := time.Since(start)
	if took < left-50*time.Millisecond {
		e.Errorf("the name was taken after %v, when its holder could believe in it for %v", took, left)
	}
	if took > ttl+time.Second+slack() {
		e.Errorf("the name was taken %v after its holder was gone, with a TTL of %v", took, ttl)
	}
	if second.Token() <= first.Token() {
		e.Errorf("token %d follows token %d", second.Token(), first.Token())
	}
	e.unlock(second)
}

// testWaiterGivesUp has the head of the queue and one in its middle go.
func testWaiterGivesUp(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	for what, l := range map[string]*sqllock.Locker{"the same Locker": a, "another Locker": b} {
		lease := e.lock(a, e.name("k"))
		ctx, cancel := context.WithCancel(context.Background())
		var leaving []<-chan result
		staying := make(chan result, 2)
		for i := range 4 {
			if i%2 == 0 {
				leaving = append(leaving, locking(ctx, l, lease.Name()))
			} else {
				ch := locking(e.ctx(), l, lease.Name())
				go func() { staying <- <-ch }()
			}
			time.Sleep(50 * time.Millisecond)
		}
		cancel()
		for _, ch := range leaving {
			e.wantError(what+": Lock", receive(e, ch, "a cancelled Lock returns").err, context.Canceled)
		}
		e.unlock(lease)
		for range 2 { // on a busy machine the second may have come first
			e.unlock(e.granted(staying))
		}
	}
}

func testAllGranted(e *env) {
	name := e.name("k")
	var served atomic.Int64
	const lockers, each = 3, 5
	done := make(chan error, lockers*each)
	for range lockers {
		l := e.locker(&Options{TTL: long, RetryMax: 50 * time.Millisecond})
		for range each {
			go func() {
				done <- l.Do(e.ctx(), name, func(context.Context, *sqllock.Lease) error {
					served.Add(1)
					time.Sleep(5 * time.Millisecond)
					return nil
				})
			}()
		}
	}
	for range lockers * each {
		if err := receive(e, done, "Do returns"); err != nil {
			e.Errorf("Do: %v", err)
		}
	}
	if served.Load() != lockers*each {
		e.Errorf("%d of %d were served", served.Load(), lockers*each)
	}
}
