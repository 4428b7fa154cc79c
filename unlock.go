package sqllock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/batch"
	"github.com/sqllock/sqllock/internal/session"
)

// unlock takes one lease out of its term. If it was the last, unlock releases the name and
// wakes the next waiter of this process.
func (l *Locker) unlock(ctx context.Context, lease *Lease) error {
	l.inflight.add()
	defer l.inflight.done()
	t := lease.term
	bound := newUnlockBound(ctx, t.timeout)
	last, err := l.removeLease(lease)
	if !last || err != nil {
		return err
	}
	err = l.endTerm(bound, t)
	l.unlockedEvent(t, err)
	return err
}

// removeLease takes a lease out of its term, see term.removeLease.
func (l *Locker) removeLease(lease *Lease) (last bool, err error) {
	t := lease.term
	last, err = t.removeLease(lease)
	if last && errors.Is(err, ErrLost) && t.lockDelay == 0 && l.mode.sessions == nil {
		// A renewal that arrives late could keep a name that no caller holds. With a lock
		// delay this is intended.
		l.cleanup.add(t.cleanupRequest())
	}
	return last, err
}

// unlockedEvent reports the end of a term. A loss that only the release has found is reported as
// each loss is.
func (l *Locker) unlockedEvent(t *term, err error) {
	if err == nil && !l.events.verbose {
		return
	}
	ended := t.releasedAt
	if ended == 0 {
		ended = l.clock.Now()
	}
	held := ended - t.granted
	if err != nil {
		if lost := (*LostError)(nil); errors.As(err, &lost) {
			l.events.lost(LostEvent{LeaseInfo: t.info(), Err: lost, Held: held})
		}
	}
	if !l.events.verbose {
		return
	}
	l.events.unlocked(t, held, false, err)
	if t.handedOver > 0 {
		l.events.handedOver(HandedOverEvent{LeaseInfo: t.info(), Waiters: t.handedOver})
	}
}

// endTerm releases the name in the database and forgets the term.
func (l *Locker) endTerm(bound unlockBound, t *term) error {
	return l.endTermBy(t, func() error { return l.release(bound, t) })
}

// endTermBy is endTerm with a function that releases the name. If a driver panics, the caller
// may recover: then the name is released in the background.
func (l *Locker) endTermBy(t *term, release func() error) (err error) {
	returned := false
	defer func() {
		if !returned {
			l.cleanup.add(t.cleanupRequest())
		}
		if !errors.Is(err, ErrGuarded) { // a guarded term is renewed until the guard has ended, so that it does not look crashed
			l.keeper.drop(t) // not before: until then only renewals keep the name
		}
		l.queue.ended(t)
	}()
	err = release()
	returned = true
	if err == nil && (t.awaited || t.queued && t.handedOver > 0) {
		l.claims.noteContended(t.name)
	}
	return err
}

// release releases the name in the database. It retries while that may help and there is time for
// it. What it could not release for certain is released in the background, also what a
// request takes that arrives after the release.
func (l *Locker) release(bound unlockBound, t *term) error {
	err := l.releaseOnTime(bound, t)
	if t.unknown && (err == nil || errors.Is(err, ErrLost)) { // else releaseLater sees to it, and MinHold counts
		l.cleanup.add(driver.ReleaseRequest{Name: t.name, Acq: t.acq, Guarded: t.isGuarded(), Shared: t.together()}, t.rowTTL())
	}
	return err
}

// releaseOnTime is release, but for requests that arrive late.
func (l *Locker) releaseOnTime(bound unlockBound, t *term) error {
	base := l.base
	if base.Err() != nil { // Close gave up before: the statement fails at once, unless it runs on a session
		base = context.Background()
	}
	var a batch.Reply[driver.ReleaseResult]
	answered := false
	if !t.isLeaving() {
		a, answered = l.releases.TryDirect(l.releaseRequest(t), min(t.timeout, time.Until(bound.until)))
	}
	if answered && a.Err == nil && a.Result.Freed {
		t.handedOver, t.releasedAt = a.Result.HandedOver, a.After
		return nil
	}
	wait := l.deadlines.borrow(base, bound.until, bound.early)
	defer l.deadlines.giveBack(wait)
	freed, sharedBatch, err := false, false, a.Err
	if !answered {
		freed, sharedBatch, err = l.releaseOnce(wait, t, false)
	} else if err != nil && wait.Err() != nil { // the error of a driver does not always say so
		err = fmt.Errorf("%w: %w: %w", session.ErrUnanswered, wait.Err(), err)
	}
	if freed {
		return nil
	}
	return l.retryRelease(wait, t, sharedBatch, err)
}

// unlockBound says when an Unlock ends, and by how much earlier it may end.
type unlockBound struct {
	until time.Time
	early time.Duration
}

// newUnlockBound bounds an Unlock by the time of two statements, or by a deadline of ctx that lies
// ahead. If ctx has ended already, it ends after the time of one statement, so that the name is
// still released. Unless the deadline is that of ctx, it may end a little early. The Unlock ends
// the contexts of its lease, of which ctx may be one: the bound is made before that.
func newUnlockBound(ctx context.Context, statement time.Duration) unlockBound {
	now := time.Now()
	if ctx == nil || ctx.Err() != nil {
		return unlockBound{now.Add(statement), statement / 16}
	}
	until := now.Add(2 * statement)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(until) {
		return unlockBound{deadline, 0}
	}
	return unlockBound{until, statement / 16}
}

// mostOf returns three quarters of the time until a time.
func mostOf(until time.Time) time.Duration { return time.Until(until) / 4 * 3 }

// retryRelease is release after a first request that did not release the name.
func (l *Locker) retryRelease(ctx context.Context, t *term, sharedBatch bool, err error) error {
	freed, unknown, isolated := false, false, false
	pause := newBackoff(&l.cfg)
	guardWait := l.clock.Now() + guardTimeout
	for {
		fault := driver.Again
		if err == nil {
			if err = l.notReleasedError(ctx, t, unknown); !errors.Is(err, ErrGuarded) {
				return err
			}
		} else {
			fault = l.mode.Classify(err)
		}
		unknown = unknown || fault == driver.Unclear
		isolated = isolated || sharedBatch // it may have failed because of another request
		switch {
		case fault == driver.Again && t.isGuarded() && l.clock.Now() >= guardWait:
			if !errors.Is(err, ErrGuarded) { // on SQLite a guard locks the whole database
				err = fmt.Errorf("%w: %w", guardedError(t.name), err)
			}
			fallthrough
		case fault == driver.Refused || l.base.Err() != nil || sleep(ctx, pause.next()) != nil:
			return l.releaseLater(t, err)
		}
		if freed, sharedBatch, err = l.releaseOnce(ctx, t, isolated); freed {
			return nil
		}
	}
}

// releaseLater releases a term in the background and returns the error that says so.
func (l *Locker) releaseLater(t *term, err error) error {
	if l.base.Err() != nil { // there is no background any more
		l.keeper.drop(t)
		return fmt.Errorf("sqllock: unlock %q: it will be free when it expires: %w: %w", t.name, ErrClosed, err)
	}
	r, kept := t.cleanupRequest()
	if errors.Is(err, ErrGuarded) {
		l.cleanup.addGuarded(r, kept, func() { l.keeper.drop(t) })
	} else {
		l.cleanup.add(r, kept)
	}
	return fmt.Errorf("sqllock: unlock %q: it will be freed in the background, at latest by its expiry: %w", t.name, err)
}

// guardTimeout is how long Unlock of a guarded lease tries to release a name whose row is
// locked. The row may be locked by a renewal in flight, or by the end of a transaction.
const guardTimeout = 200 * time.Millisecond

// sendReleases runs the statement of one batch of releases. It tells the waiters of this
// process to which the statement has handed over a name.
func (l *Locker) sendReleases(ctx context.Context, reqs []driver.ReleaseRequest) ([]driver.ReleaseResult, error) {
	before := l.clock.Now()
	res, err := l.mode.Release(ctx, reqs)
	if err != nil {
		return nil, err
	}
	for i := range res {
		for _, grant := range res[i].Next {
			l.claims.handedOver(grant, before)
		}
	}
	return res, nil
}

func (l *Locker) releaseRequest(t *term) driver.ReleaseRequest {
	return driver.ReleaseRequest{Name: t.name, Acq: t.acq, Version: t.token, MinHold: t.keptFor(), Guarded: t.isGuarded(), Shared: t.together(), Permit: t.permit,
		Awaited: t.awaited || t.queued || l.claims.hasWaiter(t.name)}
}

// releaseOnce sends one release.
func (l *Locker) releaseOnce(ctx context.Context, t *term, isolated bool) (freed, sharedBatch bool, err error) {
	if t.isLeaving() {
		err := l.releaseLeaving(ctx, t)
		return err == nil, false, err
	}
	req := l.releaseRequest(t)
	a, ok := l.releases.Do(ctx, nil, req, releaseKind(t, &req, isolated), t.timeout)
	if !ok {
		return false, false, fmt.Errorf("%w: %w", session.ErrUnanswered, ctx.Err())
	}
	t.handedOver, t.releasedAt = a.Result.HandedOver, a.After
	return a.Err == nil && a.Result.Freed, a.SharedBatch, a.Err
}

// releaseKind tells which other releases can share a statement with req.
func releaseKind(t *term, req *driver.ReleaseRequest, isolated bool) batch.Kind {
	k := batch.Kind{Group: ttlGroup(t.ttl), Isolated: isolated}
	for i, flag := range []bool{req.Guarded, req.Shared, req.Awaited} {
		if flag {
			k.Flags |= 1 << i
		}
	}
	return k
}

// notReleasedError finds out why the database did not release a term: the term is over, or a
// transaction guards it. It returns nil if an earlier release without a reply may have done
// it, unless the database says that the term was revoked. If others held the name too, what ended their terms later says
// nothing of this one.
func (l *Locker) notReleasedError(ctx context.Context, t *term, unknown bool) error {
	reason, err := l.endReason(ctx, t)
	switch {
	case t.isGuarded() && (err != nil || reason == 0):
		return guardedError(t.name)
	case unknown && (reason != LostRevoked || t.together()) && l.mode.sessions == nil: // a session may have ended before the release
		return nil
	case reason == 0:
		reason = LostTaken
	}
	return &LostError{Name: t.name, Token: t.token, Reason: reason}
}
