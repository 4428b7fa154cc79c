package sqllock

import (
	"context"
	"errors"

	"github.com/sqllock/sqllock/driver"
)

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
