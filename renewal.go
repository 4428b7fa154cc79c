package sqllock

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/clock"
)

// renew sends one renewal and gives each hold its result. With wait it waits for
// rows that somebody has locked.
func (k *keeper) renew(batch []*hold, wait bool) {
	slices.SortFunc(batch, func(a, b *hold) int { return cmp.Compare(a.name, b.name) })
	reqs := make([]driver.RenewRequest, len(batch))
	timeout := maxStatementTimeout
	before := k.clock.Now()
	for i, h := range batch {
		ttl, _ := h.stint(before)
		reqs[i] = driver.RenewRequest{Name: h.name, Acq: h.acq, Version: h.token, TTL: ttl + h.delay, Holds: max(h.holds(), 1), Shared: h.shared}
		timeout = min(timeout, h.timeout)
	}
	ctx, cancel := context.WithTimeout(k.ctx, timeout)
	defer cancel()

	res, err := k.mode.Renew(ctx, reqs, wait, timeout/2)
	if err != nil {
		k.failed(batch, err, false)
		return
	}
	if res.Now != 0 { // else nobody answered
		if jump, ok := k.jumps.Observe(before, k.clock.Now(), res.Now); ok {
			k.log.clockJump(ClockJumpEvent{Jump: jump})
		}
	}
	for i, h := range batch {
		if res.Errs != nil && res.Errs[i] != nil {
			k.failed([]*hold{h}, res.Errs[i], true)
		} else {
			k.settle(h, before, res.Status[i], res.Why)
		}
	}
}

// settle acts on what the database said about one lease, and why; before was read before
// it was asked.
func (k *keeper) settle(h *hold, before time.Duration, status driver.RenewStatus, why error) {
	switch status {
	case driver.Renewed:
		ttl, last := h.stint(before)
		h.extend(before+clock.Trust(ttl), last)
		due := before + k.cfg.beat(h.ttl/3)
		if last {
			due = never
		}
		k.plan(h, func(u *upkeep) { *u = upkeep{due: due} })
	case driver.Busy:
		k.plan(h, func(u *upkeep) { u.renewing, u.alone, u.due = false, true, k.clock.Now() })
	case driver.Revoked:
		h.lose(LostRevoked, nil)
	case driver.Ended:
		h.lose(LostSession, nil)
	default:
		h.lose(LostTaken, why)
	}
}

// plan changes what is to be done about a hold, unless it was dropped.
func (k *keeper) plan(h *hold, change func(*upkeep)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if u := k.kept[h]; u != nil {
		change(u)
		k.lookAt(u.due)
	}
}

// failed plans the retry of a renewal that did not get through: alone, if others in its
// batch did. If not, the next batch passes over a row that is locked still.
func (k *keeper) failed(batch []*hold, err error, alone bool) {
	if k.ctx.Err() != nil {
		return
	}
	reason := LostUnreachable
	if errors.Is(err, driver.ErrNoConnection) {
		reason = LostPoolExhausted
	}
	for _, h := range batch {
		k.plan(h, func(u *upkeep) {
			u.renewing, u.alone = false, alone
			u.due = k.clock.Now() + retryPause(h.ttl, u.failures)
			u.failures++
		})
		if h.fret(reason, err) {
			k.log.jeopardy(JeopardyEvent{LeaseInfo: h.info(), Err: err, Remaining: h.remaining()})
		}
	}
}

// retryPause is how long to wait before the renewal after the given number of
// failures: at once after the first, which often was a dead connection, then
// growing, to a thirtieth of the TTL at most.
func retryPause(ttl time.Duration, failures int) time.Duration {
	if failures == 0 {
		return 0
	}
	pause := min(10*time.Millisecond<<min(failures, 10), ttl/30)
	return pause/2 + rand.N(pause/2)
}
