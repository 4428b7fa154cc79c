package sqllock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/batch"
)

// unlock takes one lease out of its hold and, if it was the last, frees the name
// and lets the next waiter of this process look.
func (l *Locker) unlock(ctx context.Context, lease *Lease) error {
	l.inflight.add()
	defer l.inflight.done()
	t := lease.term
	last, err := t.removeLease(lease)
	if last && errors.Is(err, ErrLost) && t.lockDelay == 0 && l.mode.sessions == nil {
		// A renewal that arrives late could keep the name for nobody. With a lock
		// delay that is wanted.
		l.cleanup.add(t.cleanupRequest())
	}
	if !last || err != nil {
		return err
	}
	err = l.release(ctx, t)
	if !errors.Is(err, ErrGuarded) { // else it is renewed until the guard has ended: nobody has crashed
		l.keeper.drop(t) // not before: until then only renewals keep the name
	}
	l.queue.ended(t)
	if l.events.verbose {
		l.events.unlocked(UnlockedEvent{LeaseInfo: t.info(), Err: err, Held: l.clock.Now() - t.granted})
	}
	return err
}

// free tells the database that the name is free, and tries again while that may
// help, for as long as ctx lets it wait. What it could not free for certain is freed in
// the background.
func (l *Locker) release(ctx context.Context, t *term) error {
	if t.unknown { // a request may still arrive, when the name has been freed
		defer l.cleanup.add(driver.AbandonRequest{Name: t.name, Acq: t.acq, Guarded: t.isGuarded(), Shared: t.shared}, t.rowTTL())
	}
	base := l.base
	if base.Err() != nil { // Close gave up before: the statement is over at once, or it is one of a session's
		base = context.Background()
	}
	wait, cancel := unlockContext(base, ctx, t.timeout)
	defer cancel()
	freed, sharedBatch, err := l.releaseOnce(wait, t, false)
	if freed {
		return nil
	}
	return l.retryRelease(wait, t, sharedBatch, err)
}

// unlockWait returns a context that ends when an Unlock has waited for the database for
// as long as two statements may take, or at a deadline of ctx that lies ahead. Who
// unlocks when ctx has ended wants the name to be free all the same, and waits for one
// statement.
func unlockContext(base, ctx context.Context, statement time.Duration) (context.Context, context.CancelFunc) {
	if ctx == nil || ctx.Err() != nil {
		return context.WithTimeout(base, statement)
	}
	wait, cancel := context.WithTimeout(base, 2*statement)
	deadline, ok := ctx.Deadline()
	if !ok {
		return wait, cancel
	}
	bounded, end := context.WithDeadline(wait, deadline)
	return bounded, func() { end(); cancel() }
}

// insistToFree is free after a first request that has not freed.
func (l *Locker) retryRelease(ctx context.Context, t *term, sharedBatch bool, err error) error {
	freed, unknown, isolated := false, false, false
	pause := newBackoff(&l.cfg)
	guardWait := l.clock.Now() + guardPatience
	for {
		fault := driver.Again
		if err == nil {
			if err = l.whyNotReleased(ctx, t, unknown); !errors.Is(err, ErrGuarded) {
				return err
			}
		} else {
			fault = l.mode.Classify(err)
		}
		unknown = unknown || fault == driver.Unclear
		isolated = isolated || sharedBatch // what failed may have done so for another's sake
		switch {
		case fault == driver.Again && t.isGuarded() && l.clock.Now() >= guardWait:
			if !errors.Is(err, ErrGuarded) { // on SQLite a guard locks all of the database
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

// freeLater frees a hold in the background, and says so.
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

// guardPatience is how long an Unlock of a lease that was guarded tries to free a
// name whose row is locked. What has locked it may be a renewal that was under way,
// or the end of a transaction.
const guardPatience = 200 * time.Millisecond

// sendReleases runs one statement, and tells the waiters of this process who have a
// name now.
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

// releaseOnce sends the request once.
func (l *Locker) releaseOnce(ctx context.Context, t *term, isolated bool) (freed, sharedBatch bool, err error) {
	req := driver.ReleaseRequest{Name: t.name, Acq: t.acq, Version: t.token, MinHold: t.minHold, Guarded: t.isGuarded(), Shared: t.shared,
		Awaited: l.claims.hasWaiter(t.name)}
	a, ok := l.releases.Do(ctx, nil, req, releaseKind(t, &req, isolated), t.timeout)
	if !ok {
		return false, false, fmt.Errorf("%w: %w", errUnanswered, ctx.Err())
	}
	return a.Err == nil && a.Result.Freed, a.SharedBatch, a.Err
}

// releaseKind tells with which requests one can go together.
func releaseKind(t *term, req *driver.ReleaseRequest, isolated bool) batch.Kind {
	k := batch.Kind{Group: ttlGroup(t.ttl), Isolated: isolated}
	for i, flag := range []bool{req.Guarded, req.Shared, req.Awaited} {
		if flag {
			k.Flags |= 1 << i
		}
	}
	return k
}

// notFreed finds out why the database did not free a hold: it does not know it any
// more, or a transaction guards it. It returns nil if an earlier release without a
// reply did it.
func (l *Locker) whyNotReleased(ctx context.Context, t *term, unknown bool) error {
	reason, err := l.whyGone(ctx, t)
	switch {
	case t.isGuarded() && (err != nil || reason == 0):
		return guardedError(t.name)
	case unknown && l.mode.sessions == nil: // a session that has ended may have done so before
		return nil
	case reason == 0:
		reason = LostTaken
	}
	return &LostError{Name: t.name, Token: t.token, Reason: reason}
}
