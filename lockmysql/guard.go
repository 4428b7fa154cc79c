package lockmysql

import (
	"context"
	"database/sql"
	"errors"

	"github.com/sqllock/sqllock/driver"
)

// Guard implements [driver.GuardStore]. It looks outside of the transaction first: to look in
// an index for a term that is over would lock a gap in REPEATABLE READ, which may be that
// behind all names. If it cannot look, a version stands for one term: whatever else ends a
// term raises it, or leaves the name without a holder.
func (s *store) Guard(ctx context.Context, tx *sql.Tx, req driver.GuardRequest) (driver.GuardStatus, error) {
	if len(req.Others) > 0 {
		return s.guardAll(ctx, tx, req.Terms())
	}
	if req.Ends && req.Guarded { // the entry is there
		return s.endTerm(ctx, tx, &req)
	}
	alone, shared := s.lookAt(ctx, &req)
	q := s.engine.queries
	var row *sql.Row
	switch {
	case req.Ends && alone:
		return s.endTerm(ctx, tx, &req)
	case req.Ends:
		return driver.Fenced, nil
	case alone:
		row = tx.QueryRowContext(ctx, q.texts["guard"], digits(req.Name), req.Version)
	case shared:
		row = tx.QueryRowContext(ctx, q.texts["guard_shared"], req.Acq.String(), digits(req.Name))
	default:
		return driver.Fenced, nil
	}
	status := driver.Guarded
	var id string
	err := row.Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		status = driver.Fenced
		err = tx.QueryRowContext(ctx, q.texts["database"]).Scan(&id)
	}
	if err == nil && id != s.engine.database {
		status = driver.Foreign
	}
	return status, err
}

// guardAll is Guard for several terms.
func (s *store) guardAll(ctx context.Context, tx *sql.Tx, terms []driver.Term) (driver.GuardStatus, error) {
	b := newBatch(len(terms))
	for i := range terms {
		b.row(terms[i].Name, terms[i].Acq).int(terms[i].Version).end()
	}
	if !s.lookAtAll(ctx, b.String(), len(terms)) {
		return driver.Fenced, nil
	}
	texts := s.engine.queries.texts
	current := 0
	var id string
	err := query(ctx, tx, texts["guard_all"], []any{b.String()}, func(rows *sql.Rows) error {
		current++
		return rows.Scan(&id)
	})
	if err == nil && current == 0 {
		err = tx.QueryRowContext(ctx, texts["database"]).Scan(&id)
	}
	switch {
	case err != nil:
		return 0, err
	case id != s.engine.database:
		return driver.Foreign, nil
	case current < len(terms):
		return driver.Fenced, nil
	}
	return driver.Guarded, nil
}

// lookAtAll is lookAt for several terms: it tells whether all may be the current ones.
func (s *store) lookAtAll(ctx context.Context, batch string, n int) bool {
	if s.engine.pool.Exhausted() {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, glance)
	defer cancel()
	current := n
	err := s.engine.do(ctx, func(ctx context.Context, c session) error {
		return s.engine.read(ctx, c, s.engine.queries.texts["look_guard_all"], []any{batch}, func(rows *sql.Rows) error {
			return rows.Scan(&current)
		})
	})
	return err != nil || current == n
}

// endTerm ends a term in the caller's transaction. It locks before it changes anything, so
// that it never waits.
func (s *store) endTerm(ctx context.Context, tx *sql.Tx, req *driver.GuardRequest) (driver.GuardStatus, error) {
	texts := s.engine.queries.texts
	term := []any{digits(req.Name), req.Acq.String(), req.Version}
	var waiting int64
	err := tx.QueryRowContext(ctx, texts["lock_term"], term...).Scan(&waiting)
	if errors.Is(err, sql.ErrNoRows) {
		return s.notEnded(ctx, tx, req)
	}
	if err != nil {
		return 0, err
	}
	kept := req.MinHold.Microseconds()
	if _, err := tx.ExecContext(ctx, texts["end_term"], append([]any{kept, kept, kept}, term...)...); err != nil {
		return 0, err
	}
	if waiting > 0 {
		return driver.Awaited, nil
	}
	return driver.Guarded, nil
}

// notEnded tells why a term could not be locked.
func (s *store) notEnded(ctx context.Context, tx *sql.Tx, req *driver.GuardRequest) (driver.GuardStatus, error) {
	var id string
	if err := tx.QueryRowContext(ctx, s.engine.queries.texts["database"]).Scan(&id); err != nil {
		return 0, err
	}
	if id != s.engine.database {
		return driver.Foreign, nil
	}
	if alone, _ := s.lookAt(ctx, req); alone {
		return driver.PassedOver, nil
	}
	return driver.Fenced, nil
}

// lookAt tells whether a term is that of one who has the name alone, or shares it, or certainly
// neither. If it does not know it, it says what the request says. Who has used up the pool is not
// made to wait for a connection.
func (s *store) lookAt(ctx context.Context, req *driver.GuardRequest) (alone, shared bool) {
	if s.engine.pool.Exhausted() {
		return !req.Shared, req.Shared
	}
	ctx, cancel := context.WithTimeout(ctx, glance)
	defer cancel()
	err := s.engine.do(ctx, func(ctx context.Context, c session) error {
		alone, shared = false, false
		args := []any{digits(req.Name), req.Acq.String(), req.Version}
		return s.engine.read(ctx, c, s.engine.queries.texts["look_guard"], args, func(rows *sql.Rows) error {
			return rows.Scan(&alone, &shared)
		})
	})
	if err != nil {
		return !req.Shared, req.Shared
	}
	return alone, shared
}
