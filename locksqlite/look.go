package locksqlite

import (
	"context"
	"database/sql"

	"github.com/sqllock/sqllock/driver"
)

// Look implements [driver.LeaseStore].
func (s *store) Look(ctx context.Context, names []string) ([]driver.Row, error) {
	var rows []driver.Row
	err := s.do(ctx, len(names), func(ctx context.Context, conn *sql.Conn) (err error) {
		rows, err = s.look(ctx, conn, names)
		return err
	})
	if err != nil {
		return nil, err
	}
	return rows, nil
}

func (s *store) look(ctx context.Context, conn *sql.Conn, names []string) ([]driver.Row, error) {
	rows := make([]driver.Row, len(names))
	err := query(ctx, conn, s.queries.look, []any{toJSON(names)}, func(scan func(...any) error) error {
		var key int
		var r driver.Row
		if err := scan(append(rowTargets(&key, &r), &r.Value)...); err != nil {
			return err
		}
		r.Name = names[key]
		rows[key] = r
		return nil
	})
	return rows, err
}

// List implements [driver.LeaseStore].
func (s *store) List(ctx context.Context, req driver.ListRequest) (driver.Page, error) {
	var page driver.Page
	err := s.call(ctx, func(ctx context.Context, conn *sql.Conn) error {
		page = driver.Page{}
		seen := 0
		err := query(ctx, conn, s.queries.list, []any{req.After, req.Limit}, func(scan func(...any) error) error {
			var r driver.Row
			if err := scan(rowTargets(&r.Name, &r)...); err != nil {
				return err
			}
			if req.Free || r.Held() || r.Gate > r.Now {
				page.Rows = append(page.Rows, r)
			}
			page.Last = r.Name
			seen++
			return nil
		})
		page.More = seen == req.Limit
		return err
	})
	if err != nil {
		return driver.Page{}, err
	}
	return page, nil
}

// Revoke implements [driver.LeaseStore].
func (s *store) Revoke(ctx context.Context, reqs []driver.RevokeRequest) ([]driver.RevokeResult, error) {
	res := make([]driver.RevokeResult, len(reqs))
	err := s.do(ctx, len(reqs), func(ctx context.Context, conn *sql.Conn) error {
		clear(res)
		return s.immediate(ctx, conn, func(ctx context.Context) error { return s.revoke(ctx, conn, reqs, res) })
	})
	if err != nil {
		return nil, err
	}
	return res, nil
}

// revoke runs in a transaction: what it reads is what it ends.
func (s *store) revoke(ctx context.Context, conn *sql.Conn, reqs []driver.RevokeRequest, res []driver.RevokeResult) error {
	names := make([]string, len(reqs))
	for i := range reqs {
		names[i] = reqs[i].Name
	}
	rows, err := s.look(ctx, conn, names)
	if err != nil {
		return err
	}
	index := make(map[string]int, len(names))
	meant := names[:0]
	for i, r := range rows {
		res[i].Row, index[r.Name] = r, i
		if reqs[i].Version == 0 || reqs[i].Version == r.Holder.Version {
			meant = append(meant, r.Name)
		}
	}
	var shared, awaited []string
	err = query(ctx, conn, s.queries.revoke, []any{toJSON(meant)}, func(scan func(...any) error) error {
		var name string
		var waits bool
		if err := scan(&name, &waits); err != nil {
			return err
		}
		res[index[name]].Revoked = true
		if rows[index[name]].Readers > 0 {
			shared = append(shared, name)
		}
		if waits {
			awaited = append(awaited, name)
		}
		return nil
	})
	if err == nil && len(shared) > 0 {
		_, err = conn.ExecContext(ctx, s.queries.shared.drop, toJSON(shared))
	}
	if err == nil {
		_, err = s.advance(ctx, conn, awaited)
	}
	return err
}

// rowTargets are what the key or name of a row and the columns of row are
// scanned into.
func rowTargets(key any, r *driver.Row) []any {
	return append(append([]any{key}, holderTargets(&r.Holder)...), &r.Holds, &r.Readers, &r.Gate, &r.Ended, &r.Revoked, &r.Now)
}

// holderTargets are what the columns of holder are scanned into.
func holderTargets(h *driver.Holder) []any {
	return []any{idTarget{&h.Acq}, &h.Owner, &h.Label, &h.Version, &h.Since, &h.Until, &h.Shared}
}
