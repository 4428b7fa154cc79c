package sqllock

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// Lease is one successful acquisition. It is safe for concurrent use.
//
// A lease is not a mutex: it ends by itself when its holder cannot renew it. Work under a
// lease must watch [Lease.Context]. A write that a former holder must never make has to
// carry [Lease.Token] to where tokens are compared.
//
// No caller holds a nil *Lease or the zero Lease: Unlock, Guard and InTx return
// [ErrNotHeld], Context and Bind return contexts that have ended with that cause, and the
// other methods return zero values.
type Lease struct {
	term     *term
	ctx      leaseContext
	unlocked atomic.Bool
	// endedBefore says that UnlockInTx or Detach has ended the lease, and no Unlock came after it.
	endedBefore atomic.Bool
}

// init makes l a lease of term t whose context carries the values of ctx. The caller holds
// t.mu or is the only one that knows t.
func (l *Lease) init(ctx context.Context, t *term) {
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	l.term, l.ctx = t, leaseContext{Context: inner, cancel: cancel, lease: l}
}

// isZero reports whether the lease is nil or zero.
func (l *Lease) isZero() bool { return l == nil || l.term == nil }

// notHeld is the context of a nil or zero lease.
var notHeld = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(ErrNotHeld)
	return ctx
}()

// Name returns the locked name.
func (l *Lease) Name() string {
	if l.isZero() {
		return ""
	}
	return l.term.name
}

// Token returns the fencing token: the version of the row. It is positive and less than
// 2^53. All leases of one term have the same token, and every later exclusive term has a
// higher one. Each permit has a token of its own, which is higher than those of all terms of
// its slot before it. The token of a shared lease is higher than those of all exclusive terms
// before it, and lower than those of all exclusive terms after it. Readers that share the
// name have the same token in unique mode; in the modes for update and advisory each has a
// token of its own.
func (l *Lease) Token() int64 {
	if l.isZero() {
		return 0
	}
	return l.term.token
}

// Owner returns the owner: the id given to [WithOwner], or a random id of this
// acquisition.
func (l *Lease) Owner() string {
	if l.isZero() {
		return ""
	}
	return l.term.owner
}

// Shared reports whether the lease is shared, so that other readers may hold the name at the
// same time. That of a permit is not.
func (l *Lease) Shared() bool { return !l.isZero() && l.term.shared }

// Permit reports whether the lease is a permit of a [Semaphore].
func (l *Lease) Permit() bool { return !l.isZero() && l.term.permit }

// Slot returns which of the permits of the name the lease is, from 0, and always the lowest that
// was free. Two permits that are held at the same time have different slots. After a Resize a
// slot can be as high as the permits that there were before. Slot returns 0 if the lease is no
// permit.
//
// Tokens rise from term to term of a slot. A resource that compares tokens must do so for each
// slot apart: a higher token of another slot ends nothing.
func (l *Lease) Slot() int {
	if l.isZero() {
		return 0
	}
	return l.term.slot
}

// Remaining returns for how long the lease is valid unless it is renewed, at most its TTL.
// It returns 0 if the lease was lost or unlocked. It reads a clock and does not block.
func (l *Lease) Remaining() time.Duration {
	if l.isZero() {
		return 0
	}
	l.term.expire()
	if l.unlocked.Load() { // other leases of the term may still be held
		return 0
	}
	left := l.term.remaining()
	if left <= 0 { // an answer of 0 is final
		return l.term.certainlyRemaining()
	}
	return left
}

// Context returns a context that ends with the lease: with cause [*LostError] when the
// lease is lost, [ErrUnlocked] when it is unlocked, [ErrDetached] when it is given away,
// [ErrClosed] when the Locker is being closed, and [ErrResignRequested] when its holder is a
// leader that was asked to resign and listens. It carries the values of the context that was
// passed to Lock, but not its cancellation or deadline. A Lock with this context, or with one derived from it,
// re-enters the lease.
//
// Its Err method reads the clock: after a pause of the process, the first call reports the
// loss. Its Done channel, and contexts derived from it, follow within 100 ms.
func (l *Lease) Context() context.Context {
	if l.isZero() {
		return notHeld
	}
	return &l.ctx
}

// Bind returns a context that ends with ctx or with the lease, whichever is first. It
// carries the values of ctx and the lease. You must call the CancelFunc when you are done
// with it. If ctx is nil, the context that Bind returns has ended, with a cause that is
// [ErrInvalidOption].
func (l *Lease) Bind(ctx context.Context) (context.Context, context.CancelFunc) {
	err := driver.CheckContext(ctx)
	if err != nil {
		ctx = context.Background()
	} else if l.isZero() {
		err = ErrNotHeld
	}
	inner, cancel := context.WithCancelCause(ctx)
	if err != nil {
		cancel(err)
		return inner, func() {}
	}
	bound := &leaseContext{Context: inner, cancel: cancel, lease: l}
	stop := context.AfterFunc(l.ctx.Context, bound.check)
	bound.check() // a lease that is over is over at once
	return bound, func() {
		stop()
		cancel(context.Canceled)
	}
}

// Unlock gives the lease back. It first cancels the lease's context. When all leases of
// the term are unlocked, Unlock releases the name and the next waiter gets it.
//
// Unlock waits for the database until the deadline of ctx, and at most for the time of two
// statements, see [UniqueOptions].StatementTimeout. If ctx has ended already, it waits for
// the time of one statement, so that "defer lease.Unlock(ctx)" releases the name.
// Cancelling ctx meanwhile has no effect. Unlock returns
//
//   - nil if the lease was held until now;
//   - [ErrNotHeld] if this lease was unlocked before;
//   - a [*LostError] if it was lost before;
//   - [ErrGuarded] if a transaction that guards the lease is still open. No other caller
//     gets the name before the transaction ends; soon after that the name is released in
//     the background;
//   - another error, wrapped, if the database could not be reached or has not replied in
//     time. The name is then released in the background, and at the latest when the
//     lease expires. After Close only the expiry releases it. The error is also
//     [context.DeadlineExceeded] if there was no reply;
//   - also [ErrInvalidOption] if ctx is nil, which counts as a context that has ended.
func (l *Lease) Unlock(ctx context.Context) error {
	if l.isZero() {
		return ErrNotHeld
	}
	err := l.term.locker.unlock(ctx, l)
	if errors.Is(err, ErrNotHeld) && l.endedBefore.Swap(false) {
		err = nil
	}
	return join(driver.CheckContext(ctx), err)
}

// leaseKey finds the lease that a context carries for one name of one Locker.
type leaseKey struct {
	locker *Locker
	name   string
}

// leaseContext ends with its lease. It checks the clock whenever it is asked.
type leaseContext struct {
	context.Context // ends with the context that the lease was bound to, if any
	cancel          context.CancelCauseFunc
	lease           *Lease
}

// check ends the context if the lease is over.
func (c *leaseContext) check() {
	c.lease.term.expire()
	if cause := context.Cause(c.lease.ctx.Context); cause != nil {
		c.cancel(cause)
	}
}

func (c *leaseContext) Err() error {
	c.check()
	return c.Context.Err()
}

// carriesKey tells whether a context carries any lease. Unlike a leaseKey, it can be looked
// up without an allocation.
type carriesKey struct{}

// carriedKey finds the acquisitions of all leases that a context carries.
type carriedKey struct{}

// carriedBy returns the acquisitions of the leases that ctx carries.
func carriedBy(ctx context.Context) []driver.ID {
	acqs, _ := ctx.Value(carriedKey{}).([]driver.ID)
	return acqs
}

func (c *leaseContext) Value(key any) any {
	switch k := key.(type) {
	case carriesKey:
		return true
	case carriedKey:
		acqs := carriedBy(c.Context)
		if c.lease.unlocked.Load() || c.lease.term.remaining() <= 0 {
			return acqs
		}
		return append(slices.Clip(acqs), c.lease.term.acq)
	case leaseKey:
		if t := c.lease.term; k.locker == t.locker && k.name == t.name && !c.lease.unlocked.Load() {
			return c.lease
		} // else the lease may have been a re-entry, and the outer lease may still be held
	default:
		c.check() // context.Cause calls Value, and must not miss a loss
	}
	return c.Context.Value(key)
}
