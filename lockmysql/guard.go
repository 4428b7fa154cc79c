package lockmysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

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
	switch {
	case req.Ends && alone:
		return s.endTerm(ctx, tx, &req)
	case req.Ends, !alone && !shared:
		return driver.Fenced, nil
	case s.engine.galera:
		return s.guardCertified(ctx, tx, []driver.Term{{Name: req.Name, Acq: req.Acq, Version: req.Version}}, alone)
	}
	var row *sql.Row
	if alone {
		row = tx.QueryRowContext(ctx, s.engine.guardText("guard"), digits(req.Name), req.Version)
	} else {
		row = tx.QueryRowContext(ctx, s.engine.guardText("guard_shared"), req.Acq.String(), digits(req.Name))
	}
	var id string
	var galera bool
	err := row.Scan(&id, &galera)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return s.fencedOrForeign(ctx, tx)
	case err != nil:
		return 0, err
	case galera:
		return 0, errGalera
	case id != s.engine.database:
		return driver.Foreign, nil
	}
	return driver.Guarded, nil
}

// errGalera says that a handle has come to a node of a Galera cluster after the constructor
// looked, where a row that is locked keeps nobody away.
var errGalera = fmt.Errorf("%w: the transaction is on a node of a Galera cluster, and the Locker was made on a server that is none; "+
	"make the Locker anew, or fence what you write with lockmysql.Fence and the token", driver.ErrUnsupported)

// guardText returns a statement that guards. It asks whether the server is a node of Galera, if
// it can tell.
func (e *engine) guardText(name string) string {
	if e.wsrep {
		return e.queries.asking[name]
	}
	return e.queries.texts[name]
}

// guardCertified guards terms on a node of a Galera cluster: the transaction changes what a change
// of the holder changes, too. If another node commits such a change first, the transaction is
// undone, at its commit at latest. Nobody else has the acquisitions, so the database is the right
// one if it has them.
func (s *store) guardCertified(ctx context.Context, tx *sql.Tx, terms []driver.Term, alone bool) (driver.GuardStatus, error) {
	for i := range terms {
		t := &terms[i]
		name, acq := digits(t.Name), t.Acq.String()
		var res sql.Result
		var err error
		if alone {
			res, err = tx.ExecContext(ctx, s.engine.queries.texts["guard_galera"], name, acq, t.Version)
		} else {
			res, err = tx.ExecContext(ctx, s.engine.queries.texts["guard_shared_galera"], acq, name, t.Version)
		}
		if err != nil {
			return 0, err
		}
		n, err := res.RowsAffected()
		switch {
		case err != nil:
			return 0, err
		case n == 0:
			return s.fencedOrForeign(ctx, tx)
		}
	}
	return driver.Guarded, nil
}

// fencedOrForeign is the status of a guard that has found no term.
func (s *store) fencedOrForeign(ctx context.Context, tx *sql.Tx) (driver.GuardStatus, error) {
	var id string
	if err := tx.QueryRowContext(ctx, s.engine.queries.texts["database"]).Scan(&id); err != nil {
		return 0, err
	}
	if id != s.engine.database {
		return driver.Foreign, nil
	}
	return driver.Fenced, nil
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
	if s.engine.galera {
		return s.guardCertified(ctx, tx, terms, true)
	}
	current := 0
	var id string
	var galera bool
	err := query(ctx, tx, s.engine.guardText("guard_all"), []any{b.String()}, func(rows *sql.Rows) error {
		current++
		return rows.Scan(&id, &galera)
	})
	switch {
	case err != nil:
		return 0, err
	case current == 0:
		return s.fencedOrForeign(ctx, tx)
	case galera:
		return 0, errGalera
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
	status, err := s.fencedOrForeign(ctx, tx)
	if err != nil || status == driver.Foreign {
		return status, err
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
