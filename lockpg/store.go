package lockpg

import (
	"context"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
	"github.com/sqllock/sqllock/internal/sqlconn"
)

// store is the lease store of the unique mode on one database.
type store struct {
	*rowstore.Store
	engine *engine
	pool   *sqlconn.Pool
	close  func() error
	id     string // of the database
	info   driver.Info

	sessionPooler bool // one in session mode may stand between
}

var _ driver.Store = (*store)(nil)

// Reserve implements [driver.Store].
func (s *store) Reserve(ctx context.Context) (driver.Store, error) {
	conn, err := s.pool.Reserve(ctx)
	if err != nil {
		return nil, err
	}
	e := *s.engine
	e.source, e.settings = conn, new(settings)
	reserved := *s
	reserved.engine, reserved.Store = &e, s.On(&e)
	reserved.close = func() error { return conn.CloseAfter(e.restore) }
	return &reserved, nil
}

// Exhausted implements [driver.Store].
func (s *store) Exhausted() bool { return s.engine.source == s.pool && s.pool.Exhausted() }

// Classify implements [driver.Store].
func (s *store) Classify(err error) driver.Fault { return classify(err) }

// Info implements [driver.Store].
func (s *store) Info() driver.Info { return s.info }

// Close implements [driver.Store].
func (s *store) Close() error { return s.close() }
