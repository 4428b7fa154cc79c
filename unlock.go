package sqllock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// unlock takes one lease out of its hold and, if it was the last, frees the name
// and lets the next waiter of this process look.
func (l *Locker) unlock(lease *Lease) error {
	l.gate.resume()
	defer l.gate.leave()
	h := lease.hold
	last, err := h.leave(lease)
	if last && errors.Is(err, ErrLost) && h.delay == 0 {
		// A renewal that arrives late could keep the name for nobody. With a lock
		// delay that is wanted.
		l.undo.add(h.abandonment())
	}
	if !last || err != nil {
		return err
	}
	l.keeper.drop(h)
	err = l.free(h)
	if errors.Is(err, ErrGuarded) {
		h.back(lease)
		l.keeper.keep(h)
		return err
	}
	h.end()
	l.queue.freed(h)
	l.events.unlocked(UnlockedEvent{LeaseInfo: h.info(), Err: err, Held: l.clock.now() - h.granted})
	return err
}

// free tells the database that the name is free, and tries again while that may
// help, for as long as two statements may take. What it could not free for
// certain is freed in the background.
func (l *Locker) free(h *hold) error {
	timeout := l.cfg.timeout(h.ttl)
	ctx, cancel := context.WithTimeout(l.base, 2*timeout)
	defer cancel()
	unclear := false
	pause := newPauses(&l.cfg)
	patience := l.clock.now() + guardPatience
	for {
		freed, err := l.releaseOnce(ctx, h)
		switch {
		case err == nil:
			if h.unclear { // the name was free for a moment, and may not be any more
				l.undo.add(driver.AbandonRequest{Name: h.name, Acq: h.acq}, h.kept())
			}
			if freed || unclear && !h.isGuarded() { // an unclear release did run
				return nil
			}
			err := l.notFreed(ctx, h, unclear)
			if errors.Is(err, ErrGuarded) && l.clock.now() < patience && nap(ctx, pause.next()) == nil {
				continue
			}
			return err
		}
		fault := l.mode.classify(err)
		unclear = unclear || fault == driver.Unclear
		if fault == driver.Again && h.isGuarded() && l.clock.now() >= patience { // all of the database may be locked by the guard
			return fmt.Errorf("%w: %w", guardedError(h.name), err)
		}
		if fault == driver.Refused || nap(ctx, pause.next()) != nil {
			l.undo.add(h.abandonment())
			return fmt.Errorf("sqllock: unlock %q: it will be freed in the background, at latest by its expiry: %w", h.name, err)
		}
	}
}

// guardPatience is how long an Unlock waits for a row that is locked: what has
// locked it may be a renewal that was under way.
const guardPatience = 200 * time.Millisecond

func (l *Locker) releaseOnce(ctx context.Context, h *hold) (freed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.timeout(h.ttl))
	defer cancel()
	res, err := l.mode.release(ctx, []driver.ReleaseRequest{{Name: h.name, Acq: h.acq, Version: h.token, MinHold: h.minHold, Guarded: h.isGuarded()}})
	return err == nil && res[0], err
}

// notFreed finds out why the database did not free a hold: it does not know it any
// more, or a transaction guards it.
func (l *Locker) notFreed(ctx context.Context, h *hold, unclear bool) error {
	reason, err := l.whyGone(ctx, h)
	switch {
	case h.isGuarded() && (err != nil || reason == 0):
		return guardedError(h.name)
	case unclear:
		return nil
	case reason == 0:
		reason = LostTaken
	}
	return &LostError{Name: h.name, Token: h.token, Reason: reason}
}

// forsake leaves a hold that a transaction guards to its expiry. Nobody gets the
// name before the transaction has ended.
func (l *Locker) forsake(h *hold) {
	l.keeper.drop(h)
	h.end()
	l.undo.add(h.abandonment())
	l.queue.freed(h)
}

// kept is for how long the row is kept after a grant or a renewal.
func (h *hold) kept() time.Duration { return max(h.ttl, h.minHold) + h.delay }

// abandonment frees the hold in the background, and for how long to try.
func (h *hold) abandonment() (driver.AbandonRequest, time.Duration) {
	return driver.AbandonRequest{Name: h.name, Acq: h.acq, MinHold: h.minHold, Guarded: h.isGuarded()}, h.kept()
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
