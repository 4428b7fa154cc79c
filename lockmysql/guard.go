package lockmysql

import (
	"context"
	"database/sql"
	"errors"

	"github.com/sqllock/sqllock/driver"
)

// Guard implements [driver.GuardStore]. A version stands for one term: whatever
// else ends a term raises it, but for its own release.
func (s *store) Guard(ctx context.Context, tx *sql.Tx, req driver.GuardRequest) (driver.GuardStatus, error) {
	status := driver.Guarded
	var id string
	err := tx.QueryRowContext(ctx, s.queries.guard, digits(req.Name), req.Version).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		status = driver.Fenced
		err = tx.QueryRowContext(ctx, s.queries.id).Scan(&id)
	}
	if err == nil && id != s.queries.database {
		status = driver.Foreign
	}
	return status, err
}

// Begin implements [driver.GuardStore].
func (s *store) Begin(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error) {
	return s.pool.DB.BeginTx(ctx, opts)
}
