package locksqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/sqllock/sqllock/driver"
)

// Guard implements [driver.GuardStore]. It takes the write lock on the database,
// which the transaction keeps until it ends: nobody else changes anything before.
func (s *store) Guard(ctx context.Context, tx *sql.Tx, req driver.GuardRequest) (driver.GuardStatus, error) {
	var version int64
	// It comes first: a transaction that has read cannot always write afterwards.
	err := tx.QueryRowContext(ctx, s.queries.guard, req.Name, req.Acq[:], req.Version).Scan(&version)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, err
	}
	status := driver.Guarded
	if err != nil {
		status = driver.Fenced
	}
	if err := s.file.checkPath(); err != nil {
		return 0, err
	}
	var id []byte
	if err := tx.QueryRowContext(ctx, s.queries.id).Scan(&id); err != nil {
		return 0, err
	}
	if string(id) != s.queries.database {
		status = driver.Foreign
	}
	return status, nil
}

// Begin implements [driver.GuardStore].
func (s *store) Begin(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error) {
	return s.pool.DB.BeginTx(ctx, opts)
}
