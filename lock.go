package sqllock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// Lock waits until it holds name and returns the lease. ctx bounds the wait
// only: once Lock has returned, cancelling ctx changes nothing for the lease.
// While the database cannot be reached, Lock goes on trying.
//
// If ctx carries a lease of this Locker for this very name (see
// [Lease.Context]), or an owner that holds it (see [WithOwner]), Lock re-enters
// that lease at once: same token, and as many Unlocks are needed as Locks were
// made. Otherwise nobody re-enters: two goroutines exclude each other.
//
// In the unique mode those who wait for a name stand in line, whatever process they
// are in, and are served in the order in which they came; not so with
// [UniqueOptions].Barging or [Tries]. One that the database does not hear of for the
// TTL, or 5 s if that is less, may be passed over. In the other modes there is an order
// within a Locker only. If ctx carries leases, and the wait can end only after one of
// them has, Lock returns [ErrDeadlock] to the waiter that came last.
//
// Lock returns a lease or an error, never both: [ErrInvalidName],
// [ErrInvalidOwner] or [ErrInvalidOption] before any SQL; [ErrClosed]; an
// [ErrDeadlock]; an [ErrHeld] when Wait or Tries are used up; a [*LostError] if ctx carries a lost
// lease of the name, or if the database's reply came too late to be used; or an
// error that wraps ctx's and says what was waited for. After an error this call
// holds nothing, and if the database may believe otherwise it is told in the
// background.
func (l *Locker) Lock(ctx context.Context, name string, opts ...LockOption) (*Lease, error) {
	return l.lock(ctx, name, false, opts)
}

// RLock is Lock for a lease that is shared: any number of holders may have the name
// at the same time if all of them share it. With a context that carries an exclusive
// lease of the name it re-enters that. An owner that shares a name cannot have it
// alone: Lock then returns [ErrUpgrade]. [MinHold] and [Value] do not apply.
//
// In the unique mode readers and writers stand in one line: readers that are next to
// each other in it enter together, and none enters before a writer that came earlier.
// In the other modes that is so within a Locker, but readers of others can keep a
// writer waiting.
func (l *Locker) RLock(ctx context.Context, name string, opts ...LockOption) (*Lease, error) {
	return l.lock(ctx, name, true, opts)
}

func (l *Locker) lock(ctx context.Context, name string, shared bool, opts []LockOption) (*Lease, error) {
	o, err := l.cfg.lockOptions(opts, shared)
	if err != nil {
		return nil, err
	}
	return l.enter(ctx, name, shared, func(owner string) (*Lease, error) {
		if o.hasWait {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, o.wait, errWaitOver)
			defer cancel()
		}
		return l.wait(ctx, l.newAttempt(name, owner, o), o)
	})
}

// TryLock is Lock without waiting: if somebody else holds name it returns a
// [*HeldError] that says who, and it returns the error of a database that cannot
// be reached. The options [Wait] and [Tries] do not apply.
func (l *Locker) TryLock(ctx context.Context, name string, opts ...LockOption) (*Lease, error) {
	return l.tryLock(ctx, name, false, opts)
}

// TryRLock is RLock without waiting, see TryLock.
func (l *Locker) TryRLock(ctx context.Context, name string, opts ...LockOption) (*Lease, error) {
	return l.tryLock(ctx, name, true, opts)
}

func (l *Locker) tryLock(ctx context.Context, name string, shared bool, opts []LockOption) (*Lease, error) {
	o, err := l.cfg.tryOptions(opts, shared)
	if err != nil {
		return nil, err
	}
	return l.enter(ctx, name, shared, func(owner string) (*Lease, error) {
		if h := l.queue.owned(name, owner); h != nil {
			if lease, err := h.enter(ctx, shared); lease != nil || errors.Is(err, ErrUpgrade) {
				return lease, err
			}
		}
		return l.try(ctx, name, owner, o)
	})
}

// slice is how long a statement may wait in the database. While it does, it is in
// the way of others, such as CREATE INDEX CONCURRENTLY.
const slice = time.Second

// errWaitOver is why the context of a Lock with the option Wait ended.
var errWaitOver = errors.New("wait over")

// enter checks what all acquisitions check, re-enters the lease that ctx carries
// if there is one, and otherwise calls acquire with the explicit owner, if any.
func (l *Locker) enter(ctx context.Context, name string, shared bool, acquire func(owner string) (*Lease, error)) (*Lease, error) {
	if err := checkCall(ctx, name); err != nil {
		return nil, err
	}
	owner, err := ownerFrom(ctx)
	if err != nil {
		return nil, err
	}
	if !l.gate.enter() {
		return nil, ErrClosed
	}
	defer l.gate.leave()
	carried, ok := ctx.Value(leaseKey{l, name}).(*Lease)
	ok = ok && !carried.unlocked.Load()
	if ok {
		if lost := carried.hold.lostError(); lost != nil {
			return nil, lost
		}
	}
	if ctx.Err() != nil {
		return nil, lockError(name, endOf(ctx))
	}
	if ok {
		if lease, err := carried.hold.enter(ctx, shared); lease != nil || err != nil {
			return lease, err
		}
	}
	return acquire(owner)
}

// try asks the database once, and again, for as long as one statement may take,
// if it says that trying again helps.
func (l *Locker) try(ctx context.Context, name, owner string, o lockOptions) (*Lease, error) {
	a := l.newAttempt(name, owner, o)
	pause := newPauses(&l.cfg)
	until := l.clock.Now() + l.cfg.timeout(o.ttl)
	for {
		h, held, err := a.ask(ctx)
		switch {
		case h != nil:
			return a.begin(ctx, h)
		case held != nil:
			a.giveUp()
			return nil, held
		case a.crowd && l.mode.Classify(err) == driver.Unclear: // once: then it is alone
		case l.mode.Classify(err) != driver.Again || l.clock.Now() >= until:
			a.giveUp()
			return nil, lockError(name, err)
		}
		if err := l.sleep(ctx, nil, pause.next()); err != nil {
			a.giveUp()
			return nil, lockError(name, err)
		}
	}
}

// wait asks the database, if nobody of this process is before it, and then queues up
// and does so whenever that may help.
func (l *Locker) wait(ctx context.Context, a *attempt, o lockOptions) (*Lease, error) {
	pause := pauses{l.cfg.retryMin, l.cfg.retryMax}
	var nap time.Duration
	if l.tickets.offered() && l.queue.quiet(a.req.Name) { // what order there is the database sees to
		lease, next, err := l.askOnce(ctx, a, o, &pause)
		if lease != nil || err != nil {
			return lease, err
		}
		nap = next
	}
	return l.queueUp(ctx, a, o, pause, nap)
}

// queueUp waits for nap first, if it is not 0.
func (l *Locker) queueUp(ctx context.Context, a *attempt, o lockOptions, pause pauses, nap time.Duration) (*Lease, error) {
	w := l.queue.join(a.req.Name, a.owner, o.shared)
	defer l.queue.leave(w)
	lines := l.tickets.offered() && !o.hasTries
	for {
		mine, ask := l.queue.look(w)
		if mine != nil {
			lease, err := mine.enter(ctx, o.shared)
			if lease != nil || errors.Is(err, ErrUpgrade) { // else it ends just now, and wakes us
				a.giveUp()
				return lease, err
			}
		}
		switch {
		case lines && (a.told || !ask): // nobody has to ask who knows that others do
			return l.stand(ctx, w, a)
		case !ask:
			nap = never
		case nap == 0:
			lease, next, err := l.askOnce(ctx, a, o, &pause)
			if lease != nil || err != nil {
				return lease, err
			}
			nap = next
		}
		if err := l.sleep(ctx, w.wake, nap); err != nil {
			a.giveUp()
			return nil, a.waitError(err)
		}
		nap = 0
	}
}

// askOnce makes one attempt of a waiter. With neither a lease nor an error, it
// tells after which pause to ask again.
func (l *Locker) askOnce(ctx context.Context, a *attempt, o lockOptions, pause *pauses) (*Lease, time.Duration, error) {
	if l.cfg.parks && a.told { // it is known by then who is in the way, if the wait ends in the middle
		a.req.Wait = min(slice, l.cfg.timeout(o.ttl)/2)
	}
	var asked time.Duration
	if a.req.Wait > 0 {
		asked = l.clock.Now()
	}
	h, held, err := a.ask(ctx)
	if h != nil {
		lease, err := a.begin(ctx, h)
		return lease, 0, err
	}
	nap := pause.next()
	switch {
	case held != nil && a.req.Wait > 0 && l.clock.Now()-asked >= a.req.Wait/2: // it has waited in the database
		nap = min(l.cfg.retryMin, a.untilExpiry())
	case held != nil:
		nap = min(nap, a.untilExpiry())
	case ctx.Err() != nil:
		a.giveUp()
		return nil, 0, a.waitError(endOf(ctx))
	case l.mode.Classify(err) == driver.Refused:
		a.giveUp()
		return nil, 0, lockError(a.req.Name, err)
	}
	if o.hasTries && a.asked >= o.tries {
		a.giveUp()
		return nil, 0, a.waitError(errWaitOver)
	}
	return nil, nap, nil
}

// sleep waits for d, a wake, the end of ctx or of the Locker.
func (l *Locker) sleep(ctx context.Context, wake <-chan struct{}, d time.Duration) error {
	var over <-chan time.Time
	if d != never {
		t := time.NewTimer(d)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-over:
		return nil
	case <-wake:
		return nil
	case <-ctx.Done():
		return endOf(ctx)
	case <-l.gate.ending:
		return ErrClosed
	}
}

// pauses are the growing, jittered pauses between the attempts of one waiter.
type pauses struct{ d, longest time.Duration }

func newPauses(c *config) *pauses { return &pauses{c.retryMin, c.retryMax} }

func (p *pauses) next() time.Duration {
	d := p.d
	p.d = min(2*p.d, p.longest)
	return d/2 + rand.N(d/2+1)
}

func lockError(name string, err error) error {
	if errors.Is(err, ErrClosed) {
		return ErrClosed
	}
	return fmt.Errorf("sqllock: lock %q: %w", name, err)
}
