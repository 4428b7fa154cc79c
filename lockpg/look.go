package lockpg

import (
	"context"
	"database/sql"
	"errors"

	"github.com/sqllock/sqllock/driver"
)

// Look implements driver.LeaseStore.
func (s *store) Look(ctx context.Context, names []string) ([]driver.Row, error) {
	rows := make([]driver.Row, 0, len(names))
	err := s.query(ctx, s.queries.look, nameArgs(names), func(r *sql.Rows) error {
		row, err := scanRow(r)
		rows = append(rows, row)
		return err
	})
	return rows, err
}

// List implements driver.LeaseStore.
func (s *store) List(ctx context.Context, req driver.ListRequest) (driver.Page, error) {
	var page driver.Page
	err := s.query(ctx, s.queries.list, []any{req.After, req.Limit, req.Free}, func(r *sql.Rows) error {
		var wanted bool
		var seen int
		row, err := scanRow(r, &wanted, &seen)
		if wanted {
			page.Rows = append(page.Rows, row)
		}
		page.Last, page.More = row.Name, seen == req.Limit
		return err
	})
	return page, err
}

// Revoke implements driver.LeaseStore. If a name has got another term while the statement
// waited for its row, the error classifies as [driver.Again].
func (s *store) Revoke(ctx context.Context, reqs []driver.RevokeRequest) ([]driver.RevokeResult, error) {
	res := make([]driver.RevokeResult, 0, len(reqs))
	var changed bool
	names, versions := revokeArgs(reqs)
	err := s.query(ctx, s.queries.revoke, []any{names, s.client.Instance.String(), versions}, func(r *sql.Rows) error {
		var x driver.RevokeResult
		var next sql.NullInt64 // the version of the next term, if somebody waited
		var other bool
		var err error
		x.Row, err = scanRow(r, &x.Revoked, &next, &other)
		changed = changed || other
		res = append(res, x)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.drop(ctx, res)
	if !changed {
		return res, nil
	}
	return nil, notAll(len(reqs))
}

// revokeArgs are the names of requests and the versions of their terms.
func revokeArgs(reqs []driver.RevokeRequest) (names, versions string) {
	return array(len(reqs), func(i int) string { return reqs[i].Name }), integers(len(reqs), func(i int) int64 { return reqs[i].Version })
}

// notAll is the error of a call that found one of n rows in use.
func notAll(n int) error {
	if n > 1 {
		return partly(errors.New(errLocked.Error()))
	}
	return errLocked
}

// scanRow reads the columns of row, the value, and what follows.
func scanRow(rows *sql.Rows, more ...any) (driver.Row, error) {
	var name sql.NullString
	var h nullHolder
	var holds, readers, gate, ended, revoked sql.NullInt64
	var r driver.Row
	err := rows.Scan(h.into(&name).then(&holds, &readers, &gate, &ended, &revoked, &r.Now, &r.Value).then(more...)...)
	if err != nil {
		return r, err
	}
	r.Name, r.Holds, r.Gate, r.Ended = name.String, int(holds.Int64), gate.Int64, driver.Ending(ended.Int64)
	r.Revoked, r.Readers = revoked.Int64, int(readers.Int64)
	r.Holder, err = h.holder()
	return r, err
}
