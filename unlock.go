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
	if last && errors.Is(err, ErrLost) {
		// A renewal that arrives late could keep the name for nobody.
		l.undo.add(h.name, h.acq, h.ttl)
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
	if h.unclear {
		defer l.undo.add(h.name, h.acq, h.ttl)
	}
	unclear := false
	pause := newPauses(&l.cfg)
	for {
		freed, err := l.releaseOnce(ctx, h)
		switch {
		case err == nil && (freed || unclear): // an unclear release did run
			return nil
		case err == nil:
			return &LostError{Name: h.name, Token: h.token, Reason: LostTaken}
		}
		fault := l.mode.classify(err)
		unclear = unclear || fault == driver.Unclear
		if fault == driver.Refused || nap(ctx, pause.next()) != nil {
			l.undo.add(h.name, h.acq, h.ttl)
			return fmt.Errorf("sqllock: unlock %q: it will be freed in the background, at latest by its expiry: %w", h.name, err)
		}
	}
}

func (l *Locker) releaseOnce(ctx context.Context, h *hold) (freed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.timeout(h.ttl))
	defer cancel()
	res, err := l.mode.release(ctx, []driver.ReleaseRequest{{Name: h.name, Acq: h.acq, Version: h.token}})
	return err == nil && res[0], err
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
