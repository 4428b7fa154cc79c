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
	l.gate.resume()
	defer l.gate.leave()
	h := lease.hold
	last, err := h.leave(lease)
	if last && errors.Is(err, ErrLost) && h.delay == 0 && !l.cfg.sessions {
		// A renewal that arrives late could keep the name for nobody. With a lock
		// delay that is wanted.
		l.undo.add(h.abandonment())
	}
	if !last || err != nil {
		return err
	}
	err = l.free(ctx, h)
	if !errors.Is(err, ErrGuarded) { // else it is renewed until the guard has ended: nobody has crashed
		l.keeper.drop(h) // not before: until then only renewals keep the name
	}
	l.queue.freed(h)
	if l.events.routine {
		l.events.unlocked(UnlockedEvent{LeaseInfo: h.info(), Err: err, Held: l.clock.Now() - h.granted})
	}
	return err
}

// free tells the database that the name is free, and tries again while that may
// help, for as long as ctx lets it wait. What it could not free for certain is freed in
// the background.
func (l *Locker) free(ctx context.Context, h *hold) error {
	if h.unclear { // a request may still arrive, when the name has been freed
		defer l.undo.add(driver.AbandonRequest{Name: h.name, Acq: h.acq, Guarded: h.isGuarded(), Shared: h.shared}, h.kept())
	}
	base := l.base
	if base.Err() != nil { // Close gave up before: the statement is over at once, or it is one of a session's
		base = context.Background()
	}
	wait, cancel := unlockWait(base, ctx, h.timeout)
	defer cancel()
	freed, crowd, err := l.releaseOnce(wait, h, false)
	if freed {
		return nil
	}
	return l.insistToFree(wait, h, crowd, err)
}

// unlockWait returns a context that ends when an Unlock has waited for the database for
// as long as two statements may take, or at a deadline of ctx that lies ahead. Who
// unlocks when ctx has ended wants the name to be free all the same, and waits for one
// statement.
func unlockWait(base, ctx context.Context, statement time.Duration) (context.Context, context.CancelFunc) {
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
func (l *Locker) insistToFree(ctx context.Context, h *hold, crowd bool, err error) error {
	freed, unclear, alone := false, false, false
	pause := newPauses(&l.cfg)
	patience := l.clock.Now() + guardPatience
	for {
		fault := driver.Again
		if err == nil {
			if err = l.notFreed(ctx, h, unclear); !errors.Is(err, ErrGuarded) {
				return err
			}
		} else {
			fault = l.mode.Classify(err)
		}
		unclear = unclear || fault == driver.Unclear
		alone = alone || crowd // what failed may have done so for another's sake
		switch {
		case fault == driver.Again && h.isGuarded() && l.clock.Now() >= patience:
			if !errors.Is(err, ErrGuarded) { // on SQLite a guard locks all of the database
				err = fmt.Errorf("%w: %w", guardedError(h.name), err)
			}
			fallthrough
		case fault == driver.Refused || l.base.Err() != nil || nap(ctx, pause.next()) != nil:
			return l.freeLater(h, err)
		}
		if freed, crowd, err = l.releaseOnce(ctx, h, alone); freed {
			return nil
		}
	}
}

// freeLater frees a hold in the background, and says so.
func (l *Locker) freeLater(h *hold, err error) error {
	if l.base.Err() != nil { // there is no background any more
		l.keeper.drop(h)
		return fmt.Errorf("sqllock: unlock %q: it will be free when it expires: %w: %w", h.name, ErrClosed, err)
	}
	r, kept := h.abandonment()
	if errors.Is(err, ErrGuarded) {
		l.undo.guarded(r, kept, func() { l.keeper.drop(h) })
	} else {
		l.undo.add(r, kept)
	}
	return fmt.Errorf("sqllock: unlock %q: it will be freed in the background, at latest by its expiry: %w", h.name, err)
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
		for _, turn := range res[i].Next {
			l.tickets.turn(turn, before)
		}
	}
	return res, nil
}

// releaseOnce sends the request once.
func (l *Locker) releaseOnce(ctx context.Context, h *hold, alone bool) (freed, crowd bool, err error) {
	req := driver.ReleaseRequest{Name: h.name, Acq: h.acq, Version: h.token, MinHold: h.minHold, Guarded: h.isGuarded(), Shared: h.shared,
		Awaited: l.tickets.waitFor(h.name)}
	a, ok := l.releases.Do(ctx, nil, req, releaseKind(h, &req, alone), h.timeout)
	if !ok {
		return false, false, fmt.Errorf("%w: %w", errUnanswered, ctx.Err())
	}
	return a.Err == nil && a.Result.Freed, a.SharedBatch, a.Err
}

// releaseKind tells with which requests one can go together.
func releaseKind(h *hold, req *driver.ReleaseRequest, alone bool) batch.Kind {
	k := batch.Kind{Group: group(h.ttl), Isolated: alone}
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
func (l *Locker) notFreed(ctx context.Context, h *hold, unclear bool) error {
	reason, err := l.whyGone(ctx, h)
	switch {
	case h.isGuarded() && (err != nil || reason == 0):
		return guardedError(h.name)
	case unclear && !l.cfg.sessions: // a session that has ended may have done so before
		return nil
	case reason == 0:
		reason = LostTaken
	}
	return &LostError{Name: h.name, Token: h.token, Reason: reason}
}

// kept is for how long the row is kept after a grant or a renewal.
func (h *hold) kept() time.Duration { return max(h.ttl, h.minHold) + h.delay }

// abandonment frees the hold in the background, and for how long to try.
func (h *hold) abandonment() (driver.AbandonRequest, time.Duration) {
	return driver.AbandonRequest{Name: h.name, Acq: h.acq, MinHold: h.minHold, Guarded: h.isGuarded(), Shared: h.shared}, h.kept()
}

// nap waits for d, or less if ctx ends.
func nap(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
