package conformance

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/sqllock/sqllock"
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

	child := p.lock(name)
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
	child := p.lock(name)
	waiting := locking(e.ctx(), l, name)
	time.Sleep(ttl) // it is renewed meanwhile
	silent(e, waiting, "Lock returned while a child held the name")

	start := time.Now()
	left := p.do(order{Do: "remaining", Name: name}).Remaining
	if err := p.cmd.Process.Kill(); err != nil {
		e.Fatal(err)
	}
	lease := e.granted(waiting)
	took := time.Since(start)
	if took > ttl+time.Second+slack() {
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
	e.wantFree(l, name, timeLimit)
}

// testPause has a process stop until somebody else has its lock, which shows that
// it stopped. Then it goes on and looks, in one way, before it does anything else.
func testPause(what string) func(*env) {
	return func(e *env) {
		ttl := e.ttl(2 * time.Second)
		l := e.locker(&Options{TTL: long})
		p := e.start(ttl, "the child")
		name := e.name("k")
		child := p.lock(name)
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
	p.lock(name)
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

// killsVar says how many holders the suite kills in one test.
const killsVar = "SQLLOCK_TEST_KILLS"

func kills(e *env) int {
	text := os.Getenv(killsVar)
	if text == "" {
		return 16
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		e.Fatalf("%s=%q: must be a positive number", killsVar, text)
	}
	return n
}

// killedHolder is a process that holds a name and is killed.
type killedHolder struct {
	name    string
	token   int64
	process *process
	killed  time.Time
	blocked time.Duration // from the kill until the name had its next holder
	err     error
}

func (k *killedHolder) waitForName(e *env, l *sqllock.Locker) {
	lease, err := l.Lock(e.ctx(), k.name)
	if k.blocked, k.err = time.Since(k.killed), err; err == nil {
		k.err = lease.Unlock(e.ctx())
	}
}

// testManyKilled kills processes that hold a name each. Every other name is asked
// for by a waiter, the rest are left to the reaper.
func testManyKilled(e *env) {
	e.fresh()
	var c crashes
	hooks := c.hooks()
	ttl := e.ttl(2 * time.Second)
	slack := e.ttl(time.Second) // longer where the database is slow
	l := e.looseLocker(e.handle(), &Options{TTL: long, Hooks: hooks, Reaper: &sqllock.ReaperOptions{Interval: 200 * time.Millisecond}})
	all := make([]killedHolder, kills(e))
	var wg sync.WaitGroup
	for i := range all {
		k := &all[i]
		k.name = e.name("k")
		k.process = e.start(ttl, fmt.Sprint("holder ", i))
		k.token = k.process.lock(k.name).Token
	}
	for i := range all {
		k := &all[i]
		e.known(l, k.name)
		if err := k.process.cmd.Process.Kill(); err != nil {
			e.Fatal(err)
		}
		k.killed = time.Now()
		k.process.end()
		wg.Go(func() {
			if i%2 == 1 { // nobody requests the name until the lease has expired
				time.Sleep(time.Until(k.killed.Add(ttl + 300*time.Millisecond)))
			}
			k.waitForName(e, l)
		})
	}
	wg.Wait()
	if err := l.Close(e.ctx()); err != nil { // after it all hooks have been called
		e.Errorf("Close: %v", err)
	}
	e.checkKilled(all, &c, ttl, slack)
}

// checkKilled checks when the names of killed holders were free, and that each crash was
// reported once.
func (e *env) checkKilled(all []killedHolder, c *crashes, ttl, slack time.Duration) {
	e.Helper()
	var longest time.Duration
	for i, k := range all {
		longest = max(longest, k.blocked)
		if k.err != nil || k.blocked > ttl+slack {
			e.Errorf("the name of holder %d was blocked for %v after the kill, with a TTL of %v: %v", i, k.blocked, ttl, k.err)
		}
		if reported := c.of(k.name); len(reported) != 1 || reported[0].Token != k.token || reported[0].Label != fmt.Sprint("holder ", i) {
			e.Errorf("of holder %d with token %d the hook was told %+v", i, k.token, reported)
		}
	}
	e.Logf("%d holders were killed; no name was blocked for longer than %v, with a TTL of %v", len(all), longest, ttl)
}
