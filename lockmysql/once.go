package lockmysql

import (
	"context"
	"database/sql"

	"github.com/sqllock/sqllock/driver"
)

var _ driver.OnceStore = (*store)(nil)

// CompleteKeyTx implements [driver.OnceStore]. It changes the row of one that is not
// complete, or finds none, so that it does not matter what the connection counts.
func (s *store) CompleteKeyTx(ctx context.Context, tx *sql.Tx, name, key string) (bool, error) {
	res, err := tx.ExecContext(ctx, s.engine.queries.texts["complete"], digits(name), digits(key))
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}

// IsCompleteTx implements [driver.OnceStore].
func (s *store) IsCompleteTx(ctx context.Context, tx *sql.Tx, name, key string) (bool, error) {
	var at int64
	err := tx.QueryRowContext(ctx, s.engine.queries.texts["completed"], digits(name), digits(key)).Scan(&at)
	return at > 0, err
}
