package sqlconn

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"

	"github.com/sqllock/sqllock/driver"
)

// Kept is a Source that keeps one connection of a pool from its first use until
// Close. Calls take turns. One that ends in doubt costs the connection, and the
// next call takes another.
type Kept struct {
	pool  *Pool
	setup func(context.Context, *sql.Conn) error
	turn  chan struct{} // holds a token while nobody uses the connection

	// The rest belongs to whoever has the turn.
	conn   *sql.Conn
	closed bool
}

var _ Source = (*Kept)(nil)

// Keep returns a Kept connection of p, which is taken with the first call. setup
// is run on each new connection; it may be nil.
func (p *Pool) Keep(setup func(context.Context, *sql.Conn) error) *Kept {
	k := &Kept{pool: p, setup: setup, turn: make(chan struct{}, 1)}
	k.turn <- struct{}{}
	return k
}

// Do implements Source. After an error of fn the connection is in doubt and
// ended, unless it is one of those that Settled makes. A connection that turns
// out to have died while it was idle, or on which setup fails as on a dead one, is
// replaced.
func (k *Kept) Do(ctx context.Context, fn func(context.Context, *sql.Conn) error) error {
	select {
	case <-k.turn:
	case <-ctx.Done():
		return errors.Join(driver.ErrNoConnection, ctx.Err())
	}
	defer func() { k.turn <- struct{}{} }()
	var err error
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

// open takes a connection if there is none; the caller has the turn.
func (k *Kept) open(ctx context.Context) error {
	if k.closed {
		return sql.ErrConnDone
	}
	if k.conn != nil {
		return nil
	}
	conn, err := k.pool.conn(ctx)
	if err != nil {
		return err
	}
	if k.setup != nil {
		if err := k.setup(ctx, conn); err != nil {
			Destroy(conn, k.pool.End)
			return err
		}
	}
	k.conn = conn
	return nil
}

func (k *Kept) end() {
	if k.conn != nil {
		Destroy(k.conn, k.pool.End)
		k.conn = nil
	}
}

// Close gives the connection back. It waits for a call that is under way.
func (k *Kept) Close() error {
	<-k.turn
	defer func() { k.turn <- struct{}{} }()
	k.closed = true
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
