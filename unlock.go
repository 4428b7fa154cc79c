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
	for {
		freed, err := l.releaseOnce(ctx, h)
		switch {
		case err == nil:
			if h.unclear { // the name was free for a moment, and may not be any more
				l.undo.add(driver.AbandonRequest{Name: h.name, Acq: h.acq}, h.kept())
			}
			if freed || unclear { // an unclear release did run
				return nil
			}
			return &LostError{Name: h.name, Token: h.token, Reason: l.whyGone(ctx, h)}
		}
		fault := l.mode.classify(err)
		unclear = unclear || fault == driver.Unclear
		if fault == driver.Refused || nap(ctx, pause.next()) != nil {
			l.undo.add(h.abandonment())
			return fmt.Errorf("sqllock: unlock %q: it will be freed in the background, at latest by its expiry: %w", h.name, err)
		}
	}
}

func (l *Locker) releaseOnce(ctx context.Context, h *hold) (freed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.timeout(h.ttl))
	defer cancel()
	res, err := l.mode.release(ctx, []driver.ReleaseRequest{{Name: h.name, Acq: h.acq, Version: h.token, MinHold: h.minHold}})
	return err == nil && res[0], err
}

// whyGone asks why the database does not know a hold any more, by a renewal that
// cannot succeed.
func (l *Locker) whyGone(ctx context.Context, h *hold) Reason {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.timeout(h.ttl))
	defer cancel()
	res, err := l.mode.renew(ctx, []driver.RenewRequest{{Name: h.name, Acq: h.acq, Version: h.token, TTL: time.Microsecond}}, false)
	if err == nil && res.Status[0] == driver.Revoked {
		return LostRevoked
	}
	return LostTaken
}

// kept is for how long the row is kept after a grant or a renewal.
func (h *hold) kept() time.Duration { return max(h.ttl, h.minHold) + h.delay }

// abandonment frees the hold in the background, and for how long to try.
func (h *hold) abandonment() (driver.AbandonRequest, time.Duration) {
	return driver.AbandonRequest{Name: h.name, Acq: h.acq, MinHold: h.minHold}, h.kept()
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
