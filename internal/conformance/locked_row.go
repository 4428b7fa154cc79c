package conformance

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/sqllock/sqllock"
)

var tracePromises = []promise{
	{sentence: "a TryLock that loses leaves no trace in the database", test: testNoTrace, needs: needTraces | needOneDatabase, quiet: true},
	{sentence: "a TryLock that loses waits for nobody's row lock", test: testLoserDoesNotWait, needs: needTable},
	{sentence: "a row that somebody has locked delays the renewal of no other lease", test: testPinnedRow, needs: needTable},
}

// testNoTrace asks a few times, again and again, because servers write now and then
// by themselves, or for others; a loser that writes does so every time.
func testNoTrace(e *env) {
	// The Lockers are quiet meanwhile: nothing is renewed for a third of the TTL.
	holder, loser := e.locker(&Options{TTL: sqllock.MaxTTL}), e.locker(&Options{TTL: sqllock.MaxTTL})
	lease := e.lock(holder, e.name("k"), noted)
	e.wantHeld(loser, lease.Name()) // now there is a connection
	traces := func() string {
		s, err := e.h.Traces(e.ctx(), e.handle())
		if err != nil {
			e.Fatal(err)
		}
		return s
	}
	var before, after string
	e.eventually(timeLimit, "losers left the database as it was", func() bool {
		before = traces()
		for range 20 {
			e.wantHeld(loser, lease.Name())
		}
		after = traces()
		e.Logf("before %s, after %s", before, after)
		return before == after
	})
	e.unlock(lease)
	if after == traces() {
		e.Error("an Unlock left no trace either: traces are blind")
	}
}

func testLoserDoesNotWait(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	lease := e.lock(a, e.name("k"))
	unpin := e.pin(lease.Name())
	start := time.Now()
	e.wantHeld(b, lease.Name())
	if took := time.Since(start); took > 900*time.Millisecond+slack() {
		e.Errorf("it took %v to lose", took)
	}
	unpin()
	e.unlock(lease)
}

// pin locks the row of a name as another transaction would.
func (e *env) pin(name string) (unpin func()) {
	e.Helper()
	return e.pinUntil(name, func(conn *sql.Conn) error { return e.h.Table.Unpin(e.ctx(), conn) })
}

// pinForSuccessor locks the row of a name, whose next term begins at the end of that.
func (e *env) pinForSuccessor(name string) (succeed func()) {
	e.Helper()
	return e.pinUntil(name, func(conn *sql.Conn) error { return e.h.Table.Succeed(e.ctx(), conn, name) })
}

func (e *env) pinUntil(name string, end func(*sql.Conn) error) func() {
	e.Helper()
	db, _ := e.open(e.source(), 1)
	conn, err := db.Conn(e.ctx())
	if err != nil {
		e.Fatal(err)
	}
	if err := e.h.Table.Pin(e.ctx(), conn, name); err != nil {
		e.Fatal(err)
	}
	return func() {
		e.Helper()
		if err := end(conn); err != nil {
			e.Fatal(err)
		}
		_ = conn.Close()
	}
}

// testPinnedRow locks a row for half a TTL. On a database that locks rows the
// other leases do not even notice; on one that locks itself as a whole, all go on
// when it is open again.
func testPinnedRow(e *env) {
	ttl := e.ttl(3 * time.Second)
	l := e.locker(&Options{TTL: ttl})
	var leases []*sqllock.Lease
	for range 10 {
		leases = append(leases, e.lock(l, e.name("k")))
	}
	unpin := e.pin(leases[4].Name())
	time.Sleep(ttl / 2)
	unpin()
	for end := time.Now().Add(ttl); time.Now().Before(end); time.Sleep(ttl / 20) {
		for _, lease := range leases {
			e.live(lease)
		}
	}

	// Beyond its TTL, a row lock costs the pinned lease its life and no other's,
	// where rows are locked at all.
	unpin = e.pin(leases[4].Name())
	ctx, cancel := context.WithTimeout(context.Background(), 2*ttl)
	defer cancel()
	select {
	case <-leases[4].Context().Done():
	case <-ctx.Done():
		e.Error("a lease that cannot be renewed was not lost")
	}
	unpin()
	for i, lease := range leases {
		err := lease.Unlock(e.ctx())
		if e.h.Table.LocksRows && i != 4 && err != nil || i == 4 && !errors.Is(err, sqllock.ErrLost) {
			e.Errorf("lease %d: Unlock: %v", i, err)
		}
	}
}
