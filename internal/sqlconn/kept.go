package sqlconn

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/driver"
)

const (
	// maxConnWait is how long calls wait for the next connection of an exhausted pool.
	maxConnWait = 500 * time.Millisecond
	// again is when a pool is looked at once more that was not exhausted: it may have
	// been for a moment, in which a connection went from one caller to another.
	again = 10 * time.Millisecond
)

// Kept is a Source that keeps one connection of a pool from its first use until
// Close. Calls take turns. One that ends in doubt costs the connection, and the
// next call takes another.
//
// Callers may have all other connections of the pool. Then there is no next one until
// they give theirs back, and in a queue that a pool serves in any order it may come long
// after that. So it is asked for in the background, and when the pool has been exhausted
// for half a second calls fail soon, until it is there.
type Kept struct {
	pool  *Pool
	setup func(context.Context, *sql.Conn) error
	free  chan struct{} // holds a token while nobody uses the connection

	// The rest belongs to the user of the connection.
	conn   *sql.Conn
	next   *search // for another connection, or nil
	kept   bool    // there was a connection
	closed bool
}

var _ Source = (*Kept)(nil)

// Keep returns a Kept connection of p, which is taken with the first call. setup
// is run on each new connection; it may be nil.
func (p *Pool) Keep(setup func(context.Context, *sql.Conn) error) *Kept {
	k := &Kept{pool: p, setup: setup, free: make(chan struct{}, 1)}
	k.free <- struct{}{}
	return k
}

// Do implements Source. After an error of fn the connection is in doubt and
// ended, unless it is one of those that Settled makes. A connection that turns
// out to have died while it was idle, or on which setup fails as on a dead one, is
// replaced.
func (k *Kept) Do(ctx context.Context, fn func(context.Context, *sql.Conn) error) error {
	select {
	case <-k.free:
	case <-ctx.Done():
		return errors.Join(driver.ErrNoConnection, ctx.Err())
	}
	defer func() { k.free <- struct{}{} }()
	return UnlessItReturns(k.end, func() error { return k.do(ctx, fn) })
}

// do is Do; the caller has taken free.
func (k *Kept) do(ctx context.Context, fn func(context.Context, *sql.Conn) error) (err error) {
	for range MaxStale {
		if err = k.open(ctx); err == nil {
			err = k.pool.use(ctx, k.conn, fn)
		}
		if err == nil {
			return nil
		}
		if settled := (*settledError)(nil); errors.As(err, &settled) {
			return settled.error
		}
		k.end()
		if !errors.Is(err, sqldriver.ErrBadConn) {
			return err
		}
	}
	return err
}

// open takes a connection if there is none; the caller has taken free.
func (k *Kept) open(ctx context.Context) error {
	if k.closed {
		return sql.ErrConnDone
	}
	if k.conn != nil {
		return nil
	}
	conn, err := k.take(ctx)
	if err != nil {
		return err
	}
	if k.setup != nil {
		if err := k.pool.inTime(ctx, conn, k.setup); err != nil {
			Destroy(conn, k.pool.End)
			return err
		}
	}
	k.conn, k.kept = conn, true
	return nil
}

// take waits for a connection of the pool. It goes on with the search of an earlier call,
// if there is one. What that failed with may be long ago.
func (k *Kept) take(ctx context.Context) (*sql.Conn, error) {
	earlier := k.next != nil
	if !earlier {
		k.next = k.pool.search(ctx)
	}
	// It is never too late for a connection that is there already.
	for left := max(maxConnWait-time.Since(k.next.began), time.Millisecond); ; left = again {
		select {
		case <-k.next.done:
			conn, err := k.next.conn, k.next.err
			k.next = nil
			if err == nil || !earlier {
				return conn, err
			}
			earlier, k.next = false, k.pool.search(ctx)
		case <-ctx.Done():
			if k.pool.Exhausted() {
				return nil, errors.Join(driver.ErrNoConnection, ctx.Err())
			}
			return nil, unsent(ctx.Err())
		case <-time.After(left):
			if k.kept && k.pool.Exhausted() {
				return nil, fmt.Errorf("%w: the Locker has lost the connection that it keeps", driver.ErrNoConnection)
			}
		}
	}
}

// search asks a pool for a connection in a goroutine, which closes done.
type search struct {
	began  time.Time
	cancel context.CancelFunc
	done   chan struct{}

	// The rest is set when done is closed.
	conn *sql.Conn
	err  error
}

// search looks for a connection until the deadline of ctx, and on while the pool is
// exhausted.
func (p *Pool) search(ctx context.Context) *search {
	deadline, limited := ctx.Deadline()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &search{began: time.Now(), cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		defer cancel()
		for timeout := max(time.Until(deadline), maxConnWait); ; {
			once, end := ctx, context.CancelFunc(func() {})
			if limited {
				once, end = context.WithTimeout(ctx, timeout)
			}
			s.conn, s.err = p.conn(once)
			end()
			if ctx.Err() != nil || !errors.Is(s.err, driver.ErrNoConnection) {
				return
			}
		}
	}()
	return s
}

func (k *Kept) end() {
	if k.conn != nil {
		Destroy(k.conn, k.pool.End)
		k.conn = nil
	}
}

// Close gives the connection back. It waits for a call that is under way.
func (k *Kept) Close() error {
	<-k.free
	defer func() { k.free <- struct{}{} }()
	k.closed = true
	if k.next != nil {
		k.next.cancel()
		<-k.next.done
		k.conn, k.next = k.next.conn, nil // there is no other
	}
	if k.conn == nil {
		return nil
	}
	conn := k.conn
	k.conn = nil
	return conn.Close()
}

// Settled wraps an error of a call that puts no doubt on its connection.
func Settled(err error) error { return &settledError{err} }

type settledError struct{ error }

func (e *settledError) Unwrap() error { return e.error }
