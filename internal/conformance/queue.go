package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sqllock/sqllock"
)

var queuePromises = []promise{
	{sentence: "waiters of many processes are served in the order in which they came", test: testQueueOfProcesses, needs: needTable},
	{sentence: "readers and writers of several Lockers are served in the order in which they came", test: testQueueOfReadersAndWriters, needs: needTable},
	{sentence: "a name is handed over to a waiter of another Locker at once, however rarely that polls", test: testHandOver, needs: needTable},
	{sentence: "no other caller acquires the name before the waiters in the queue", test: testNoBarging, needs: needTable},
	{sentence: "a waiter that is killed at the head of the queue delays it for its TTL at most", test: testKilledFirstWaiter, needs: needTable},
	{sentence: "a waiter that is killed when the name was handed to it delays the queue for its TTL at most", test: testKilledNextHolder, needs: needTable | needSignals},
	{sentence: "a waiter that gives up leaves no claim behind", test: testNoClaimLeft, needs: needTable},
	{sentence: "a deadlock of several Lockers ends the youngest waiter within a second", test: testDeadlock, needs: needTable},
}

// doOnce waits for name, holds it for a while, and reports the token.
func doOnce(l *sqllock.Locker, name string, hold time.Duration) <-chan answer {
	done := make(chan answer, 1)
	go func() {
		var a answer
		err := l.Do(context.Background(), name, func(_ context.Context, lease *sqllock.Lease) error {
			a.Token = lease.Token()
			time.Sleep(hold)
			return nil
		})
		if err != nil {
			a = failure(err)
		}
		done <- a
	}()
	return done
}

// tokens waits until all waiters of the child have held the name.
func (c *child) tokens() (all answer) {
	for _, done := range c.waiting {
		a := <-done
		if a.Err != "" {
			return a
		}
		all.Tokens = append(all.Tokens, a.Token)
	}
	return all
}

// waitForQueue waits until n waiters are in the queue for name.
func (e *env) waitForQueue(name string, n int) {
	e.Helper()
	db := e.handle()
	e.eventually(timeLimit, fmt.Sprintf("%d waiters are in the queue", n), func() bool {
		got, err := e.h.Table.Waiters(e.ctx(), db, name)
		return err == nil && got == n
	})
}

// waitsAs waits until n wait for name where a table tells, and elsewhere for as long as a call needs
// to begin to wait.
func (e *env) waitsAs(name string, n int) {
	e.Helper()
	if e.h.Table == nil || e.h.Nodes > 1 {
		time.Sleep(50*time.Millisecond + slack()/10)
		return
	}
	e.waitForQueue(name, n)
}

// waitBehind has a Locker of this process wait behind those that are in the queue now.
func (e *env) waitBehind(l *sqllock.Locker, name string, before int) <-chan result {
	e.Helper()
	waiting := locking(e.ctx(), l, name)
	e.waitForQueue(name, before+1)
	return waiting
}

func testQueueOfProcesses(e *env) {
	processes, each := 8, 20
	if e.h.slow() { // so many take longer to be served there than a claim may go without being renewed
		processes, each = 3, 5
	}
	l := e.locker(&Options{TTL: long})
	name := e.name("k")
	first := e.lock(l, name)
	var all []*process
	for range processes {
		all = append(all, e.start(long, ""))
	}
	for i := range processes * each {
		all[i*7%processes].do(order{Do: "wait", Name: name, Gap: time.Millisecond})
		e.waitForQueue(name, i+1)
	}
	e.unlock(first)
	tokens := make([]int64, processes*each)
	next := make([]int, processes)
	served := make([]answer, processes)
	for i, p := range all {
		p.send(order{Do: "tokens"})
		if served[i] = p.readWithin(5 * timeLimit); len(served[i].Tokens) != each {
			e.Fatalf("process %d: %+v", i, served[i])
		}
	}
	for i := range tokens {
		p := i * 7 % processes
		tokens[i] = served[p].Tokens[next[p]]
		next[p]++
	}
	if !slices.IsSorted(tokens) {
		e.Errorf("the tokens of those who came one after the other are %v", tokens)
	}
}

func testQueueOfReadersAndWriters(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	first := e.lock(a, name)
	var waiting []<-chan result
	for i, shared := range []bool{true, true, false, true, true} {
		l := a
		if i%2 == 1 {
			l = b
		}
		ch := make(chan result, 1)
		go func() {
			var r result
			if shared {
				r.lease, r.err = l.RLock(e.ctx(), name)
			} else {
				r.lease, r.err = l.Lock(e.ctx(), name)
			}
			ch <- r
		}()
		e.waitForQueue(name, i+1)
		waiting = append(waiting, ch)
	}
	e.unlock(first)
	one, two := e.granted(waiting[0]), e.granted(waiting[1])
	silent(e, waiting[2], "a writer got in with readers")
	silent(e, waiting[3], "a reader got in before a writer that came earlier")
	e.unlock(one)
	e.unlock(two)
	writer := e.granted(waiting[2])
	silent(e, waiting[3], "a reader got in with a writer")
	e.unlock(writer)
	three, four := e.granted(waiting[3]), e.granted(waiting[4])
	if one.Token() != two.Token() || writer.Token() <= one.Token() || three.Token() <= writer.Token() || three.Token() != four.Token() {
		e.Errorf("the tokens are %d, %d, %d, %d, %d", one.Token(), two.Token(), writer.Token(), three.Token(), four.Token())
	}
	e.unlock(three)
	e.unlock(four)
}

func testHandOver(e *env) {
	o := &Options{TTL: long, RetryMin: 20 * time.Millisecond, RetryMax: time.Hour}
	a, b := e.locker(o), e.locker(o)
	name := e.name("k")
	var took []time.Duration
	for range 15 {
		lease := e.lock(a, name)
		waiting := e.waitBehind(b, name, 0)
		start := time.Now()
		e.unlock(lease)
		next := e.granted(waiting)
		took = append(took, time.Since(start))
		e.unlock(next)
	}
	slices.Sort(took)
	// The bound is for a machine that is busy; without a hand-over it would be the
	// time between two beats of a claim.
	if median := took[len(took)/2]; median > 500*time.Millisecond {
		e.Errorf("hand-overs took %v", took)
	}
}

func testNoBarging(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	const hold = 500 * time.Millisecond
	lease := e.lock(a, name, sqllock.MinHold(hold))
	waiting := e.waitBehind(b, name, 0)
	e.unlock(lease) // nobody holds it now, and nobody can have it
	start := time.Now()
	for time.Since(start) < 2*hold {
		other, err := a.TryLock(e.ctx(), name)
		if err == nil {
			select {
			case r := <-waiting:
				waiting = returned(r)
			default:
				e.Error("TryLock was quicker than the waiter in the queue")
			}
			e.unlock(other)
			break
		}
		if !errors.Is(err, sqllock.ErrHeld) {
			e.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	e.unlock(e.granted(waiting))
}

// returned is a channel that gives r.
func returned(r result) <-chan result {
	ch := make(chan result, 1)
	ch <- r
	return ch
}

// front is a queue for a name that somebody holds: a child comes first, and then a
// waiter of this process.
type front struct {
	e       *env
	ttl     time.Duration
	b       *sqllock.Locker // who waits
	lease   *sqllock.Lease
	child   *process
	waiting <-chan result
}

func (e *env) front(ttl time.Duration) *front {
	e.Helper()
	f := &front{e: e, ttl: e.ttl(ttl)}
	a := e.locker(&Options{TTL: f.ttl})
	f.b = e.locker(&Options{TTL: f.ttl})
	f.lease = e.lock(a, e.name("k"))
	f.child = e.start(f.ttl, "the child")
	f.child.send(order{Do: "lock", Name: f.lease.Name()})
	e.waitForQueue(f.lease.Name(), 1)
	f.waiting = e.waitBehind(f.b, f.lease.Name(), 1)
	return f
}

// next waits until the waiter has the name, which was given back at start.
func (f *front) next(start time.Time) *sqllock.Lease {
	f.e.Helper()
	next := f.e.granted(f.waiting)
	if took := time.Since(start); took > f.ttl+f.e.ttl(time.Second)+slack() {
		f.e.Errorf("the next one waited for %v, with a TTL of %v", took, f.ttl)
	}
	return next
}

func testKilledFirstWaiter(e *env) {
	f := e.front(2 * time.Second)
	f.child.end()
	start := time.Now()
	e.unlock(f.lease)
	e.unlock(f.next(start))
}

func testKilledNextHolder(e *env) {
	f := e.front(3 * time.Second)
	f.child.pause()
	start := time.Now()
	e.unlock(f.lease) // to the child, which does not hear of it
	if held := e.known(f.b, f.lease.Name()); held.Label != "the child" {
		e.Errorf("the name was handed to %+v", held)
	}
	f.child.end()
	next := f.next(start)
	if next.Token() <= f.lease.Token()+1 {
		e.Errorf("token %d follows token %d and that of the child", next.Token(), f.lease.Token())
	}
	e.unlock(next)
}

func testNoClaimLeft(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	lease := e.lock(a, name)
	ctx, cancel := context.WithCancel(e.ctx())
	defer cancel()
	const n = 20
	var waiting []<-chan result
	for range n {
		waiting = append(waiting, locking(ctx, b, name))
	}
	e.waitForQueue(name, n)
	cancel()
	for _, ch := range waiting {
		e.wantError("Lock", receive(e, ch, "a cancelled Lock returns").err, context.Canceled)
	}
	e.waitForQueue(name, 0)
	e.unlock(lease)
	e.unlock(e.try(a, name))
}

func testDeadlock(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	for round := 1; !e.closeCycle(a, b, fmt.Sprint(round)); round++ {
		if round == 3 {
			e.Fatal("of two waiters the one that came first was ended, three times")
		}
	}
}

// closeCycle has b wait for a, which waits for b. It returns false if not b was ended, but a: if this
// process is stopped for long, the claim of a is taken out of the queue, and enters it behind b.
func (e *env) closeCycle(a, b *sqllock.Locker, round string) (youngest bool) {
	one, two := e.name("one"+round), e.name("two"+round)
	first, second := e.lock(a, one), e.lock(b, two)
	older := locking(first.Context(), a, two)
	e.waitForQueue(two, 1)
	start := time.Now()
	younger := locking(second.Context(), b, one)
	select {
	case r := <-older:
		e.wantError("Lock in a cycle", r.err, sqllock.ErrDeadlock)
		e.unlock(first)
		e.unlock(e.granted(younger))
		e.unlock(second)
		return false
	case r := <-younger:
		e.wantError("Lock that closes a cycle", r.err, sqllock.ErrDeadlock)
	}
	if took := time.Since(start); took > time.Second+e.ttl(time.Second)+slack() {
		e.Errorf("the deadlock was reported after %v", took)
	}
	silent(e, older, "the older waiter was ended too")
	e.unlock(second)
	e.unlock(e.granted(older))
	e.unlock(first)
	return true
}
