package sqllock

import (
	"context"
	"errors"
	"fmt"

	"github.com/sqllock/sqllock/driver"
)

// Lock waits until it holds name and returns the lease. ctx bounds the wait
// only: after Lock has returned, cancelling ctx does not affect the lease.
// While the database cannot be reached, Lock keeps trying.
//
// Lock re-enters a lease at once if ctx carries a lease of this Locker for name
// (see [Lease.Context]), or an owner that holds name (see [WithOwner]). The new
// lease has the same token, and the name is free after as many Unlocks as Locks.
// In all other cases callers exclude each other, also two goroutines of one process.
//
// In unique mode, the waiters of a name are served in the order in which they came,
// across all processes. [UniqueOptions].Barging and [Tries] opt out of that order. A
// waiter whose process the database has not heard from for a while can lose its place: for
// 5 s, or for its TTL or MaxHold if that is less, and for 500 ms at least. In the other modes
// there is an order only among the waiters of one Locker.
// If ctx carries leases, and the wait can end only after one of them has ended, Lock
// returns [ErrDeadlock] to the waiter that came last.
//
// Lock returns a lease or an error, never both. The errors are:
//   - [ErrInvalidName], [ErrInvalidOwner] or [ErrInvalidOption], before any SQL;
//   - [ErrClosed];
//   - [ErrDeadlock], in unique mode;
//   - [ErrUpgrade], if the owner, or ctx, holds name shared and this call wants it
//     exclusively, or holds a permit of name;
//   - [ErrHeld], when [Wait] or [Tries] are used up;
//   - [context.DeadlineExceeded], when Wait is used up and the database has not answered;
//   - a [*LostError], if ctx carries a lost lease of name, or if the database replied too
//     late for the lease to be used;
//   - an error that wraps the error of ctx and says what was waited for;
//   - the error of the database, if it refuses the request.
//
// After an error this call holds nothing. If the database may believe otherwise, the
// Locker releases the name in the background.
func (l *Locker) Lock(ctx context.Context, name string, opts ...LockOption) (*Lease, error) {
	return l.lock(ctx, name, false, opts)
}

// RLock is Lock for a shared lease: any number of holders can have the name at the
// same time if all of them share it. If ctx carries an exclusive lease of name, RLock
// re-enters that lease. An owner that holds a name shared cannot get it exclusively:
// Lock then returns [ErrUpgrade]. RLock also returns it if the owner, or ctx, holds a permit
// of name. [MinHold] and [Value] are refused with [ErrInvalidOption],
// in the modes for update and advisory [LockDelay] too. A quorum has no shared leases:
// [ErrUnsupported].
//
// In unique mode, readers and writers wait in one queue. Neighbouring readers enter
// together, and no reader enters before a writer that came earlier. In the other modes
// this holds within one Locker, but the readers of other Lockers can keep a writer
// waiting.
func (l *Locker) RLock(ctx context.Context, name string, opts ...LockOption) (*Lease, error) {
	return l.lock(ctx, name, true, opts)
}

func (l *Locker) lock(ctx context.Context, name string, shared bool, opts []LockOption) (*Lease, error) {
	o, err := l.lockOptions(opts, shared)
	if err != nil {
		return nil, err
	}
	owner, err := checkLock(ctx, name)
	if err != nil {
		return nil, err
	}
	if !l.inflight.begin() {
		return nil, ErrClosed
	}
	defer l.inflight.done()
	if lease, err := l.reenter(ctx, name, shared); lease != nil || err != nil {
		return lease, err
	}
	if o.hasWait {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.wait, errWaitOver)
		defer cancel()
	}
	return l.newAcquisition(name, owner, o).wait(ctx)
}

// TryLock is Lock without waiting. If another caller holds name, it returns a
// [*HeldError] that says who. If the database cannot be reached, it returns that error. It
// does wait for the database: as a rule for the time of two statements at most (see
// [UniqueOptions].StatementTimeout), or until ctx ends. The options [Wait] and [Tries] are
// refused with [ErrInvalidOption].
func (l *Locker) TryLock(ctx context.Context, name string, opts ...LockOption) (*Lease, error) {
	return l.tryLock(ctx, name, false, opts)
}

// TryRLock is RLock without waiting, see TryLock.
func (l *Locker) TryRLock(ctx context.Context, name string, opts ...LockOption) (*Lease, error) {
	return l.tryLock(ctx, name, true, opts)
}

func (l *Locker) tryLock(ctx context.Context, name string, shared bool, opts []LockOption) (*Lease, error) {
	o, err := l.tryOptions(opts, shared)
	if err != nil {
		return nil, err
	}
	owner, err := checkLock(ctx, name)
	if err != nil {
		return nil, err
	}
	if !l.inflight.begin() {
		return nil, ErrClosed
	}
	defer l.inflight.done()
	if lease, err := l.reenter(ctx, name, shared); lease != nil || err != nil {
		return lease, err
	}
	if t := l.queue.ownedBy(name, owner); t != nil {
		if lease, err := t.reenter(ctx, shared); lease != nil || errors.Is(err, ErrUpgrade) {
			return lease, err
		}
	}
	return l.newAcquisition(name, owner, o).try(ctx)
}

// checkLock checks the arguments of a call that locks name. It returns the explicit
// owner that ctx carries, or "".
func checkLock(ctx context.Context, name string) (owner string, err error) {
	if err := checkCall(ctx, name); err != nil {
		return "", err
	}
	return ownerFrom(ctx)
}

// reenter re-enters the lease of name that ctx carries. With neither a lease nor an error
// there is none, and the caller has to acquire the name.
func (l *Locker) reenter(ctx context.Context, name string, shared bool) (*Lease, error) {
	var carried *Lease
	if ctx.Value(carriesKey{}) != nil {
		carried, _ = ctx.Value(leaseKey{l, name}).(*Lease)
	}
	ok := carried != nil && !carried.unlocked.Load()
	if ok {
		if lost := carried.term.lostError(); lost != nil {
			return nil, lost
		}
	}
	if ctx.Err() != nil {
		return nil, lockError(name, endOf(ctx))
	}
	if !ok && shared && l.mode.quorum {
		return nil, fmt.Errorf("%w: lock %q shared: a quorum has no shared leases", ErrUnsupported, name)
	}
	if !ok {
		return nil, nil
	}
	return carried.term.reenter(ctx, shared)
}

// Do waits for name as Lock does, and then runs fn while it holds name. The context of
// fn ends with ctx or with the lease, whichever is first, and carries the lease: a Lock
// of the same name with this context re-enters.
//
// Do unlocks when fn returns, and also when fn panics or ends its goroutine. It returns
// the joined errors of fn and of Unlock. If fn returns nil but the lease was lost
// meanwhile, Do returns a [*LostError]. If fn leaves a transaction open that guards the
// lease, Do returns [ErrGuarded].
func (l *Locker) Do(ctx context.Context, name string, fn func(ctx context.Context, lease *Lease) error, opts ...LockOption) error {
	if fn == nil {
		return driver.NilError("function")
	}
	lease, err := l.Lock(ctx, name, opts...)
	if err != nil {
		return err
	}
	return lease.run(ctx, fn)
}

// TryDo is Do without waiting. If another caller holds name, it returns false and nil
// without running fn.
func (l *Locker) TryDo(ctx context.Context, name string, fn func(ctx context.Context, lease *Lease) error, opts ...LockOption) (ran bool, err error) {
	if fn == nil {
		return false, driver.NilError("function")
	}
	lease, err := l.TryLock(ctx, name, opts...)
	if errors.Is(err, ErrHeld) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, lease.run(ctx, fn)
}

// run calls fn and then unlocks, also if fn panics or ends its goroutine.
func (l *Lease) run(ctx context.Context, fn func(context.Context, *Lease) error) (err error) {
	bound, cancel := l.Bind(ctx)
	defer cancel()
	defer func() { // when fn panics or calls Goexit, err is lost
		err = join(err, l.Unlock(ctx))
	}()
	return fn(bound, l)
}

// join is errors.Join that leaves a single error as it is.
func join(a, b error) error {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	return errors.Join(a, b)
}

type ownerKey struct{}

// WithOwner returns a context in which Lock, RLock, TryLock, TryRLock, LockAll and its twins,
// Do, TryDo and Adopt act for the owner id. An id has 1 to 255 bytes of valid UTF-8 without
// NUL; for another id these methods, and Acquire and TryAcquire of a [Semaphore], return
// [ErrInvalidOwner]. If the same owner holds the name through the same Locker, the methods
// that lock re-enter its lease and do not wait. Adopt, Acquire and TryAcquire never re-enter.
//
// An owner is known within one Locker only. Two processes, or two Lockers, that use the
// same id exclude each other.
//
// If ctx is nil, WithOwner returns nil, and the next call refuses that context.
func WithOwner(ctx context.Context, id string) context.Context {
	if ctx == nil {
		return nil
	}
	return context.WithValue(ctx, ownerKey{}, owner{id})
}

// WithoutOwner returns a context in which no call re-enters a lease: it carries neither the
// owner of ctx nor its leases. A lock that is taken with it excludes all other callers, also the
// code that called WithoutOwner. The leases of ctx still count for [ErrDeadlock]: a Lock of a name
// that ctx holds does not wait for ever, it returns that error in unique mode. If ctx is nil,
// WithoutOwner returns nil.
func WithoutOwner(ctx context.Context) context.Context {
	if ctx == nil {
		return nil
	}
	return withoutOwner{ctx}
}

type owner struct{ id string }

// ownerFrom returns the explicit owner that ctx carries, or "".
func ownerFrom(ctx context.Context) (string, error) {
	o, ok := ctx.Value(ownerKey{}).(owner)
	if !ok {
		return "", nil
	}
	if o.id == "" {
		return "", fmt.Errorf("%w: it is empty", ErrInvalidOwner)
	}
	if err := driver.CheckText(o.id); err != nil {
		return "", fmt.Errorf("%w: %.64q: %w", ErrInvalidOwner, o.id, err)
	}
	return o.id, nil
}

// withoutOwner hides the owner and the leases of the context that it wraps. All else is
// that of the wrapped context, cancellation included.
type withoutOwner struct{ context.Context }

func (c withoutOwner) Value(key any) any {
	switch key.(type) {
	case ownerKey, leaseKey:
		return nil
	}
	return c.Context.Value(key)
}
