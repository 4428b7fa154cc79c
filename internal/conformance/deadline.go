package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/sqllock/sqllock"
)

var deadlinePromises = []promise{
	{sentence: "the deadline counts from before the request", test: testDeadlineFromRequest},
	{sentence: "the deadline counts from before the renewal", test: testDeadlineFromRenewal},
	{sentence: "a reply that comes past the deadline is an error, and the name is given back", test: testReplyTooLate},
	{sentence: "the database keeps a name for longer than its holder believes in it", test: testDeadlineBeforeExpiry, needs: needTable},
}

// slow is how long replies take in the tests of the deadline.
const slow = 400 * time.Millisecond

// slowed returns a Locker on a connection whose replies come late: the database
// has done what it was asked for long before the Locker hears of it. It returns
// what turns that on and off.
func (e *env) slowed(o *Options) (l *sqllock.Locker, delay func(time.Duration)) {
	e.Helper()
	o.StatementTimeout = 2 * timeLimit // which may be several replies, each later than a TTL
	if e.h.Network != nil {
		p, l := e.proxied(o)
		e.warm(l)
		return l, func(d time.Duration) { p.Latency(d / 2) } // each way
	}
	db, recorder := e.open(e.source(), poolSize)
	l = e.lockerOn(db, o)
	e.warm(l)
	return l, recorder.slow
}

func testDeadlineFromRequest(e *env) {
	ttl := e.ttl(4 * time.Second)
	if e.inSessions() { // which take many round trips to open
		ttl = e.ttl(15 * time.Second)
	}
	l, delay := e.slowed(&Options{TTL: ttl})
	delay(slow)
	lease := e.lock(l, e.name("k"))
	left := lease.Remaining()
	delay(0)
	if left <= 0 || left > ttl-slow/2 {
		e.Errorf("Remaining is %v of a TTL of %v, after a reply that took at least %v", left, ttl, slow/2)
	}
	e.unlock(lease)
}

func testDeadlineFromRenewal(e *env) {
	ttl := e.ttl(3 * time.Second)
	l, delay := e.slowed(&Options{TTL: ttl})
	lease := e.lock(l, e.name("k"))
	delay(slow)
	last, rises := lease.Remaining(), 0
	for end := time.Now().Add(ttl + ttl/2); time.Now().Before(end); time.Sleep(ttl / 100) {
		left := lease.Remaining()
		if left > last {
			rises++
			if left > ttl-slow/2 {
				e.Errorf("Remaining rose to %v of a TTL of %v, with a reply that took at least %v", left, ttl, slow/2)
			}
		}
		last = left
	}
	if rises == 0 {
		e.Error("the lease was not renewed")
	}
	delay(0)
	e.unlock(lease)
}

func testReplyTooLate(e *env) {
	ttl := e.ttl(500 * time.Millisecond)
	l, delay := e.slowed(&Options{TTL: ttl})
	other := e.locker(&Options{TTL: long})
	name := e.name("k")
	delay(ttl + time.Second)
	ctx, cancel := context.WithTimeout(context.Background(), 5*timeLimit) // each reply takes longer than the TTL
	defer cancel()
	lease, err := l.TryLock(ctx, name)
	delay(0)
	e.oneOf(lease, err)
	switch {
	// The statement is given up when the TTL is over, and its session with it. A quorum has no
	// option for the time of a statement, and gives it up after a third of the TTL.
	case e.inSessions(), e.h.Nodes > 1:
		if errors.Is(err, sqllock.ErrHeld) {
			e.Errorf("TryLock of a free name: %v", err)
		}
	default:
		if lost := e.wantLost("TryLock", err); lost.Reason != sqllock.LostLate {
			e.Errorf("want the reason %q, got %+v", sqllock.LostLate, lost)
		}
	}
	e.wantFree(other, name, timeLimit)
	e.eventually(timeLimit, "the Locker that was late locks again", func() bool {
		lease, err := l.Lock(e.ctx(), name)
		e.oneOf(lease, err)
		return err == nil && lease.Unlock(e.ctx()) == nil // on a slow machine it may be late again
	})
}

// testDeadlineBeforeExpiry compares the holder's deadline with the row's expiry,
// on the clock of the database: the row of a second lease, granted just after the
// deadline was read, tells what that clock said.
func testDeadlineBeforeExpiry(e *env) {
	const margin = long / 100
	for rounds := 0; rounds < 20; {
		l := e.locker(&Options{TTL: long})
		lease := e.lock(l, e.name("k"))
		read, left := time.Now(), lease.Remaining()
		later := e.lock(l, e.name("later"))
		if time.Since(read) > margin { // the machine is too busy for this round to say anything
			e.unlock(later)
			e.unlock(lease)
			continue
		}
		rounds++
		believes := e.row(later.Name()).AcquiredAt + left.Microseconds()
		// later was granted after left was read, so this overstates the belief; the
		// margin of the deadline must cover that.
		if expires := e.row(lease.Name()).ExpiresAt; believes > expires {
			e.Errorf("the holder believes until %d, the row says %d", believes, expires)
		}
		e.unlock(later)
		e.unlock(lease)
	}
}
