package locksqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
)

// store is the unique mode.
type store struct {
	*rowstore.Store
	engine *engine
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
	if string(id) != s.engine.database {
		status = driver.Foreign
	}
	return status, nil
}
