package conformance

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/netproxy"
)

var networkPromises = []promise{
	{sentence: "a network that freezes for less than the TTL shows as jeopardy and costs no lease", test: testShortFreeze, needs: needNetwork},
	{sentence: "a lease survives if only the connection of its renewals is frozen", test: testFrozenReservedConnection, needs: needNetwork | needLeases},
	{sentence: "a lease survives if all connections of the pool are frozen, and new ones can be opened", test: testFrozenPool, needs: needNetwork | needLeases},
	{sentence: "a network that freezes for longer loses the lease by its deadline", test: testLongFreeze, needs: needNetwork | needSilenceEnds},
	{sentence: "packets that arrive after the loss take nothing back", test: testThawAfterLoss, needs: needNetwork | needSilenceEnds},
	{sentence: "broken connections are replaced and cost no lease", test: testReset, needs: needNetwork | needLeases},
	{sentence: "TryLock of a database that cannot be reached returns an error", test: testUnreachableTryLock, needs: needNetwork},
	{sentence: "Lock waits until the database can be reached again", test: testUnreachableLock, needs: needNetwork},
	{sentence: "Unlock of a database that cannot be reached is bounded and says so", test: testUnreachableUnlock, needs: needNetwork | needSilenceEnds},
	{sentence: "Close in a frozen network ends with its context, or when one statement could have taken its time", test: testFrozenClose, needs: needNetwork},
	{sentence: "uncontended Lock and Unlock take no more round trips than is known", test: testRoundTrips, needs: needNetwork | needOneDatabase},
	{sentence: "Lock, renewal and Unlock survive a restart of the server", test: testServerRestart, needs: needServer | needLeases},
}

func testShortFreeze(e *env) {
	ttl := e.ttl(4 * time.Second)
	jeopardy := make(chan sqllock.JeopardyEvent, 10)
	lost := make(chan sqllock.LostEvent, 10)
	p, l := e.proxied(&Options{TTL: ttl, StatementTimeout: e.timeout(800 * time.Millisecond), Hooks: &sqllock.Hooks{
		Jeopardy: func(ev sqllock.JeopardyEvent) { jeopardy <- ev },
		Lost:     func(ev sqllock.LostEvent) { lost <- ev },
	}})
	lease := e.lock(l, e.name("k"))
	p.Freeze()
	ev := receive(e, jeopardy, "the jeopardy is reported")
	if ev.Name != lease.Name() || ev.Token != lease.Token() || ev.Err == nil || ev.Remaining <= 0 || ev.Remaining > ttl {
		e.Errorf("the event is %+v", ev)
	}
	e.live(lease)
	p.Thaw()
	for end := time.Now().Add(2 * ttl); time.Now().Before(end); time.Sleep(ttl / 20) {
		e.live(lease)
	}
	silent(e, lost, "a loss was reported")
	if err := lease.Unlock(e.ctx()); errors.Is(err, sqllock.ErrLost) { // its time is short, as that of each statement here
		e.Errorf("Unlock: %v", err)
	}
}

func testFrozenReservedConnection(e *env) {
	ttl := e.ttl(3 * time.Second)
	p, l := e.proxied(&Options{TTL: ttl})
	other := e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	var stuck atomic.Int64
	frozen, thaw := context.WithCancel(context.Background())
	defer thaw()
	p.OnUp(func(conn int, _ []byte) netproxy.Action {
		stuck.CompareAndSwap(0, int64(conn)) // whatever renews first
		if int64(conn) == stuck.Load() {
			<-frozen.Done()
		}
		return netproxy.Pass
	})
	for end := time.Now().Add(2 * ttl); time.Now().Before(end); time.Sleep(ttl / 20) {
		e.live(lease)
		e.wantHeld(other, lease.Name())
	}
	if stuck.Load() == 0 {
		e.Error("nothing was stuck")
	}
	thaw()
	e.unlock(lease)
}

// After a fail-over nothing answers on the connections that the pool has, and new ones lead to the
// server that has taken over.
func testFrozenPool(e *env) {
	ttl := e.ttl(3 * time.Second)
	p := netproxy.New(e.T, e.h.Network.Address(e.source()))
	db, _ := e.open(e.h.Network.Via(e.source(), p.Addr()), poolSize)
	l, other := e.lockerOn(db, &Options{TTL: ttl}), e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	var idle []*sql.Conn
	for range poolSize / 2 {
		conn, err := db.Conn(e.ctx())
		if err != nil {
			e.Fatal(err)
		}
		idle = append(idle, conn)
	}
	for _, conn := range idle {
		_ = conn.Close()
	}
	thaw, last := make(chan struct{}), p.Accepted()
	p.OnUp(func(conn int, _ []byte) netproxy.Action {
		if conn <= last {
			<-thaw
		}
		return netproxy.Pass
	})
	for end := time.Now().Add(2 * ttl); time.Now().Before(end); time.Sleep(ttl / 20) {
		e.live(lease)
		e.wantHeld(other, lease.Name())
	}
	if p.Accepted() == last {
		e.Error("no connection was opened")
	}
	close(thaw)
	e.unlock(lease)
}

// frozenOut has a lease lost in a frozen network, and returns a lease of the name
// that another Locker got.
func (e *env) frozenOut() (p *netproxy.Proxy, lost, next *sqllock.Lease) {
	e.Helper()
	ttl := e.ttl(2 * time.Second)
	var j journal
	p, l := e.proxied(&Options{TTL: ttl, Hooks: j.hooks()})
	other := e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	p.Freeze()
	start := time.Now()
	taken := locking(e.ctx(), other, lease.Name())
	select {
	case <-lease.Context().Done():
	case r := <-taken:
		e.Fatalf("somebody else has the name and the holder was not told: %v, %v", r.lease, r.err)
	case <-time.After(timeLimit):
		e.Fatal("the loss was not told")
	}
	if took := time.Since(start); took > ttl+time.Second+slack() {
		e.Errorf("the loss was reported %v after the network froze, with a TTL of %v", took, ttl)
	}
	if got := e.wantLost("the cause", context.Cause(lease.Context())); got.Reason != sqllock.LostUnreachable || got.Err == nil {
		e.Errorf("want the reason %q and the error, got %+v", sqllock.LostUnreachable, got)
	}
	e.eventually(timeLimit, "the loss is reported after the jeopardy", func() bool { return j.has("jeopardy ") && j.has("lost ") })
	next = e.granted(taken)
	if took := time.Since(start); took > ttl+2*time.Second+slack() {
		e.Errorf("another had the name %v after the network froze, with a TTL of %v", took, ttl)
	}
	if next.Token() <= lease.Token() {
		e.Errorf("token %d follows token %d", next.Token(), lease.Token())
	}
	return p, lease, next
}

func testLongFreeze(e *env) {
	p, lease, next := e.frozenOut()
	start := time.Now()
	e.wantLost("Unlock in a frozen network", lease.Unlock(e.ctx()))
	if took := time.Since(start); took > time.Second+slack() {
		e.Errorf("Unlock of a lost lease took %v", took)
	}
	p.Thaw()
	e.unlock(next)
}

func testThawAfterLoss(e *env) {
	p, lease, next := e.frozenOut()
	p.Thaw() // renewals that were sent in time arrive now
	watcher := e.locker(&Options{TTL: long})
	e.known(watcher, next.Name())
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if lease.Context().Err() == nil || lease.Remaining() > 0 {
			e.Fatal("the lost lease is back")
		}
		e.live(next)
		if held := e.wantHeld(watcher, next.Name()); held.Owner != next.Owner() {
			e.Fatalf("%q holds the name, want %q", held.Owner, next.Owner())
		}
	}
	e.wantLost("Unlock", lease.Unlock(e.ctx()))
	e.unlock(next)
	e.wantFree(watcher, next.Name(), timeLimit)
}

func testReset(e *env) {
	ttl := e.ttl(2 * time.Second)
	p, l := e.proxied(&Options{TTL: ttl})
	other := e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	for end := time.Now().Add(2 * ttl); time.Now().Before(end); time.Sleep(ttl / 10) {
		p.Reset()
		e.live(lease)
		e.wantHeld(other, lease.Name())
		e.unlock(e.lock(l, e.name("k")))
	}
	p.Reset()
	e.unlock(lease)
	e.wantFree(other, lease.Name(), timeLimit/2)
}

// cutOff has the proxy refuse everything, as a server that is down does.
func cutOff(p *netproxy.Proxy) {
	p.OnUp(func(int, []byte) netproxy.Action { return netproxy.Cut })
	p.Reset()
}

func testUnreachableTryLock(e *env) {
	p, l := e.proxied(&Options{TTL: long})
	e.warm(l)
	cutOff(p)
	start := time.Now()
	lease, err := l.TryLock(e.ctx(), e.name("k"))
	e.oneOf(lease, err)
	if took := time.Since(start); took > timeLimit/2 || errors.Is(err, sqllock.ErrHeld) {
		e.Errorf("TryLock returned %v after %v", err, took)
	}
	p.OnUp(nil)
	e.unlock(e.lock(l, e.name("k")))
}

func testUnreachableLock(e *env) {
	p, l := e.proxied(&Options{TTL: long})
	e.warm(l)
	cutOff(p)
	name := e.name("k")
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	lease, err := l.Lock(ctx, name)
	e.oneOf(lease, err)
	e.wantError("Lock", err, context.DeadlineExceeded)
	lease, err = l.Lock(e.ctx(), name, sqllock.Wait(2*time.Second))
	e.oneOf(lease, err)
	if errors.Is(err, sqllock.ErrHeld) || errors.Is(err, context.DeadlineExceeded) {
		e.Errorf("Lock with Wait: want the database's error, got %v", err)
	}

	waiting := locking(e.ctx(), l, name)
	silent(e, waiting, "Lock returned without a database")
	time.Sleep(time.Second)
	silent(e, waiting, "Lock returned without a database")
	p.OnUp(nil)
	e.unlock(e.granted(waiting))
}

func testUnreachableUnlock(e *env) {
	p, l := e.proxied(&Options{TTL: e.ttl(3 * time.Second)})
	other := e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	p.Freeze()
	start := time.Now()
	err := lease.Unlock(e.ctx())
	if took := time.Since(start); took > timeLimit/4 { // two statements of a third of the TTL
		e.Errorf("Unlock took %v", took)
	}
	// A ping of the session may be what gives up first. Then the session is ended, and
	// that is told, or that the lock is not there any more.
	var lost *sqllock.LostError
	ended := errors.As(err, &lost) && e.inSessions() && (lost.Reason == sqllock.LostSession || lost.Reason == sqllock.LostTaken)
	if err == nil || errors.Is(err, sqllock.ErrNotHeld) || errors.Is(err, sqllock.ErrLost) && !ended {
		e.Errorf("Unlock in a frozen network: %v", err)
	}
	e.wantError("the cause", context.Cause(lease.Context()), sqllock.ErrUnlocked)
	e.wantFree(other, lease.Name(), timeLimit) // by its expiry, if by nothing else
	p.Thaw()
}

func testFrozenClose(e *env) {
	n := e.h.Network
	p := netproxy.New(e.T, n.Address(e.source()))
	db, _ := e.open(n.Via(e.source(), p.Addr()), poolSize)
	ttl := long
	if e.inSessions() { // for which the session of the lease is left to it
		ttl = e.ttl(soon)
	}
	const statement = 500 * time.Millisecond
	l := e.looseLocker(db, &Options{TTL: ttl, StatementTimeout: statement})
	lease := e.lock(l, e.name("k"))
	p.Freeze()
	waiting := locking(e.ctx(), l, e.name("other"))
	silent(e, waiting, "Lock returned in a frozen network")
	ctx, cancel := context.WithTimeout(context.Background(), statement/2)
	defer cancel()
	start := time.Now()
	e.wantError("Close", l.Close(ctx), context.DeadlineExceeded)
	if took := time.Since(start); took > statement+timeLimit/12 { // what has no reply is given the time to be undone
		e.Errorf("Close took %v", took)
	}
	e.wantError("Lock", receive(e, waiting, "Lock returns").err, sqllock.ErrClosed)
	e.wantError("the cause", context.Cause(lease.Context()), sqllock.ErrClosed)
	p.Thaw()
}

func testRoundTrips(e *env) {
	p, l := e.proxied(&Options{TTL: long})
	name := e.name("k")
	e.unlock(e.lock(l, name)) // the row is there, the statements are prepared
	before := p.RoundTrips()
	const n = 10
	for range n {
		e.unlock(e.lock(l, name))
	}
	if trips := p.RoundTrips() - before; trips > e.h.Network.RoundTrips*n {
		e.Errorf("%d cycles took %d round trips, want %d each", n, trips, e.h.Network.RoundTrips)
	}
}

// testServerRestart stops the server as a crash does.
func testServerRestart(e *env) {
	ttl := e.ttl(15 * time.Second)
	dsn, stop, start := e.h.Server.Start(e.T)
	e.dsn = dsn
	var j journal
	l := e.locker(&Options{TTL: ttl, Hooks: j.hooks()})
	kept, given := e.lock(l, e.name("kept")), e.lock(l, e.name("given"))
	stop()
	waiting := locking(e.ctx(), l, e.name("wanted"))
	lease, err := l.TryLock(e.ctx(), e.name("tried"))
	e.oneOf(lease, err)
	if errors.Is(err, sqllock.ErrHeld) {
		e.Errorf("TryLock without a server: %v", err)
	}
	silent(e, waiting, "Lock returned without a server")
	start()
	last := e.granted(waiting)
	e.unlock(given)
	e.live(kept)
	other := e.locker(&Options{TTL: long})
	for end := time.Now().Add(ttl / 2); time.Now().Before(end); time.Sleep(ttl / 50) {
		e.live(kept) // the server remembers what it had granted
		e.wantHeld(other, kept.Name())
	}
	if next := e.try(other, given.Name()); next.Token() <= given.Token() {
		e.Errorf("token %d follows token %d", next.Token(), given.Token())
	} else {
		e.unlock(next)
	}
	e.unlock(kept)
	e.unlock(last)
}
