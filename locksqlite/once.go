package locksqlite

import (
	"context"
	"database/sql"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
)

var _ driver.OnceStore = (*store)(nil)

// CompleteKeyTx implements [driver.OnceStore].
func (s *store) CompleteKeyTx(ctx context.Context, tx *sql.Tx, name, key string) (bool, error) {
	return rowstore.CompleteKeyTx(ctx, tx, s.engine.texts["complete"], name, key)
}

// IsCompleteTx implements [driver.OnceStore].
func (s *store) IsCompleteTx(ctx context.Context, tx *sql.Tx, name, key string) (bool, error) {
	return rowstore.IsCompleteTx(ctx, tx, s.engine.texts["completed"], name, key)
}
