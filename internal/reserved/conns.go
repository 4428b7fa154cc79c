// Package reserved keeps one connection of a pool for renewals.
//
// It differs from the connections that package sqlconn keeps: renewals go first, and the
// connection is given back when no lease is held.
package reserved

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/sqlconn"
)

// Conns chooses the connection for each call: the reserved one, or one of the pool. A C makes
// the calls, on one connection or on any of the pool. The reserved connection keeps leases
// alive while the application uses the whole pool. While it is idle, other calls may use it,
// so that a lock also works when the application has the last connection of the pool. It is
// safe for concurrent use.
//
// The reserved connection is taken from the pool with the first call on it. A connection that
// seems broken is given up, and the next call takes another one.
type Conns[C any] struct {
	opts Options[C]
	free chan struct{} // has an element while nobody uses the connection; nil if none is reserved

	urgent atomic.Int32 // renewals that wait for the connection

	// Whoever has emptied free owns the fields below.
	conn   C
	close  func() error // gives conn back; nil while there is none
	fresh  bool         // conn is a fresh one
	silent bool         // the last one did not answer in time or was of no use, or there was none in time
	lost   bool         // the last one was given up, and there is no other yet
	closed bool         // nothing is reserved any more
}

// Options say what Conns choose from.
type Options[C any] struct {
	Pool     C
	MaxConns int // connections that the pool may open; 0 means no limit
	// Exhausted reports that a call would have to wait for a connection of the pool.
	Exhausted func() bool
	// Reserve takes a connection from the pool until close is called, which destroys the
	// connection if it is in doubt. It opens a fresh one if those of the pool may be as silent as
	// the last one was: after a fail-over none of them may answer. It also does if a lease needs one,
	// or the last one was lost, and the application has all others: it may keep them for longer than
	// leases last.
	Reserve func(ctx context.Context, fresh bool) (conn C, close func() error, err error)
	// Classify tells what an error of a call means.
	Classify func(err error) driver.Fault
}

// New returns Conns that reserve nothing if the pool has one connection only.
func New[C any](o Options[C]) *Conns[C] {
	c := &Conns[C]{opts: o}
	if o.MaxConns != 1 {
		c.free = make(chan struct{}, 1)
		c.free <- struct{}{}
	}
	return c
}

// Any runs f on the reserved connection if that is idle, or if the pool is exhausted, and
// on the pool otherwise.
func (c *Conns[C]) Any(ctx context.Context, f func(C) error) error {
	if c.urgent.Load() == 0 {
		select {
		case <-c.free:
			return c.run(ctx, f, false)
		default:
		}
	}
	return c.Pool(ctx, f)
}

// Pool runs f on the pool, or on the reserved connection if the pool is exhausted.
func (c *Conns[C]) Pool(ctx context.Context, f func(C) error) error {
	if c.free != nil && c.opts.Exhausted() {
		if done, err := c.share(ctx, f); done {
			return err
		}
	}
	return f(c.opts.Pool)
}

// Idle runs f on the reserved connection if there is one that is idle, and as Pool does
// otherwise. It reserves none.
func (c *Conns[C]) Idle(ctx context.Context, f func(C) error) error {
	if c.urgent.Load() == 0 {
		select {
		case <-c.free:
			if c.close != nil {
				return c.run(ctx, f, false)
			}
			c.free <- struct{}{}
		default:
		}
	}
	return c.Pool(ctx, f)
}

// Urgent runs f on the reserved connection, before all that is not urgent. If the
// connection is in use for longer than half of the time that ctx leaves, and the pool is not
// exhausted, it runs f on the pool: a statement that hangs on the reserved connection must not
// cost a lease.
func (c *Conns[C]) Urgent(ctx context.Context, f func(C) error) error {
	if c.free == nil {
		return f(c.opts.Pool)
	}
	wait, cancel := sqlconn.HalfOf(ctx)
	defer cancel()
	if done, err := c.first(wait, ctx, f); done {
		return err
	}
	if c.opts.Exhausted() {
		if done, err := c.first(ctx, ctx, f); done {
			return err
		}
	}
	return f(c.opts.Pool)
}

// first runs f before all that only share the connection. It reports false, and has not
// run f, if the connection was in use until wait ended.
func (c *Conns[C]) first(wait, work context.Context, f func(C) error) (done bool, err error) {
	c.urgent.Add(1)
	select {
	case <-c.free:
		c.urgent.Add(-1)
		return true, c.run(work, f, true)
	case <-wait.Done():
		c.urgent.Add(-1)
		return false, nil
	}
}

// share runs f when nothing urgent waits for the connection. It reports false, and has not
// run f, if that was not so before ctx ended.
func (c *Conns[C]) share(ctx context.Context, f func(C) error) (done bool, err error) {
	for {
		select {
		case <-c.free:
		case <-ctx.Done():
			return false, nil
		}
		if c.urgent.Load() == 0 {
			return true, c.run(ctx, f, false)
		}
		c.free <- struct{}{}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return false, nil
		}
	}
}

// run runs f on the connection, which the caller has to itself and which run frees.
func (c *Conns[C]) run(ctx context.Context, f func(C) error, urgent bool) error {
	defer func() { c.free <- struct{}{} }()
	return sqlconn.UnlessItReturns(c.giveUp, func() error { return c.runOn(ctx, f, urgent) })
}

// runOn runs f on the connection. One that died while it was idle is replaced: nothing was sent on
// it. One that died after f had done a part is not: what that was would be forgotten.
func (c *Conns[C]) runOn(ctx context.Context, f func(C) error, urgent bool) error {
	if c.closed {
		return f(c.opts.Pool)
	}
	if c.close == nil {
		if err := c.reserve(ctx, urgent); err != nil {
			return err
		}
	}
	began := time.Now()
	err := f(c.conn)
	if isDead(err) && c.opts.Classify(err) != driver.Unclear {
		c.giveUp()
		if err := c.reserve(ctx, urgent); err != nil {
			return err
		}
		began = time.Now()
		err = f(c.conn)
	}
	c.silent = isSilence(ctx, began, err)
	if err != nil {
		switch c.opts.Classify(err) {
		case driver.Unreachable:
			// The server says that another one is to be asked. Others of the pool lead there too.
			c.silent = c.silent || ctx.Err() == nil && !isDead(err) && !errors.Is(err, driver.ErrNoConnection)
			c.giveUp()
		case driver.Unclear:
			c.giveUp()
		case driver.Refused:
			if c.fresh { // it may not be set up as those of the pool are
				c.giveUp()
			}
		}
	}
	return err
}

// isDead reports that nothing was sent, because a connection had died before.
func isDead(err error) bool {
	return errors.Is(err, sqldriver.ErrBadConn) || errors.Is(err, sql.ErrConnDone)
}

func (c *Conns[C]) reserve(ctx context.Context, urgent bool) error {
	fresh := c.silent || (c.lost || urgent) && c.opts.Exhausted()
	began := time.Now()
	conn, closeConn, err := c.opts.Reserve(ctx, fresh)
	if err != nil {
		// One that waits for room in the pool waits for the application.
		c.silent = c.silent || isSilence(ctx, began, err) && !errors.Is(err, driver.ErrNoConnection)
		return err
	}
	c.conn, c.close, c.fresh, c.lost = conn, closeConn, fresh, false
	return nil
}

// slow is how long a call that is cancelled must have lasted before it says that nothing
// answers.
const slow = 250 * time.Millisecond

// isSilence reports that a call that began then has got no answer before its context ended.
func isSilence(ctx context.Context, began time.Time, err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || err != nil && ctx.Err() != nil && time.Since(began) >= slow
}

// giveUp is giveBack for a connection that is in doubt, while leases may need another one.
func (c *Conns[C]) giveUp() {
	c.lost = c.lost || c.close != nil
	c.giveBack()
}

// giveBack closes the connection, if there is one. One in doubt is destroyed, so there is
// nothing to do about an error.
func (c *Conns[C]) giveBack() {
	if c.close == nil {
		return
	}
	_ = c.close()
	var none C
	c.conn, c.close = none, nil
}

// CloseIdle gives the connection back until it is needed again. It does not block. It
// reports false if the connection is in use.
func (c *Conns[C]) CloseIdle() bool {
	if c.free == nil {
		return true
	}
	select {
	case <-c.free:
	default:
		return false
	}
	defer func() { c.free <- struct{}{} }()
	c.giveBack()
	c.lost = false // no lease needs one
	return true
}

// Close gives the connection back and reserves none any more. It waits for a call that is in
// flight on it. It does not close the pool.
func (c *Conns[C]) Close() {
	if c.free == nil {
		return
	}
	<-c.free
	defer func() { c.free <- struct{}{} }()
	c.closed = true
	c.giveBack()
}
