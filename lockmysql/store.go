package lockmysql

import (
	"context"
	"database/sql"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
)

// store is the unique mode.
type store struct {
	*rowstore.Store
	engine *engine
}

var _ driver.Store = (*store)(nil)

// Info implements [driver.Store].
func (s *store) Info() driver.Info { return s.engine.info }

// Close implements [driver.Store].
func (s *store) Close() error {
	if p := s.engine.prepared; p != nil {
		p.close()
	}
	return s.engine.source.Close()
}

// Exhausted implements [driver.Store].
func (s *store) Exhausted() bool {
	return s.engine.source == s.engine.pool && s.engine.pool.Exhausted()
}

// Classify implements [driver.Store].
func (s *store) Classify(err error) driver.Fault { return classify(err) }

// Begin implements [driver.GuardStore].
func (s *store) Begin(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error) {
	return s.engine.pool.DB.BeginTx(ctx, opts)
}

// Reserve implements [driver.Store].
func (s *store) Reserve(ctx context.Context) (driver.Store, error) {
	conn, err := s.engine.pool.Reserve(ctx)
	if err != nil {
		return nil, err
	}
	reserved := *s.engine
	reserved.source, reserved.prepared = conn, newPrepared()
	return &store{s.On(&reserved), &reserved}, nil
}
