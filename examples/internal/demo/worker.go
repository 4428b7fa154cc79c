package demo

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/migrations"
)

// Worker is one of several services that share a database and nothing else.
type Worker struct {
	// DB is the worker's own handle.
	DB *DB
	// Locks is the worker's own Locker; nil without the lock.
	Locks *sqllock.Locker
}

// conns is how many connections one worker opens at most.
const conns = 5

// open makes the tables and the workers.
func (d *Demo) open(ctx context.Context, home *home, e Example) (err error) {
	if d.DB, err = home.handle(); err != nil {
		return err
	}
	if err := d.DB.Make(ctx, e.Tables); err != nil {
		return err
	}
	if !d.Unsafe {
		if err := migrations.Up(ctx, home.locks(d.DB.DB)); err != nil {
			return err
		}
	}
	for range e.Workers {
		w := &Worker{}
		d.Workers = append(d.Workers, w)
		if w.DB, err = home.handle(); err != nil {
			return err
		}
		if d.Unsafe {
			continue
		}
		// Waiters look often, because the locks here are held for milliseconds.
		w.Locks, err = sqllock.NewUnique(ctx, home.locks(w.DB.DB), &sqllock.UniqueOptions{
			RetryMin: 2 * time.Millisecond,
			RetryMax: 20 * time.Millisecond,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// close ends the workers, which have done their work.
func (d *Demo) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var errs []error
	for _, w := range d.Workers {
		if w.Locks != nil {
			errs = append(errs, w.Locks.Close(ctx))
		}
		if w.DB != nil {
			errs = append(errs, w.DB.Close())
		}
	}
	if d.DB != nil {
		errs = append(errs, d.DB.Close())
	}
	return errors.Join(errs...)
}

// Together runs fn n times at once, with a number from 0 on, and waits for all.
// The first error ends the context of the others, and is returned.
func Together(ctx context.Context, n int, fn func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if err := fn(ctx, i); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
