package rowstore

import (
	"context"
	"database/sql"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/reserved"
	"github.com/sqllock/sqllock/internal/sqlconn"
)

// Store implements the methods of [driver.Store], but for Guard. Each call uses one connection,
// which is the reserved one or comes from the pool. It is safe for concurrent use.
type Store struct {
	opts  Options
	pool  *rows
	conns *reserved.Conns[*rows]
}

// Options are what a Store consists of.
type Options struct {
	Client driver.Client
	Info   driver.Info
	Pool   *sqlconn.Pool
	// Engine returns an engine that runs its statements on connections of source: of Pool, or
	// one that is reserved from it.
	Engine   func(source sqlconn.Source) Engine
	Classify func(err error) driver.Fault
	// Close gives back what the driver has opened. It may be nil.
	Close func() error
}

// New returns a Store. Call Close when done with it.
func New(o Options) *Store {
	pool := newRows(o.Engine(o.Pool), o.Client)
	return &Store{opts: o, pool: pool, conns: reserved.New(reserved.Options[*rows]{
		Pool: pool, MaxConns: o.Info.MaxConns, Exhausted: o.Pool.Exhausted, Classify: o.Classify,
		Reserve: func(ctx context.Context, fresh bool) (*rows, func() error, error) {
			reserve := o.Pool.Reserve
			if fresh {
				reserve = o.Pool.ReserveFresh
			}
			conn, err := reserve(ctx)
			if err != nil {
				return nil, nil, err
			}
			engine, giveBack := o.Engine(conn), conn.Close
			if r, ok := engine.(Restorer); ok {
				giveBack = func() error { return conn.CloseAfter(r.Restore) }
			}
			return pool.on(engine), giveBack, nil
		},
	})}
}

// Acquire implements the method of [driver.Store].
func (s *Store) Acquire(ctx context.Context, reqs []driver.AcquireRequest) (res []driver.AcquireResult, err error) {
	// The connection is reserved before the first lease is granted, not when it must be renewed.
	err = s.conns.Any(ctx, func(r *rows) error {
		res, err = r.acquire(ctx, reqs)
		return err
	})
	return res, err
}

// Renew implements the method of [driver.Store]. It is urgent, unless it waits for locked rows:
// that may take a second, and the reserved connection is for others if there is another one.
func (s *Store) Renew(ctx context.Context, reqs []driver.RenewRequest, wait bool) (res driver.RenewResults, err error) {
	choose := s.conns.Urgent
	if wait {
		choose = s.conns.Pool
	}
	err = choose(ctx, func(r *rows) error {
		res, err = r.renew(ctx, reqs, wait)
		return err
	})
	return res, err
}

// Release implements the method of [driver.Store]. Requests without a version are repeated
// anyway: they wait for a connection of the pool.
func (s *Store) Release(ctx context.Context, reqs []driver.ReleaseRequest) (res []driver.ReleaseResult, err error) {
	if len(reqs) > 0 && reqs[0].Version == 0 {
		return make([]driver.ReleaseResult, len(reqs)), s.pool.withdraw(ctx, reqs)
	}
	err = s.conns.Any(ctx, func(r *rows) error {
		res, err = r.release(ctx, reqs)
		return err
	})
	return res, err
}

// Read implements the method of [driver.Store]. Names are read for a waiter that was told of its
// turn, more often than for anybody else.
func (s *Store) Read(ctx context.Context, req driver.ReadRequest) (res driver.ReadResult, err error) {
	choose := s.conns.Pool
	if len(req.Names) > 0 {
		choose = s.conns.Idle
	}
	err = choose(ctx, func(r *rows) error {
		res, err = r.read(ctx, &req)
		return err
	})
	return res, err
}

// SetValue implements the method of [driver.Store].
func (s *Store) SetValue(ctx context.Context, req driver.SetValueRequest) (done bool, err error) {
	err = s.conns.Pool(ctx, func(r *rows) error {
		done, err = r.setValue(ctx, req)
		return err
	})
	return done, err
}

// Raise implements the method of [driver.NodeStore].
func (s *Store) Raise(ctx context.Context, reqs []driver.RaiseRequest) (res []bool, err error) {
	err = s.conns.Any(ctx, func(r *rows) error {
		res, err = r.raise(ctx, reqs)
		return err
	})
	return res, err
}

// LookKey implements the method of [driver.OnceStore].
func (s *Store) LookKey(ctx context.Context, name, key string, settle bool) (state driver.KeyState, err error) {
	err = s.conns.Pool(ctx, func(r *rows) error {
		state, err = r.lookKey(ctx, name, key, settle)
		return err
	})
	return state, err
}

// StartKey implements the method of [driver.OnceStore].
func (s *Store) StartKey(ctx context.Context, req driver.KeyRequest) (state driver.KeyState, err error) {
	err = s.conns.Pool(ctx, func(r *rows) error {
		state, err = r.startKey(ctx, req)
		return err
	})
	return state, err
}

// CompleteKey implements the method of [driver.OnceStore].
func (s *Store) CompleteKey(ctx context.Context, req driver.KeyRequest) (state driver.KeyState, err error) {
	err = s.conns.Pool(ctx, func(r *rows) error {
		state, err = r.completeKey(ctx, req)
		return err
	})
	return state, err
}

// LastKeys implements the method of [driver.OnceStore].
func (s *Store) LastKeys(ctx context.Context, names []string) (last map[string]driver.KeyState, err error) {
	err = s.conns.Pool(ctx, func(r *rows) error {
		last, err = r.lastKeys(ctx, names)
		return err
	})
	return last, err
}

// PurgeKeys implements the method of [driver.OnceStore].
func (s *Store) PurgeKeys(ctx context.Context, retention time.Duration, limit int) (purged int, more bool, err error) {
	err = s.conns.Pool(ctx, func(r *rows) error {
		purged, more, err = r.purgeKeys(ctx, retention, limit)
		return err
	})
	return purged, more, err
}

// Statements of an operator or of the reaper can wait for a connection of the pool. On the
// reserved connection they would delay renewals while they wait for a row.

// Revoke implements the method of [driver.Store].
func (s *Store) Revoke(ctx context.Context, reqs []driver.RevokeRequest) ([]driver.RevokeResult, error) {
	return s.pool.revoke(ctx, reqs)
}

// Resize implements the method of [driver.PermitStore].
func (s *Store) Resize(ctx context.Context, name string, permits int) error {
	return s.pool.resize(ctx, name, permits)
}

// Sweep implements the method of [driver.Store].
func (s *Store) Sweep(ctx context.Context, req driver.SweepRequest) (driver.SweepResult, error) {
	return s.pool.sweep(ctx, req)
}

// Begin implements the method of [driver.GuardStore].
func (s *Store) Begin(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error) {
	return s.opts.Pool.DB.BeginTx(ctx, opts)
}

// CloseIdle implements the method of [driver.Store].
func (s *Store) CloseIdle() bool { return s.conns.CloseIdle() }

// Info implements the method of [driver.Store].
func (s *Store) Info() driver.Info { return s.opts.Info }

// Close implements the method of [driver.Store].
func (s *Store) Close() error {
	s.conns.Close()
	if s.opts.Close == nil {
		return nil
	}
	return s.opts.Close()
}
