package conformance

import (
	"context"
	"database/sql"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock"
)

// sessionConnPromises are about the connections of modes that keep locks in sessions.
var sessionConnPromises = []promise{
	{sentence: "however many names are held and waited for, a Locker stays within its connections", test: testSessionConns, needs: needSessions},
	{sentence: "of a pool of five the application gets a connection at once while names are held and waited for", test: testSessionPoolOfFive, needs: needSessions},
	{sentence: "a pool of one or two connections is refused before any SQL", test: testSessionSmallPool, needs: needSessions},
	{sentence: "Close leaves no lock behind on a connection of the pool", test: testSessionClose, needs: needSessions},
	{sentence: "what is lost by MaxHold leaves no lock behind on a connection of the pool", test: testSessionMaximumTerm, needs: needSessions},
	{sentence: "fifty Lockers that come and go leave no connection and no goroutine", test: testSessionLeak, needs: needSessions, quiet: true},
	{sentence: "hundreds of leases of one session, or one for each connection, are all kept alive", test: testSessionMany, needs: needSessions | needHandle, quiet: true},
}

// most returns, from when it is called, the most connections of a pool that were in
// use at a time.
func most(db *sql.DB) (stop func() int64) {
	var n atomic.Int64
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
				n.Store(max(n.Load(), int64(db.Stats().InUse)))
			}
		}
	})
	return func() int64 {
		close(done)
		wg.Wait()
		return n.Load()
	}
}

func testSessionConns(e *env) {
	s := e.h.Sessions
	held, waited, callers := 200, 50, 200
	if s.Alone {
		held = s.Conns / 2
	}
	db, _ := e.open(e.source(), s.Conns+1) // which bounds MaxConns
	l, holder := e.lockerOn(db, &Options{TTL: long}), e.locker(&Options{TTL: long})
	inUse := most(db)
	var mine, theirs []*sqllock.Lease
	for range held {
		mine = append(mine, e.lock(l, e.name("held")))
	}
	for range waited {
		theirs = append(theirs, e.lock(holder, e.name("waited for")))
	}
	e.waitForAll(l, theirs, callers, func() {
		for _, lease := range mine {
			e.live(lease)
		}
	})
	for _, lease := range mine {
		e.live(lease)
		e.unlock(lease)
	}
	if n := inUse(); n > int64(s.Conns) {
		e.Errorf("%d connections were in use, want %d at most", n, s.Conns)
	}
}

// waitForAll has callers of l wait for the names of leases, which it unlocks after a
// while, when it has called check.
func (e *env) waitForAll(l *sqllock.Locker, leases []*sqllock.Lease, callers int, check func()) {
	e.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*timeLimit)
	defer cancel()
	errs := make(chan error, callers)
	for i := range callers {
		go func() { errs <- l.Do(ctx, leases[i%len(leases)].Name(), nothing) }()
	}
	time.Sleep(2 * time.Second)
	check()
	select {
	case err := <-errs:
		e.Errorf("Do returned %v while the name was held", err)
	default:
	}
	start := time.Now()
	for _, lease := range leases {
		e.unlock(lease)
	}
	for range callers {
		if err := receiveWithin(e, errs, 3*timeLimit, "Do returns"); err != nil {
			e.Errorf("Do: %v", err)
		}
	}
	e.Logf("all callers had their names %v after they were free", time.Since(start))
}

func testSessionPoolOfFive(e *env) {
	db, _ := e.open(e.source(), 5)
	l, holder := e.lockerOn(db, nil), e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var waiting []<-chan result
	var theirs []*sqllock.Lease
	for range 10 {
		other := e.lock(holder, e.name("waited for"))
		theirs = append(theirs, other)
		waiting = append(waiting, locking(ctx, l, other.Name()), locking(ctx, l, other.Name()))
	}
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		start := time.Now()
		conn, err := db.Conn(e.ctx())
		if err != nil {
			e.Fatal(err)
		}
		if took := time.Since(start); took > 500*time.Millisecond+slack() {
			e.Errorf("the application got a connection after %v", took)
		}
		_ = conn.Close()
	}
	cancel()
	for _, ch := range waiting {
		e.wantError("Lock", receive(e, ch, "a cancelled Lock returns").err, context.Canceled)
	}
	for _, other := range theirs {
		e.unlock(other)
	}
	e.live(lease)
	e.unlock(lease)
}

func testSessionSmallPool(e *env) {
	e.wantRefusedPool(1)
	e.wantRefusedPool(2)
}

// testSessionClose keeps the pool, and what a session would have left in it.
func testSessionClose(e *env) {
	db, _ := e.open(e.source(), poolSize)
	ttl := e.ttl(2*time.Second) + 500*time.Millisecond // of which a server may count whole seconds
	other := e.locker(&Options{TTL: long})
	l := e.looseLocker(db, &Options{TTL: ttl})
	var names []string
	for i := range 8 {
		lease := e.lock(l, e.name(fmt.Sprint(i)))
		names = append(names, lease.Name())
		if i%2 == 0 {
			e.unlock(lease)
			continue
		}
		defer func() { _ = lease.Unlock(e.ctx()) }()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	e.wantError("Close while names are held", l.Close(ctx), context.DeadlineExceeded)
	for i := 0; i < len(names); i += 2 {
		e.unlock(e.try(other, names[i]))
	}
	e.eventually(ttl+2*time.Second, "every connection is back", func() bool { return db.Stats().InUse == 0 })
	for _, name := range names { // a server notices a moment later that a connection was closed
		e.wantFree(other, name, timeLimit)
	}

	l = e.looseLocker(db, &Options{TTL: ttl})
	for i := range names {
		e.unlock(e.lock(l, names[i]))
	}
	if err := l.Close(e.ctx()); err != nil {
		e.Errorf("Close: %v", err)
	}
	if n := db.Stats().InUse; n != 0 {
		e.Errorf("%d connections are in use after Close", n)
	}
	for _, name := range names {
		e.unlock(e.try(other, name))
	}
}

func testSessionMaximumTerm(e *env) {
	db, _ := e.open(e.source(), poolSize)
	other := e.locker(&Options{TTL: long})
	l := e.lockerOn(db, &Options{TTL: long})
	lease := e.lock(l, e.name("k"), sqllock.MaxHold(e.ttl(2*time.Second)))
	beside := e.lock(l, e.name("beside"))
	receive(e, lease.Context().Done(), "the hold is over")
	e.wantFree(other, lease.Name(), lossReportedWithin) // though nobody has unlocked it
	if lost := e.wantLost("Unlock", lease.Unlock(e.ctx())); lost.Reason != sqllock.LostMaxHold {
		e.Errorf("the reason is: %s", lost.Reason)
	}
	e.live(beside)
	e.wantHeld(other, beside.Name())
	e.unlock(beside)
}

func testSessionLeak(e *env) {
	db, _ := e.open(e.source(), poolSize)
	e.unlock(e.lock(e.locker(&Options{TTL: long}), e.name("warm"))) // what is done once is done
	before := runtime.NumGoroutine()
	for range 50 {
		l := e.looseLocker(db, &Options{TTL: long})
		lease := e.lock(l, e.name("k"))
		_, err := l.TryLock(e.ctx(), lease.Name())
		e.wantError("TryLock", err, sqllock.ErrHeld)
		e.unlock(lease)
		if err := l.Close(e.ctx()); err != nil {
			e.Errorf("Close: %v", err)
		}
	}
	if s := db.Stats(); s.InUse != 0 || s.OpenConnections > 5 {
		e.Errorf("%d connections are open, %d of them in use", s.OpenConnections, s.InUse)
	}
	_ = db.Close()
	e.eventually(timeLimit, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
}

func testSessionMany(e *env) {
	n := 500
	if e.h.Sessions.Alone {
		n = largePool - 10
	}
	db, recorder := e.open(e.source(), e.poolLimit())
	ttl := e.ttl(5 * time.Second)
	l := e.lockerOn(db, &Options{TTL: ttl})
	before := runtime.NumGoroutine()
	leases := e.lockMany(l, n)
	if !e.h.Sessions.Alone {
		e.eventually(timeLimit, "there is no more than a handful of goroutines", func() bool {
			return runtime.NumGoroutine() <= before+20
		})
	}
	time.Sleep(2 * time.Second) // until all are renewed together
	const seconds = 3
	was, inUse := recorder.statements.Load(), most(db)
	time.Sleep(seconds * time.Second)
	sent, used := recorder.statements.Load()-was, inUse()
	sessions := 1
	if e.h.Sessions.Alone {
		sessions = len(leases)
	}
	if most := int64(10 * (seconds + 1) * sessions); sent > most {
		e.Errorf("%d statements in %d seconds for %d leases, want %d at most", sent, seconds, len(leases), most)
	}
	if used > int64(sessions+1) {
		e.Errorf("%d connections were in use for %d sessions", used, sessions)
	}
	e.Logf("%d statements in %d seconds for %d leases, %d connections", sent, seconds, len(leases), used)
	for _, lease := range leases {
		e.live(lease)
	}
	for i, err := range unlockAll(leases) {
		if err != nil {
			e.Errorf("lease %d: Unlock: %v", i, err)
		}
	}
}

// unlockAll unlocks many at a time.
func unlockAll(leases []*sqllock.Lease) []error {
	errs := make([]error, len(leases))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range poolSize {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(leases)); i = next.Add(1) - 1 {
				errs[i] = leases[i].Unlock(context.Background())
			}
		})
	}
	wg.Wait()
	return errs
}
