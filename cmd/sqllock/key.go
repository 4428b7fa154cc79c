package main

import (
	"context"
	"errors"
	"slices"

	"github.com/sqllock/sqllock"
)

// keyRun is the run of CMD for the key of --once. CMD runs while the function of
// [sqllock.Locker.Once] waits for its end.
type keyRun struct {
	key      string
	run      *sqllock.Run // nil until the function was called
	ended    chan error   // gets why CMD has failed, or nil
	returned chan error   // gets what Once has returned
	cancel   context.CancelFunc
	complete bool
}

// errFailed says that CMD has failed, so that the key is not complete.
var errFailed = errors.New("the command has failed")

// lockKey is Lock of a Locker for a key. The error is ErrDone if the key is complete.
func (r *runner) lockKey(ctx context.Context, name string, opts ...sqllock.LockOption) (*sqllock.Lease, error) {
	k := r.key
	k.ended, k.returned = make(chan error, 1), make(chan error, 1)
	began := make(chan *sqllock.Run)
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	waits := context.AfterFunc(ctx, cancel) // ctx bounds the wait alone
	go func() {
		_, err := r.locker.Once(work, name, k.key, func(_ context.Context, run *sqllock.Run) error {
			began <- run
			return <-k.ended
		}, opts...)
		k.returned <- err
	}()
	select {
	case k.run = <-began:
		waits()
		k.cancel = cancel
		return k.run.Lease(), nil
	case err := <-k.returned:
		cancel()
		switch {
		case err == nil:
			err = sqllock.ErrDone
		case ctx.Err() != nil && !errors.Is(err, ctx.Err()):
			err = errors.Join(ctx.Err(), err)
		}
		return nil, err
	}
}

// tryKey is TryLock of a Locker for a key.
func (r *runner) tryKey(ctx context.Context, name string, opts ...sqllock.LockOption) (*sqllock.Lease, error) {
	return r.lockKey(ctx, name, append(slices.Clip(opts), sqllock.Tries(1))...)
}

// end is called when CMD has ended.
func (k *keyRun) end(failed error) {
	if failed != nil {
		failed = errFailed
	}
	k.ended <- failed
}

// giveBack gives the lease back, and waits until the key of --once is complete.
func (r *runner) giveBack(ctx context.Context, lease *sqllock.Lease) error {
	k := r.key
	if k == nil || k.run == nil {
		return lease.Unlock(ctx)
	}
	defer k.cancel()
	defer context.AfterFunc(ctx, k.cancel)()
	err := <-k.returned
	k.complete = err == nil
	return besideFailure(err)
}

// besideFailure returns what else went wrong than CMD: the lease was lost, or was not given back.
func besideFailure(err error) error {
	if !errors.Is(err, errFailed) {
		return err
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	var others []error
	for _, one := range joined.Unwrap() {
		others = append(others, besideFailure(one))
	}
	return errors.Join(others...)
}
