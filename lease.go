package sqllock

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// Lease is one successful acquisition. It is safe for concurrent use.
//
// A lease is not a mutex: it ends by itself when its holder cannot renew it.
// Work under it must watch Context, and a write that must never come from a
// former holder must carry Token to where it can be compared.
//
// A nil *Lease, and the zero Lease, are held by nobody: Unlock, Guard and InTx return
// [ErrNotHeld], Context and Bind return contexts that have ended with that cause, and
// the other methods return zero values.
type Lease struct {
	term     *term
	ctx      *leaseContext
	unlocked atomic.Bool
}

// newLease makes a handle on h whose context carries the values of ctx. The
// caller holds h.mu or is alone.
func newLease(ctx context.Context, t *term) *Lease {
	l := &Lease{term: t}
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	l.ctx = &leaseContext{Context: inner, cancel: cancel, lease: l}
	return l
}

// none reports that no Locker has made the lease.
func (l *Lease) isZero() bool { return l == nil || l.term == nil }

// notHeld is the context of a lease that no Locker has made.
var notHeld = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(ErrNotHeld)
	return ctx
}()

// Name returns what is locked.
func (l *Lease) Name() string {
	if l.isZero() {
		return ""
	}
	return l.term.name
}

// Token returns the fencing token: the version of the row. It is positive, less
// than 2^53, the same for all leases of one term, and higher in every later term
// of the name. That of a shared lease is higher than those of all exclusive terms
// before it, and lower than those of all after it.
func (l *Lease) Token() int64 {
	if l.isZero() {
		return 0
	}
	return l.term.token
}

// Owner returns who holds: the id given to [WithOwner], or a random id of this
// acquisition.
func (l *Lease) Owner() string {
	if l.isZero() {
		return ""
	}
	return l.term.owner
}

// Shared reports whether others may hold the name at the same time: whether the
// lease was acquired by RLock or TryRLock.
func (l *Lease) Shared() bool { return !l.isZero() && l.term.shared }

// Remaining returns how long the holder may still believe that it holds, unless
// the lease is renewed: not more than the TTL. 0 says that holding cannot be
// proved: the lease is lost or was unlocked. It reads a clock and does not block.
func (l *Lease) Remaining() time.Duration {
	if l.isZero() {
		return 0
	}
	l.term.expire()
	if l.unlocked.Load() { // while other leases of the term may live on
		return 0
	}
	left := l.term.remaining()
	if left <= 0 { // what was said once stays true
		l.term.expire()
		return 0
	}
	return left
}

// Context returns a context that ends with the lease: with cause [*LostError]
// when the lease is lost, [ErrUnlocked] when it is unlocked, and [ErrClosed] when
// the Locker is being closed. It carries the values of the context that was
// passed to Lock but not its cancellation or deadline. Lock with this context,
// or one derived from it, re-enters the lease.
//
// Its Err reads the clock: in a process that was paused, the first call after
// the pause tells of the loss. Contexts derived from it, and Done, hear of it
// within 100 ms.
func (l *Lease) Context() context.Context {
	if l.isZero() {
		return notHeld
	}
	return l.ctx
}

// Bind returns a context that ends with ctx or with the lease, whichever is
// first, and carries the values of ctx, and the lease. The caller must call the
// CancelFunc when done with it. If ctx is nil, the context that Bind returns has ended,
// with a cause that is [ErrInvalidOption].
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

// Unlock gives the lease back. When all leases of the term are unlocked, the
// name is freed and the next waiter is let in. Unlock cancels the lease's
// context first.
//
// Unlock waits for the database until the deadline of ctx, and no longer than two
// statements may take, see [UniqueOptions].StatementTimeout. With a ctx that has ended
// already it waits for one statement, so that "defer lease.Unlock(ctx)" frees the name. That ctx
// is cancelled meanwhile changes nothing. It returns
//   - nil if the lease was held until now;
//   - [ErrNotHeld] if this lease was unlocked before;
//   - a [*LostError] if it was lost before;
//   - [ErrGuarded] if a transaction that guards the lease is still open: nobody gets
//     the name before it ends, soon after which it is freed in the background;
//   - another error, wrapped, if the database could not be asked, or has not answered in
//     time: the name is then freed in the background, at latest by the expiry of the
//     lease; if the Locker was closed, by the expiry alone. It is also
//     [context.DeadlineExceeded] if there was no answer;
//   - [ErrInvalidOption] besides, if ctx is nil: that stands for one that has ended.
func (l *Lease) Unlock(ctx context.Context) error {
	if l.isZero() {
		return ErrNotHeld
	}
	return join(driver.CheckContext(ctx), l.term.locker.unlock(ctx, l))
}

// leaseKey finds the lease that a context carries for one name of one Locker.
type leaseKey struct {
	locker *Locker
	name   string
}

// leaseContext ends with its lease, and asks its clock whenever somebody asks it.
type leaseContext struct {
	context.Context // ends with what the lease was bound to, if anything
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

// carriedKey finds the acquisitions of all leases that a context carries.
type carriedKey struct{}

// carriedBy returns the acquisitions of the leases that ctx carries.
func carriedBy(ctx context.Context) []driver.ID {
	acqs, _ := ctx.Value(carriedKey{}).([]driver.ID)
	return acqs
}

func (c *leaseContext) Value(key any) any {
	if key == (carriedKey{}) {
		acqs := carriedBy(c.Context)
		if c.lease.unlocked.Load() || c.lease.term.remaining() <= 0 {
			return acqs
		}
		return append(slices.Clip(acqs), c.lease.term.acq)
	}
	if k, ok := key.(leaseKey); ok {
		if t := c.lease.term; k.locker == t.locker && k.name == t.name && !c.lease.unlocked.Load() {
			return c.lease
		} // else it may have been a re-entry, and the outer lease be held
	} else {
		c.check() // context.Cause comes this way, and must not miss a loss either
	}
	return c.Context.Value(key)
}
