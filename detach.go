package sqllock

import (
	"context"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// Detach gives the term away: this lease ends, the name stays held, and whoever has the text
// that Detach returns becomes the holder with [Locker.Adopt], in this process or in another.
// The context of the lease ends with cause [ErrDetached], which is no loss; the next Unlock,
// such as that of a defer or of [Locker.Do], does nothing and returns nil.
//
// Nobody renews a detached term. If nobody adopts it, the name is free when the TTL of the
// lease is over, counted from Detach, and no crash is reported. [MaxHold] can shorten that
// time. With [MinHold] it lasts until that is over at least; the options of an adopter replace
// it. A [LockDelay] is ignored.
// Those who wait for the name keep waiting, and [Locker.ForceUnlock] ends the term as it ends
// others.
//
// The text is a secret of up to 381 bytes of A-Z, a-z, 0-9, - and _, which fits into a URL.
// Whoever has it can become the holder until it is adopted or has expired. The library shows
// it nowhere, and the database knows a hash of it only.
//
// Detach waits for transactions that guard the lease. It waits for the database until the
// deadline of ctx, and at most for the time of two statements, see
// [UniqueOptions].StatementTimeout; cancelling ctx meanwhile has no effect. If a reply is lost
// it sends the request again with the same secret, so that nothing is lost with the reply. It
// returns a text or an error, never both.
//
// After these errors the lease goes on, and you still have to unlock it:
//
//   - [ErrGuarded] if a transaction that guards the lease was open all the time;
//   - [ErrInvalidOption] if the lease was re-entered and not unlocked as often, if a
//     transaction ends it (see [Lease.UnlockTx]), or if ctx is nil;
//   - [ErrUnsupported] if the lease is shared or a permit, in the modes for update and advisory,
//     and of a quorum;
//   - the error of ctx if it has ended before;
//   - [ErrClosed] if Close has given up waiting: the lease is not renewed any more;
//   - another error if the database has refused the request, or was not reached.
//
// After these errors the lease is over:
//
//   - [ErrNotHeld] if the lease was unlocked before, and a [*LostError] if it was lost;
//   - an error that is [ErrUnknown] if the database has not replied, so that nobody knows
//     whether the term was detached. Nobody can adopt it. The name is released in the
//     background, and at the latest when the lease expires.
func (l *Lease) Detach(ctx context.Context) (handover string, err error) {
	if err := driver.CheckContext(ctx); err != nil {
		return "", err
	}
	if l.isZero() {
		return "", ErrNotHeld
	}
	return l.term.locker.detach(ctx, l)
}

// Adopt makes this Locker the holder of a name whose term was given away with
// [Lease.Detach]. handover is the text that Detach has returned. Any Locker of unique mode
// on the same tables can adopt the term, in any process, once and ahead of all who wait.
// The new lease has a higher token, so that what the former holder still writes with its
// token is refused. It has the options of this call: those of the former lease, its Value
// among them, do not count. The options are those of [Locker.TryLock].
//
// While the database cannot be reached, or while a transaction of the former holder guards the
// lease, Adopt keeps trying until ctx ends. If only the reply is lost, it finds out that it
// holds the name. Adopt returns
//
//   - [ErrNotHeld] if there is nothing to adopt: the term was adopted before or has expired,
//     or ForceUnlock has ended it;
//   - [ErrInvalidOption] if handover is no such text or is of other tables, or if an option
//     is out of bounds or does not apply, before any SQL;
//   - [ErrUnsupported] in the modes for update and advisory, and of a quorum, before any SQL;
//   - otherwise the errors of [Locker.Lock].
//
// No error shows the text. After an error this call holds nothing. If the outcome of a request
// is unknown then, the Locker releases the name in the background, and nobody else can adopt
// it.
func (l *Locker) Adopt(ctx context.Context, handover string, opts ...LockOption) (*Lease, error) {
	if err := driver.CheckContext(ctx); err != nil {
		return nil, err
	}
	if l.mode.quorum {
		return nil, fmt.Errorf("%w: adopt: a quorum keeps each lock in this mode", ErrUnsupported)
	}
	if l.mode.sessions != nil {
		return nil, fmt.Errorf("%w: adopt: a session keeps each lock in this mode", ErrUnsupported)
	}
	o, err := l.tryOptions(opts, false)
	if err != nil {
		return nil, err
	}
	owner, err := ownerFrom(ctx)
	if err != nil {
		return nil, err
	}
	h, err := parseHandover(handover)
	if err != nil {
		return nil, err
	}
	if h.database != databaseMark(l.mode.database) {
		return nil, fmt.Errorf("%w: adopt %q: the handover is one of other tables", ErrInvalidOption, h.name)
	}
	if !l.inflight.begin() {
		return nil, ErrClosed
	}
	defer l.inflight.done()
	if ctx.Err() != nil {
		return nil, lockError(h.name, endOf(ctx))
	}
	a := l.newAcquisition(h.name, owner, o)
	a.req.Adopts = h.key()
	return a.adopt(ctx)
}

// adopt takes a detached term over.
func (a *acquisition) adopt(ctx context.Context) (*Lease, error) {
	for pause := newBackoff(&a.locker.cfg); ; {
		t, err := a.takeOver(ctx, a.req)
		switch {
		case t != nil:
			return a.beginTerm(ctx, t)
		case err == nil:
			a.abandon()
			return nil, fmt.Errorf("%w: adopt %q: it was adopted before, has expired, or was revoked", ErrNotHeld, a.req.Name)
		}
		if end := a.waitToResume(ctx, err, pause); end != nil {
			return nil, end
		}
	}
}

// detach gives the term of a lease away.
func (l *Locker) detach(ctx context.Context, lease *Lease) (string, error) {
	t := lease.term
	if l.mode.quorum {
		return "", fmt.Errorf("%w: detach %q: a quorum keeps the lock", ErrUnsupported, t.name)
	}
	if l.mode.sessions != nil {
		return "", fmt.Errorf("%w: detach %q: a session keeps the lock", ErrUnsupported, t.name)
	}
	if ctx.Err() != nil {
		return "", fmt.Errorf("sqllock: detach %q: %w", t.name, endOf(ctx))
	}
	if l.base.Err() != nil { // Close gave up before
		return "", fmt.Errorf("sqllock: detach %q: %w", t.name, ErrClosed)
	}
	l.inflight.add()
	defer l.inflight.done()
	if err := t.beginDetach(lease); err != nil {
		return "", err
	}
	h := newHandover(t.name, l.mode.database)
	detached, unknown, err := l.sendDetach(ctx, t, h.key())
	switch {
	case err != nil && !unknown:
		t.stay()
		l.queue.back(t)
		return "", err
	case err == nil && !detached:
		return "", l.notDetached(ctx, t)
	}
	if over := t.endLease(lease, ErrDetached); over != nil { // unlocked or lost meanwhile
		l.cleanUpDetach(t, h.key())
		return "", over
	}
	lease.endedBefore.Store(true)
	if unknown {
		l.cleanUpDetach(t, h.key())
	} else if t.unknown { // a request for the name may still arrive
		l.cleanup.add(t.cleanupRequest())
	}
	l.keeper.drop(t)
	l.queue.ended(t)
	l.detachedEvent(t, err)
	if err != nil {
		return "", err
	}
	return h.text(), nil
}

// sendDetach sends the request until the database has said whether the term is detached. With
// an error, unknown says that a request has had no reply.
func (l *Locker) sendDetach(ctx context.Context, t *term, key driver.ID) (detached, unknown bool, err error) {
	bound := newUnlockBound(ctx, t.timeout)
	wait := l.deadlines.borrow(l.base, bound.until, bound.early)
	defer l.deadlines.giveBack(wait)
	last := l.clock.Now() + mostOf(bound.until) // a request that is cut short would make unknown what is certain
	for pause := newBackoff(&l.cfg); ; {
		detached, err = l.detachOnce(wait, t, key)
		if err == nil {
			return detached, false, nil
		}
		fault := l.mode.Classify(err)
		unknown = unknown || fault == driver.Unclear
		if fault == driver.Refused || !unknown && l.clock.Now() > last || sleep(wait, pause.next()) != nil {
			return false, unknown, detachError(t, fault, unknown, err)
		}
	}
}

// detachError is the error of a Detach after which the term goes on, or after which nobody knows.
func detachError(t *term, fault driver.Fault, unknown bool, err error) error {
	switch {
	case unknown:
		return fmt.Errorf("%w: detach %q: it will be freed in the background, at latest by its expiry: %w", ErrUnknown, t.name, err)
	case fault == driver.Again && t.isGuarded():
		return fmt.Errorf("%w: %q is held as before: %w", ErrGuarded, t.name, err)
	}
	return fmt.Errorf("sqllock: detach %q: %w", t.name, err)
}

// detachOnce sends one request.
func (l *Locker) detachOnce(ctx context.Context, t *term, key driver.ID) (detached bool, err error) {
	now := l.clock.Now()
	ttl, _ := t.nextTTL(now)
	ttl = max(ttl, t.granted+t.minHold-now)
	req := driver.ReleaseRequest{Name: t.name, Acq: t.acq, Version: t.token, Guarded: t.isGuarded(), To: key, TTL: ttl}
	err = l.withTimeout(ctx, t.timeout, func(ctx context.Context) error {
		res, err := l.mode.Release(ctx, []driver.ReleaseRequest{req})
		if err == nil {
			detached = res[0].Freed
		}
		return err
	})
	return detached, err
}

// notDetached ends a term that the database does not know any more, and returns why.
func (l *Locker) notDetached(ctx context.Context, t *term) error {
	reason, err := l.endReason(ctx, t)
	if err != nil || reason == 0 {
		reason = LostTaken
	}
	t.stay()
	t.lose(reason, nil)
	if lost := t.lostError(); lost != nil {
		return lost
	}
	return ErrNotHeld // it was unlocked meanwhile
}

// cleanUpDetach frees, in the background, what a request may have left: the term as it was, or
// detached.
func (l *Locker) cleanUpDetach(t *term, key driver.ID) {
	r, kept := t.cleanupRequest()
	l.cleanup.add(r, kept)
	r.Acq = key
	l.cleanup.add(r, kept)
}

func (l *Locker) detachedEvent(t *term, err error) {
	if l.events.verbose {
		l.events.unlocked(t, l.clock.Now()-t.granted, true, err)
	}
}

// beginDetach makes the term one that a request may end, so that it is not re-entered and no
// renewal takes its end for a loss.
func (t *term) beginDetach(l *Lease) error {
	t.expire()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.state == termLost:
		return t.lost
	case l.unlocked.Load() || t.state != termLive:
		return ErrNotHeld
	case t.together():
		return fmt.Errorf("%w: detach %q: the lease is shared, or a permit", ErrUnsupported, t.name)
	case t.count > 1:
		return fmt.Errorf("%w: detach %q: the lease was re-entered, %d Unlocks are missing", ErrInvalidOption, t.name, t.count-1)
	case t.leaving:
		return fmt.Errorf("%w: detach %q: another call or a transaction ends it", ErrInvalidOption, t.name)
	}
	t.leaving, t.leavingSince = true, never
	return nil
}

// stay makes the term what it was before beginDetach.
func (t *term) stay() {
	t.mu.Lock()
	t.leaving, t.leavingSince = false, time.Duration(0)
	t.mu.Unlock()
}
