// Package reserved keeps one connection of a pool for renewals.
//
// It differs from the connections of package sqlconn, which lend one *sql.Conn to a
// driver: it reserves a whole [driver.Store], lets renewals go first, and gives the
// connection back when no lease is held.
package reserved

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// Store chooses the connection for each statement: the reserved one, or one of the pool.
// The reserved connection keeps leases alive while the application uses the whole pool.
// While it is idle, other statements may use it, so that a lock also works when the
// application has the last connection of the pool. It is safe for concurrent use.
//
// The reserved connection is taken from the pool with the first statement on it. A
// connection that seems broken is given up, and the next statement takes another one.
type Store struct {
	pool driver.Store
	free chan struct{} // has an element while nobody uses the connection; nil if none is reserved

	urgent atomic.Int32 // renewals that wait for the connection

	// Whoever has emptied free owns the fields below.
	conn   driver.Store // nil until it is used
	closed bool         // nothing is reserved any more
}

// New returns a Store on pool. It reserves nothing if the pool has one connection only.
func New(pool driver.Store) *Store {
	s := &Store{pool: pool}
	if pool.Info().MaxConns != 1 {
		s.free = make(chan struct{}, 1)
		s.free <- struct{}{}
	}
	return s
}

// Any runs f on the reserved connection if that is idle, or if the pool is exhausted, and
// on the pool otherwise.
func (s *Store) Any(ctx context.Context, f func(driver.Store) error) error {
	if s.urgent.Load() == 0 {
		select {
		case <-s.free:
			return s.run(ctx, f)
		default:
		}
	}
	return s.Pool(ctx, f)
}

// Pool runs f on the pool, or on the reserved connection if the pool is exhausted.
func (s *Store) Pool(ctx context.Context, f func(driver.Store) error) error {
	if s.free != nil && s.pool.Exhausted() {
		if done, err := s.share(ctx, f); done {
			return err
		}
	}
	return f(s.pool)
}

// Urgent runs f on the reserved connection, before all that is not urgent. If the
// connection is in use for longer than maxWait, and the pool is not exhausted, Urgent runs
// f on the pool: a statement that hangs on the reserved connection must not cost a lease.
func (s *Store) Urgent(ctx context.Context, maxWait time.Duration, f func(driver.Store) error) error {
	if s.free == nil {
		return f(s.pool)
	}
	wait, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	if done, err := s.first(wait, ctx, f); done {
		return err
	}
	if s.pool.Exhausted() {
		if done, err := s.first(ctx, ctx, f); done {
			return err
		}
	}
	return f(s.pool)
}

// first runs f before all that only share the connection. It reports false, and has not
// run f, if the connection was in use until wait ended.
func (s *Store) first(wait, work context.Context, f func(driver.Store) error) (done bool, err error) {
	s.urgent.Add(1)
	select {
	case <-s.free:
		s.urgent.Add(-1)
		return true, s.run(work, f)
	case <-wait.Done():
		s.urgent.Add(-1)
		return false, nil
	}
}

// share runs f when nothing urgent waits for the connection. It reports false, and has not
// run f, if that was not so before ctx ended.
func (s *Store) share(ctx context.Context, f func(driver.Store) error) (done bool, err error) {
	for {
		select {
		case <-s.free:
		case <-ctx.Done():
			return false, nil
		}
		if s.urgent.Load() == 0 {
			return true, s.run(ctx, f)
		}
		s.free <- struct{}{}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return false, nil
		}
	}
}

// run runs f on the connection, which the caller has to itself and which run frees. A
// connection that died while it was idle is replaced: nothing was sent on it.
func (s *Store) run(ctx context.Context, f func(driver.Store) error) error {
	defer func() { s.free <- struct{}{} }()
	if s.closed {
		return f(s.pool)
	}
	if s.conn == nil {
		if err := s.reserve(ctx); err != nil {
			return err
		}
	}
	err := f(s.conn)
	if errors.Is(err, sqldriver.ErrBadConn) {
		s.giveBack()
		if err := s.reserve(ctx); err != nil {
			return err
		}
		err = f(s.conn)
	}
	if err != nil {
		switch s.pool.Classify(err) {
		case driver.Unclear, driver.Unreachable:
			s.giveBack()
		}
	}
	return err
}

func (s *Store) reserve(ctx context.Context) (err error) {
	conn, err := s.pool.Reserve(ctx)
	if err == nil {
		s.conn = conn
	}
	return err
}

// giveBack closes the connection, if there is one. The driver destroys a connection in
// doubt, so there is nothing to do about an error.
func (s *Store) giveBack() {
	if s.conn != nil {
		_ = s.conn.Close()
		s.conn = nil
	}
}

// CloseIdle gives the connection back until it is needed again. It does not block. It
// reports false if the connection is in use.
func (s *Store) CloseIdle() bool {
	if s.free == nil {
		return true
	}
	select {
	case <-s.free:
	default:
		return false
	}
	defer func() { s.free <- struct{}{} }()
	s.giveBack()
	return true
}

// Close gives the connection back and reserves none any more. It waits for a statement
// that is in flight on it. It does not close the pool.
func (s *Store) Close() {
	if s.free == nil {
		return
	}
	<-s.free
	defer func() { s.free <- struct{}{} }()
	s.closed = true
	s.giveBack()
}
