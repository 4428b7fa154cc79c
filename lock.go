package sqllock

import (
	"context"
	"errors"
	"fmt"

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
	return l.acquire(ctx, name, shared, func(owner string) (*Lease, error) {
		if o.hasWait {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, o.wait, errWaitOver)
			defer cancel()
		}
		return l.wait(ctx, l.newAcquisition(name, owner, o), o)
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
	return l.acquire(ctx, name, shared, func(owner string) (*Lease, error) {
		if t := l.queue.ownedBy(name, owner); t != nil {
			if lease, err := t.reenter(ctx, shared); lease != nil || errors.Is(err, ErrUpgrade) {
				return lease, err
			}
		}
		return l.try(ctx, name, owner, o)
	})
}

// enter checks what all acquisitions check, re-enters the lease that ctx carries
// if there is one, and otherwise calls acquire with the explicit owner, if any.
func (l *Locker) acquire(ctx context.Context, name string, shared bool, begin func(owner string) (*Lease, error)) (*Lease, error) {
	if err := checkCall(ctx, name); err != nil {
		return nil, err
	}
	owner, err := ownerFrom(ctx)
	if err != nil {
		return nil, err
	}
	if !l.inflight.begin() {
		return nil, ErrClosed
	}
	defer l.inflight.done()
	carried, ok := ctx.Value(leaseKey{l, name}).(*Lease)
	ok = ok && !carried.unlocked.Load()
	if ok {
		if lost := carried.term.lostError(); lost != nil {
			return nil, lost
		}
	}
	if ctx.Err() != nil {
		return nil, lockError(name, endOf(ctx))
	}
	if ok {
		if lease, err := carried.term.reenter(ctx, shared); lease != nil || err != nil {
			return lease, err
		}
	}
	return begin(owner)
}

// Do runs fn while it holds name, for which it waits as Lock does. fn's context
// ends with ctx or with the lease, whichever is first, and carries the lease: a
// Lock of the same name with it re-enters.
//
// Do unlocks when fn returns, and also when fn panics or ends its goroutine. It
// returns the errors of fn and of Unlock, joined; so if fn returns nil but the
// lease was lost on the way, Do returns a [*LostError]. If fn leaves a transaction
// open that guards the lease, Do returns [ErrGuarded].
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

// TryDo is Do without waiting. If somebody else holds name it returns false and
// nil, and fn was not run.
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

// run calls fn and unlocks, whatever fn does.
func (l *Lease) run(ctx context.Context, fn func(context.Context, *Lease) error) (err error) {
	bound, cancel := l.Bind(ctx)
	defer cancel()
	defer func() { // also when fn panics or calls Goexit; then err is lost with it
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

// WithOwner returns a context in which Lock and its kin act for the owner id: 1
// to 255 bytes of valid UTF-8 without NUL, else they return [ErrInvalidOwner].
// Whoever locks a name that the same owner holds through the same Locker
// re-enters its lease instead of waiting for it.
//
// An owner is known within one Locker only. Two processes, or two Lockers, that
// use the same id exclude each other.
//
// Of a nil context it is nil, which whoever gets it next refuses.
func WithOwner(ctx context.Context, id string) context.Context {
	if ctx == nil {
		return nil
	}
	return context.WithValue(ctx, ownerKey{}, owner{id})
}

// WithoutOwner returns a context that carries neither an owner nor a lease:
// what locks with it excludes everybody else, also the code that called it. Of a nil
// context it is nil.
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

// withoutOwner hides owners and leases of the context below it. The rest,
// cancellation too, shines through.
type withoutOwner struct{ context.Context }

func (c withoutOwner) Value(key any) any {
	switch key.(type) {
	case ownerKey, leaseKey:
		return nil
	}
	return c.Context.Value(key)
}
