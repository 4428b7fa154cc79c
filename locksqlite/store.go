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

var _ driver.NodeStore = (*store)(nil)

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
	guard := s.guardOne
	if len(req.Others) > 0 {
		guard = s.guardAll
	}
	// It comes first: a transaction that has read cannot always write afterwards.
	status, err := guard(ctx, tx, &req)
	if err != nil {
		return 0, err
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

// guardOne guards one term, or ends it.
func (s *store) guardOne(ctx context.Context, tx *sql.Tx, req *driver.GuardRequest) (driver.GuardStatus, error) {
	text, args := "guard", []any{req.Name, req.Acq[:], req.Version}
	switch {
	case req.Ends:
		text, args = "end_term", append(args, req.MinHold.Microseconds())
	case req.Shared:
		text = "guard_shared"
	}
	var n int64 // the version, or how many wait
	err := tx.QueryRowContext(ctx, s.engine.texts[text], args...).Scan(&n)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return driver.Fenced, nil
	case err != nil:
		return 0, err
	case req.Ends && n > 0:
		return driver.Awaited, nil
	}
	return driver.Guarded, nil
}

// guardAll guards several terms by one statement.
func (s *store) guardAll(ctx context.Context, tx *sql.Tx, req *driver.GuardRequest) (driver.GuardStatus, error) {
	terms := req.Terms()
	text, args := s.engine.prepare(&rowstore.Statement{Name: "guard_all", Batch: []rowstore.Column{
		column(terms, func(t *driver.Term) string { return t.Name }),
		column(terms, func(t *driver.Term) driver.ID { return t.Acq }),
		column(terms, func(t *driver.Term) int64 { return t.Version }),
	}})
	rows, err := tx.QueryContext(ctx, text, args...)
	if err != nil {
		return 0, err
	}
	defer func() { _ = rows.Close() }()
	current := 0
	for rows.Next() {
		current++
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	if current < len(terms) {
		return driver.Fenced, nil
	}
	return driver.Guarded, nil
}
