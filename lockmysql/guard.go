package lockmysql

import (
	"context"
	"database/sql"
	"errors"

	"github.com/sqllock/sqllock/driver"
)

// Guard implements [driver.GuardStore]. A version stands for one term: whatever
// else ends a term raises it, but for its own release. It looks outside of the
// transaction first: to look in the index for a term that is over would lock a gap in
// REPEATABLE READ, which may be that behind all names.
func (s *store) Guard(ctx context.Context, tx *sql.Tx, req driver.GuardRequest) (driver.GuardStatus, error) {
	if s.isOver(ctx, &req) {
		return driver.Fenced, nil
	}
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

// isOver reports that a term is certainly not the current one. Who has used up the pool
// is not made to wait for a connection.
func (s *store) isOver(ctx context.Context, req *driver.GuardRequest) (over bool) {
	if s.Exhausted() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, glance)
	defer cancel()
	_ = s.do(ctx, func(ctx context.Context, c session) error {
		st, err := s.lookAt(ctx, c, req.Name)
		over = err == nil && st.holder.Version != req.Version
		return err
	})
	return over
}

// Begin implements [driver.GuardStore].
func (s *store) Begin(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error) {
	return s.pool.DB.BeginTx(ctx, opts)
}
