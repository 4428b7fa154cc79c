package conformance

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sqllock/sqllock"
)

var poolPromises = []promise{
	{sentence: "a pool of one connection works while the application leaves it alone", test: testPoolOfOne, needs: needLeases | needOnePool},
	{sentence: "a pool of one connection is warned of at construction", test: testPoolOfOneWarning, needs: needLeases | needOnePool},
	{sentence: "a pool of one that the application keeps loses the lease, and says why", test: testPoolOfOneKept, needs: needLeases | needOnePool},
	{sentence: "a pool of two keeps a lease alive while the application has the other connection", test: testPoolOfTwo, needs: needLeases | needOnePool},
	{sentence: "a pool of five that the application uses up loses no lease", test: testPoolOfFive, needs: needOnePool},
	{sentence: "a lock taken and given back while the pool is used up works if a lease is held", test: testLockWhileBusy, needs: needOnePool},
	{sentence: "a TryLock that gets no connection says that the pool is exhausted", test: testPoolExhausted, needs: needOnePool},
	{sentence: "the reserved connection goes back when nothing is held", test: testReservedConnectionIsReturned, needs: needOnePool | needHandle},
	{sentence: "the application's sessions are left as they were", test: testSettings, needs: needSettings},
}

// keeps is how many connections a Locker has taken out of its pool when the given
// number of names is held.
func (e *env) keeps(names int) int {
	switch s := e.h.Sessions; {
	case s == nil:
		return min(names, 1)
	case s.Alone:
		return 1 + names
	}
	return 1 + min(names, 1)
}

// take takes n connections out of a pool, until the returned function is called.
func (e *env) take(db *sql.DB, n int) (giveBack func()) {
	e.Helper()
	var conns []*sql.Conn
	for range n {
		conn, err := db.Conn(e.ctx())
		if err != nil {
			e.Fatalf("the application's connection: %v", err)
		}
		conns = append(conns, conn)
	}
	return sync.OnceFunc(func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	})
}

func testPoolOfOne(e *env) {
	ttl := e.ttl(2 * time.Second)
	db, _ := e.open(e.source(), 1)
	l, other := e.lockerOn(db, &Options{TTL: ttl}), e.locker(&Options{TTL: ttl})
	lease := e.lock(l, e.name("k"))
	for end := time.Now().Add(2 * ttl); time.Now().Before(end); time.Sleep(ttl / 10) {
		e.live(lease)
		e.wantHeld(other, lease.Name())
		e.unlock(e.lock(l, e.name("k"))) // several at once, over the one connection
		if err := db.PingContext(e.ctx()); err != nil {
			e.Errorf("the application's use of the connection: %v", err)
		}
	}
	e.unlock(lease)
}

func testPoolOfOneWarning(e *env) {
	for conns, want := range map[int]bool{1: true, 2: false, 0: false} {
		var j journal
		db, _ := e.open(e.source(), conns)
		l := e.looseLocker(db, &Options{TTL: long, Logger: slog.New(&j)})
		if err := l.Close(e.ctx()); err != nil {
			e.Errorf("Close: %v", err)
		}
		if got := j.has("WARN sqllock: the pool has one connection"); got != want {
			e.Errorf("a pool of %d (0 is unlimited): warned %v, want %v: %q", conns, got, want, j.read())
		}
	}
}

func testPoolOfOneKept(e *env) {
	ttl := e.ttl(2 * time.Second)
	var j journal
	db, _ := e.open(e.source(), 1)
	l, other := e.lockerOn(db, &Options{TTL: ttl, Hooks: j.hooks()}), e.locker(&Options{TTL: ttl})
	lease := e.lock(l, e.name("k"))
	giveBack := e.take(db, 1)
	defer giveBack()
	left := lease.Remaining()
	start := time.Now()
	receive(e, lease.Context().Done(), "the lease is lost")
	if took := time.Since(start); took > ttl+time.Second+slack() {
		e.Errorf("it was lost %v after there was %v left", took, left)
	}
	lost := e.wantLost("the cause", context.Cause(lease.Context()))
	if lost.Reason != sqllock.LostPoolExhausted {
		e.Errorf("want the reason %q, got %+v", sqllock.LostPoolExhausted, lost)
	}
	e.eventually(timeLimit, "the loss is reported after the jeopardy", func() bool { return j.has("jeopardy ") && j.has("lost ") })
	e.wantFree(other, lease.Name(), ttl+time.Second)
	e.wantLost("Unlock", lease.Unlock(e.ctx()))
	giveBack()
	e.unlock(e.lock(l, lease.Name())) // the Locker lives on
}

func testPoolOfTwo(e *env) {
	ttl := e.ttl(2 * time.Second)
	db, _ := e.open(e.source(), 2)
	l, other := e.lockerOn(db, &Options{TTL: ttl}), e.locker(&Options{TTL: ttl})
	giveBack := e.take(db, 1) // also while the first lock is taken
	defer giveBack()
	lease := e.lock(l, e.name("k"))
	for end := time.Now().Add(2 * ttl); time.Now().Before(end); time.Sleep(ttl / 10) {
		e.live(lease)
		e.wantHeld(other, lease.Name())
	}
	e.unlock(lease)
}

// testPoolOfFive has the application use as much of the pool as it can get.
func testPoolOfFive(e *env) {
	ttl := e.ttl(2 * time.Second)
	db, _ := e.open(e.source(), 5)
	l, other := e.lockerOn(db, &Options{TTL: ttl}), e.locker(&Options{TTL: ttl})
	lease := e.lock(l, e.name("k"))
	stop := e.greed(db, 10)
	time.Sleep(2 * ttl)
	e.live(lease)
	e.wantHeld(other, lease.Name())
	e.unlock(lease) // while the application goes on
	e.unlock(e.try(other, lease.Name()))
	stop()
}

// greed has n goroutines of the application each hold a connection for as long as
// they can, give it back and wait for the next.
func (e *env) greed(db *sql.DB, n int) (stop func()) {
	e.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for ctx.Err() == nil {
				conn, err := db.Conn(ctx)
				if err != nil {
					return
				}
				select {
				case <-ctx.Done():
				case <-time.After(500 * time.Millisecond):
				}
				_ = conn.Close()
			}
		})
	}
	e.eventually(timeLimit, "the pool is used up", func() bool { return db.Stats().WaitCount > 0 })
	stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
	})
	e.Cleanup(stop)
	return stop
}

func testLockWhileBusy(e *env) {
	ttl := e.ttl(2 * time.Second)
	conns := 3
	if s := e.h.Sessions; s != nil && s.Alone { // it is used up but for what the lock itself needs
		conns++
	}
	db, _ := e.open(e.source(), conns)
	l := e.lockerOn(db, &Options{TTL: ttl})
	lease := e.lock(l, e.name("k"))
	giveBack := e.take(db, 3-e.keeps(1))
	defer giveBack()
	for range 5 {
		start := time.Now()
		e.unlock(e.lock(l, e.name("k")))
		if took := time.Since(start); took > ttl {
			e.Errorf("Lock and Unlock took %v", took)
		}
	}
	e.live(lease)
	e.unlock(lease)
}

func testPoolExhausted(e *env) {
	ttl := e.ttl(2 * time.Second)
	conns := 2
	db, _ := e.open(e.source(), conns+e.keeps(0))
	l := e.lockerOn(db, &Options{TTL: ttl})
	giveBack := e.take(db, conns)
	defer giveBack()
	lease, err := l.TryLock(e.ctx(), e.name("k"))
	e.oneOf(lease, err)
	e.wantError("TryLock", err, sqllock.ErrPoolExhausted)

	waiting := locking(e.ctx(), l, e.name("k"))
	silent(e, waiting, "Lock returned without a connection")
	giveBack()
	e.unlock(e.granted(waiting))
}

func testReservedConnectionIsReturned(e *env) {
	db, _ := e.open(e.source(), 3)
	l := e.lockerOn(db, &Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	if n := db.Stats().InUse; n != e.keeps(1) {
		e.Errorf("%d connections are in use while a lease is held, want %d", n, e.keeps(1))
	}
	e.unlock(lease)
	e.eventually(timeLimit, "no connection is in use for leases", func() bool { return db.Stats().InUse == e.keeps(0) })
	e.take(db, 3-e.keeps(0))() // the application can have all of them
	e.unlock(e.lock(l, lease.Name()))
}

// testSettings looks at every connection of a pool before and after a Locker has
// used it.
func testSettings(e *env) {
	ttl := e.ttl(2 * time.Second)
	conns := 2 + e.keeps(0)
	if e.inSessions() { // one holds, one waits
		conns++
	}
	db, _ := e.open(e.source(), conns)
	before := e.settings(db, conns)
	l, other := e.lockerOn(db, &Options{TTL: ttl}), e.locker(&Options{TTL: long})
	name := e.name("k")
	held := e.lock(other, name)
	for range 3 {
		lease := e.lock(l, e.name("k"))
		e.wantHeld(l, name)
		ctx, cancel := context.WithTimeout(e.ctx(), 10*time.Millisecond)
		_, _ = l.Lock(ctx, name)
		cancel()
		e.unlock(lease)
	}
	lease := e.lock(l, e.name("k"))
	time.Sleep(ttl) // renewals
	e.unlock(lease)
	e.unlock(held)
	if err := l.Close(e.ctx()); err != nil {
		e.Errorf("Close: %v", err)
	}
	for i, is := range e.settings(db, conns) {
		if is != before[0] {
			e.Errorf("connection %d: the settings were\n%s\nand are\n%s", i, before[0], is)
		}
	}
}

// settings returns the settings of n connections at once.
func (e *env) settings(db *sql.DB, n int) (all []string) {
	e.Helper()
	var open []*sql.Conn
	for range n {
		conn, err := db.Conn(e.ctx())
		if err != nil {
			e.Fatal(err)
		}
		open = append(open, conn)
		s, err := e.h.Settings(e.ctx(), conn)
		if err != nil {
			e.Fatal(err)
		}
		all = append(all, fmt.Sprint(s))
	}
	for _, conn := range open {
		_ = conn.Close()
	}
	return all
}
