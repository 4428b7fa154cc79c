package sqllock

import (
	"context"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/deadlock"
)

// deadlockCheck looks for deadlocks while a waiter of this Locker holds a lease. It is
// guarded by claims.mu.
type deadlockCheck struct {
	next time.Duration
	busy bool
}

// The first check comes when a waiter that holds a lease has waited for a while. More
// checks follow, because a waiter that came earlier can close a cycle later.
const (
	firstDeadlockCheck = 150 * time.Millisecond
	deadlockCheckPause = 300 * time.Millisecond
)

// runDue starts a check if one is due, and returns when to do so again; the caller holds
// mu.
func (d *deadlockCheck) runDue(cs *claims, now time.Duration) (at time.Duration) {
	if cs.carrying == 0 {
		return never
	}
	oldest := never
	for _, c := range cs.byAcq {
		if len(c.req.Carries) > 0 && c.knownHeld {
			oldest = min(oldest, c.queuedAt)
		}
	}
	switch {
	case oldest == never, d.busy:
		return never
	case now < max(oldest+firstDeadlockCheck, d.next):
		return max(oldest+firstDeadlockCheck, d.next)
	}
	d.busy, d.next = true, now+deadlockCheckPause
	cs.locker.inflight.add()
	cs.wg.Go(func() {
		defer cs.locker.inflight.done()
		cs.breakDeadlocks()
	})
	return never
}

// breakDeadlocks ends the waits of this Locker that are the youngest of a cycle. It
// searches for cycles without holding mu, so that no caller waits for the search.
func (cs *claims) breakDeadlocks() {
	ctx, cancel := context.WithTimeout(cs.locker.base, cs.locker.cfg.timeout(cs.locker.cfg.ttl))
	defer cancel()
	read, err := cs.locker.mode.Read(ctx, driver.ReadRequest{Waiters: true})
	var found []deadlock.Deadlock
	if err == nil { // else the next look may get through
		found, _ = deadlock.Find(read.Waiters, cs.waiting)
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.deadlocks.busy = false
	cs.wakeUp()
	for _, d := range found {
		if c := cs.byAcq[d.Acq]; c != nil && c.pendingReply == nil { // else it may be granted
			cs.fail(c, fmt.Errorf("%w: %s", ErrDeadlock, deadlock.Describe(d.Cycle)))
		}
	}
}

// waiting reports whether a waiter of this Locker waits with acq.
func (cs *claims) waiting(acq driver.ID) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.byAcq[acq] != nil
}
