package locksqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
	"github.com/sqllock/sqllock/internal/sqlconn"
)

// store is the lease store on one database.
type store struct {
	*rowstore.Store
	engine   *engine
	pool     *sqlconn.Pool // nil if reserved
	database string        // its id
	info     driver.Info
}

var _ driver.Store = (*store)(nil)

// Renew implements [driver.Store]. What is in a file that has taken the place of the
// database is not ours.
func (s *store) Renew(ctx context.Context, reqs []driver.RenewRequest, wait bool) (driver.RenewResults, error) {
	res, err := s.Store.Renew(ctx, reqs, wait)
	if errors.As(err, new(*movedError)) {
		return driver.RenewResults{Status: make([]driver.RenewStatus, len(reqs)), Why: err}, nil
	}
	return res, err
}

// Guard implements [driver.GuardStore]. It takes the write lock on the database,
// which the transaction keeps until it ends: nobody else changes anything before.
func (s *store) Guard(ctx context.Context, tx *sql.Tx, req driver.GuardRequest) (driver.GuardStatus, error) {
	text, args := "guard", []any{req.Name, req.Acq[:], req.Version}
	if req.Ends {
		text, args = "end_term", append(args, req.MinHold.Microseconds())
	}
	var n int64 // the version, or how many wait
	// It comes first: a transaction that has read cannot always write afterwards.
	err := tx.QueryRowContext(ctx, s.engine.texts[text], args...).Scan(&n)
	status := driver.Guarded
	switch {
	case errors.Is(err, sql.ErrNoRows):
		status = driver.Fenced
	case err != nil:
		return 0, err
	case req.Ends && n > 0:
		status = driver.Awaited
	}
	if err := s.engine.file.checkPath(); err != nil {
		return 0, err
	}
	var id []byte
	if err := tx.QueryRowContext(ctx, s.engine.texts["database"]).Scan(&id); err != nil {
		return 0, err
	}
	if string(id) != s.database {
		status = driver.Foreign
	}
	return status, nil
}

// Begin implements [driver.GuardStore].
func (s *store) Begin(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error) {
	return s.pool.DB.BeginTx(ctx, opts)
}

// Reserve implements [driver.Store].
func (s *store) Reserve(ctx context.Context) (driver.Store, error) {
	if s.pool == nil {
		return nil, errors.New("bug: Reserve of a reserved store")
	}
	conns, err := s.pool.Reserve(ctx)
	if err != nil {
		return nil, err
	}
	e := *s.engine
	e.conns = conns
	return &store{Store: s.On(&e), engine: &e, database: s.database, info: s.info}, nil
}

// Exhausted implements [driver.Store].
func (s *store) Exhausted() bool { return s.pool != nil && s.pool.Exhausted() }

// Classify implements [driver.Store].
func (s *store) Classify(err error) driver.Fault { return classify(err) }

// Info implements [driver.Store].
func (s *store) Info() driver.Info { return s.info }

// Close implements [driver.Store].
func (s *store) Close() error { return s.engine.conns.Close() }
