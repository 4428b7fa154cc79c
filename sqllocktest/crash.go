package sqllocktest

import (
	"time"
)

var processPromises = []promise{
	{sentence: "two processes exclude each other", test: testTwoProcesses},
	{sentence: "when a holder is killed, the next waiter gets the name within the TTL and a second", test: testKilledHolder},
	{sentence: "a waiter that is killed is in nobody's way", test: testKilledWaiter},
	{sentence: "of many holders that are killed each is told of, and its name is free within its TTL and a second", test: testManyKilled},
}

var pausePromises = []promise{
	{sentence: "after a pause beyond the TTL the first Err says lost", test: testPause("Err"), needs: needSignals},
	{sentence: "after a pause beyond the TTL the first Remaining says lost", test: testPause("Remaining"), needs: needSignals},
	{sentence: "after a pause beyond the TTL the first context.Cause says lost", test: testPause("Cause"), needs: needSignals},
	{sentence: "after a pause beyond the TTL the first Err of a bound context says lost", test: testPause("bound Err"), needs: needSignals},
	{sentence: "after a pause beyond the TTL the first Cause of a bound context says lost", test: testPause("bound Cause"), needs: needSignals},
	{sentence: "after a pause beyond the TTL Unlock says lost", test: testPause("Unlock"), needs: needSignals},
	{sentence: "after a pause beyond the TTL Done closes at once", test: testPause("Done"), needs: needSignals},
	{sentence: "after a pause shorter than the TTL the holder goes on", test: testShortPause, needs: needSignals},
}

func testTwoProcesses(e *env) {
	l := e.locker(&Options{TTL: long})
	p := e.start(long, "the child")
	name := e.name("k")

	child := p.hold(name)
	if held := e.known(l, name); held.Label != "the child" {
		e.Errorf("the HeldError is %+v", held)
	}
	waiting := locking(e.ctx(), l, name)
	silent(e, waiting, "Lock returned while a child held the name")
	if a := p.do(order{Do: "unlock", Name: name}); a.Err != "" {
		e.Errorf("Unlock in the child: %s", a.Err)
	}
	lease := e.granted(waiting)
	if lease.Token() <= child.Token {
		e.Errorf("token %d follows token %d", lease.Token(), child.Token)
	}

	if a := p.do(order{Do: "try", Name: name}); !a.Held {
		e.Errorf("TryLock in the child: want ErrHeld, got %+v", a)
	}
	p.send(order{Do: "lock", Name: name})
	silent(e, p.out, "Lock returned in the child while the name was held")
	e.unlock(lease)
	if a := p.read(); a.Err != "" || a.Token <= lease.Token() {
		e.Errorf("Lock in the child after token %d: %+v", lease.Token(), a)
	}
}

func testKilledHolder(e *env) {
	ttl := e.ttl(2 * time.Second)
	l := e.locker(&Options{TTL: long})
	p := e.start(ttl, "the child")
	name := e.name("k")
	child := p.hold(name)
	waiting := locking(e.ctx(), l, name)
	time.Sleep(ttl) // it is renewed meanwhile
	silent(e, waiting, "Lock returned while a child held the name")

	left := p.do(order{Do: "remaining", Name: name}).Remaining
	start := time.Now()
	if err := p.cmd.Process.Kill(); err != nil {
		e.Fatal(err)
	}
	lease := e.granted(waiting)
	took := time.Since(start)
	if took > ttl+time.Second {
		e.Errorf("the next holder got the name %v after the kill, with a TTL of %v", took, ttl)
	}
	if !e.inSessions() && took < left-500*time.Millisecond {
		e.Errorf("the next holder got the name %v after the kill, when the killed one had %v left", took, left)
	}
	if lease.Token() <= child.Token {
		e.Errorf("token %d follows token %d", lease.Token(), child.Token)
	}
	e.unlock(lease)
}

func testKilledWaiter(e *env) {
	l := e.locker(&Options{TTL: long})
	name := e.name("k")
	lease := e.lock(l, name)
	p := e.start(long, "the child")
	p.send(order{Do: "lock", Name: name})
	silent(e, p.out, "Lock returned in the child while the name was held")
	if err := p.cmd.Process.Kill(); err != nil {
		e.Fatal(err)
	}
	for range p.out { // until it is gone
	}
	e.unlock(lease)
	e.wantFree(l, name, patience)
}

// testPause has a process stop until somebody else has its lock, which shows that
// it stopped. Then it goes on and looks, in one way, before it does anything else.
func testPause(what string) func(*env) {
	return func(e *env) {
		ttl := e.ttl(2 * time.Second)
		l := e.locker(&Options{TTL: long})
		p := e.start(ttl, "the child")
		name := e.name("k")
		child := p.hold(name)
		p.send(order{Do: "watch", Name: name, What: what, Gap: ttl / 2})
		lease := e.lock(l, name)
		if lease.Token() <= child.Token {
			e.Errorf("token %d follows token %d", lease.Token(), child.Token)
		}
		p.resume()
		a := p.read()
		if a.Err != "" || !a.Lost {
			e.Errorf("the first look at %s after the pause says: %+v", what, a)
		}
		// 100 ms are promised; the rest is for a machine that is busy.
		if a.Took > 100*time.Millisecond+time.Second {
			e.Errorf("it took %v", a.Took)
		}
		e.live(lease)
		e.wantHeld(l, name)
		e.unlock(lease)
	}
}

func testShortPause(e *env) {
	ttl := e.ttl(3 * time.Second)
	l := e.locker(&Options{TTL: long})
	p := e.start(ttl, "the child")
	name := e.name("k")
	p.hold(name)
	for range 3 {
		p.pause()
		time.Sleep(ttl / 3)
		e.wantHeld(l, name)
		p.resume()
		time.Sleep(ttl / 3) // a renewal
	}
	if left := p.do(order{Do: "remaining", Name: name}).Remaining; left <= 0 {
		e.Errorf("Remaining is %v", left)
	}
	if a := p.do(order{Do: "unlock", Name: name}); a.Err != "" {
		e.Errorf("Unlock: %s", a.Err)
	}
	e.unlock(e.try(l, name))
}
