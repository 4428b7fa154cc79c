// Package unique implements the mode whose locks are rows under a unique index.
package unique

import (
	"context"
	"database/sql"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/reserved"
)

// minPushConns is how many connections a pool must be able to open before one of them is
// used to listen.
const minPushConns = 4

// Backend runs the statements of the unique mode, each on the reserved connection or on the
// pool. It is safe for concurrent use.
type Backend struct {
	store driver.Store
	conns *reserved.Store
}

// New returns a Backend on a store, which it closes. Call Close when done with it.
func New(store driver.Store) *Backend {
	return &Backend{store: store, conns: reserved.New(store)}
}

// Grant implements the method of [driver.Store].
func (b *Backend) Grant(ctx context.Context, reqs []driver.AcquireRequest) (res []driver.AcquireResult, err error) {
	// The connection is reserved before the first lease is granted, not when it must be renewed.
	err = b.conns.Any(ctx, func(s driver.Store) error {
		res, err = s.Grant(ctx, reqs)
		return err
	})
	return res, err
}

// Renew implements the method of [driver.Store]. It waits for the reserved connection no
// longer than maxWait, if the pool has another one. With wait it is not urgent.
func (b *Backend) Renew(ctx context.Context, reqs []driver.RenewRequest, wait bool, maxWait time.Duration) (res driver.RenewResults, err error) {
	f := func(s driver.Store) error {
		res, err = s.Renew(ctx, reqs, wait)
		return err
	}
	if wait { // it may take a second: not on the reserved connection if there is another one
		err = b.conns.Pool(ctx, f)
	} else {
		err = b.conns.Urgent(ctx, maxWait, f)
	}
	return res, err
}

// Release implements the method of [driver.Store].
func (b *Backend) Release(ctx context.Context, reqs []driver.ReleaseRequest) (res []driver.ReleaseResult, err error) {
	err = b.conns.Any(ctx, func(s driver.Store) error {
		res, err = s.Release(ctx, reqs)
		return err
	})
	return res, err
}

// Abandon implements the method of [driver.Store].
func (b *Backend) Abandon(ctx context.Context, reqs []driver.ReleaseRequest) error {
	// It is repeated anyway: let it wait for a connection rather than reserve one.
	return b.store.Abandon(ctx, reqs)
}

// Look implements the method of [driver.Store].
func (b *Backend) Look(ctx context.Context, names []string) (rows []driver.Row, err error) {
	err = b.conns.Pool(ctx, func(s driver.Store) error {
		rows, err = s.Look(ctx, names)
		return err
	})
	return rows, err
}

// List implements the method of [driver.Store].
func (b *Backend) List(ctx context.Context, req driver.ListRequest) (page driver.Page, err error) {
	err = b.conns.Pool(ctx, func(s driver.Store) error {
		page, err = s.List(ctx, req)
		return err
	})
	return page, err
}

// Statements of an operator or of the reaper can wait for a connection of the pool. On the
// reserved connection they would delay renewals while they wait for a row.

// Revoke implements the method of [driver.Store].
func (b *Backend) Revoke(ctx context.Context, reqs []driver.RevokeRequest) ([]driver.RevokeResult, error) {
	return b.store.Revoke(ctx, reqs)
}

// Sweep implements the method of [driver.Store].
func (b *Backend) Sweep(ctx context.Context, req driver.SweepRequest) (driver.SweepResult, error) {
	return b.store.Sweep(ctx, req)
}

// SweepDue reports whether this process has to sweep now.
func (b *Backend) SweepDue(ctx context.Context, every time.Duration) (bool, error) {
	return b.store.Turn(ctx, every)
}

// Resume implements the method of [driver.Store].
func (b *Backend) Resume(ctx context.Context, req driver.ResumeRequest) (driver.AcquireResult, error) {
	var res driver.AcquireResult
	err := b.conns.Any(ctx, func(s driver.Store) (err error) {
		res, err = s.Resume(ctx, req)
		return err
	})
	return res, err
}

// Proclaim implements the method of [driver.Proclaimer].
func (b *Backend) Proclaim(ctx context.Context, req driver.SetValueRequest) (bool, error) {
	done := false
	err := b.conns.Pool(ctx, func(s driver.Store) (err error) {
		done, err = s.Proclaim(ctx, req)
		return err
	})
	return done, err
}

// Guard runs f, in a transaction of the application, which has a connection.
func (b *Backend) Guard(ctx context.Context, f driver.GuardFunc, req driver.GuardRequest) (driver.GuardStatus, error) {
	return f(ctx, b.store, req)
}

// Begin implements the method of [driver.GuardStore].
func (b *Backend) Begin(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error) {
	return b.store.Begin(ctx, opts)
}

// Queue puts waiters into the queues of the database, and keeps them there.
func (b *Backend) Queue(ctx context.Context, reqs []driver.AcquireRequest) (res []driver.AcquireResult, err error) {
	err = b.conns.Any(ctx, func(s driver.Store) error {
		res, err = s.Line(ctx, reqs)
		return err
	})
	return res, err
}

// Waits returns who waits for whom.
func (b *Backend) Waits(ctx context.Context) (waits []driver.Waiter, err error) {
	err = b.conns.Pool(ctx, func(s driver.Store) error {
		waits, err = s.Waits(ctx)
		return err
	})
	return waits, err
}

// Keys calls f with the store of keys on a connection.
func (b *Backend) Keys(ctx context.Context, f func(driver.OnceStore) error) error {
	return b.conns.Pool(ctx, func(s driver.Store) error { return f(s.(driver.OnceStore)) })
}

// KeysTx returns the store of keys, for transactions of the application. It is nil if the
// database has none: then do not call Keys.
func (b *Backend) KeysTx() driver.OnceStore {
	keys, _ := b.store.(driver.OnceStore)
	return keys
}

// Listen calls heard for each waiter of this process whose turn has come, until ctx ends or
// the connection breaks. It returns driver.ErrUnsupported if the database cannot push, or if
// the pool is too small.
func (b *Backend) Listen(ctx context.Context, heard func(driver.ID)) error {
	listener, ok := b.store.(driver.Listener)
	if conns := b.store.Info().MaxConns; !ok || conns != 0 && conns < minPushConns {
		return driver.ErrUnsupported
	}
	return listener.Listen(ctx, heard)
}

// Classify says what an error of a method means.
func (b *Backend) Classify(err error) driver.Fault { return b.store.Classify(err) }

// CloseIdle gives the reserved connection back until the next grant. It does not block. It
// reports false if the connection is in use.
func (b *Backend) CloseIdle() bool { return b.conns.CloseIdle() }

// Close gives the reserved connection back and closes the store.
func (b *Backend) Close() error {
	b.conns.Close()
	return b.store.Close()
}
