package lockpg

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
)

// revocations are what a Locker is asked to give up.
type revocations struct {
	now     int64
	primary bool // the server takes writes
	holders map[driver.ID]bool
	upTo    map[string]int64 // by name, the highest version that is meant
}

func (r *revocations) scan(rows *sql.Rows) error {
	var name, acq sql.NullString
	var upTo sql.NullInt64
	if err := rows.Scan(&r.now, &r.primary, &name, &acq, &upTo); err != nil || !name.Valid {
		return err
	}
	if upTo.Int64 > 0 {
		if r.upTo == nil {
			r.upTo = make(map[string]int64)
		}
		r.upTo[name.String] = upTo.Int64
		return nil
	}
	if !acq.Valid {
		return nil
	}
	id, err := parseID(acq.String)
	if r.holders == nil {
		r.holders = make(map[driver.ID]bool)
	}
	r.holders[id] = true
	return err
}

func (r *revocations) status(req *driver.RenewRequest) driver.RenewStatus {
	if r.holders[req.Acq] || req.Version <= r.upTo[req.Name] {
		return driver.Revoked
	}
	return driver.Renewed
}

// endTerm ends terms by their holders. It reports whether somebody has locked one,
// which is left as it is then.
func (s *sessions) endTerm(ctx context.Context, run runner, reqs []driver.ReleaseRequest) (locked bool, err error) {
	args := []any{
		array(len(reqs), func(i int) string { return reqs[i].Name }),
		array(len(reqs), func(i int) string { return reqs[i].Acq.String() }),
		integers(len(reqs), func(i int) int64 { return reqs[i].MinHold.Microseconds() }),
	}
	err = run(ctx, s.q.endTerm, args, func(rows *sql.Rows) error { return rows.Scan(&locked) })
	return locked, err
}

// keyArgs are names and their keys.
func (s *sessions) keyArgs(names []string) []any {
	return []any{textOf(names), integers(len(names), func(i int) int64 {
		if s.key == nil {
			return 0
		}
		return s.key(names[i])
	})}
}

// Look implements [driver.SessionStore].
func (s *sessions) Look(ctx context.Context, names []string) ([]driver.Row, error) {
	run := s.query
	if s.pool.Exhausted() {
		run = s.queryKept
	}
	all := make([]driver.Row, 0, len(names))
	err := run(ctx, s.q.look, s.keyArgs(names), func(rows *sql.Rows) error {
		var live bool
		var readers int
		r, err := scanRow(rows, &live, &readers)
		r.Session = live
		if r.Holder.Acq == (driver.ID{}) && readers > r.Readers { // nobody has noted them yet
			r.Readers, r.Holder.Shared, r.Holder.Until = readers, true, 0
		}
		if len(all) == len(names) { // the statement was repeated
			all = all[:0]
		}
		all = append(all, r)
		return err
	})
	return all, err
}

// List implements [driver.SessionStore].
func (s *sessions) List(ctx context.Context, req driver.ListRequest) (driver.Page, error) {
	var page driver.Page
	err := s.query(ctx, s.q.list, []any{req.After, req.Limit, req.Free}, func(rows *sql.Rows) error {
		var wanted, live bool
		var seen int
		r, err := scanRow(rows, &live, &wanted, &seen)
		r.Session = live
		if wanted {
			page.Rows = append(page.Rows, r)
		}
		page.Last, page.More = r.Name, seen == req.Limit
		return err
	})
	return page, err
}

// Revoke implements [driver.SessionStore]. While a transaction guards the lease of a
// holder whose session is gone the error classifies as [driver.Again].
func (s *sessions) Revoke(ctx context.Context, reqs []driver.RevokeRequest) ([]driver.RevokeResult, error) {
	names := make([]string, len(reqs))
	for i := range reqs {
		names[i] = reqs[i].Name
	}
	res := make([]driver.RevokeResult, 0, len(reqs))
	var locked bool
	versions := integers(len(reqs), func(i int) int64 { return reqs[i].Version })
	err := s.query(ctx, s.q.revoke, append(s.keyArgs(names), versions), func(rows *sql.Rows) error {
		var x driver.RevokeResult
		var live, over bool
		var err error
		x.Row, err = scanRow(rows, &live, &x.Revoked, &over)
		x.Row.Session = live
		locked = locked || over && !x.Revoked
		res = append(res, x)
		return err
	})
	if err == nil && locked {
		err = notAll(len(names))
	}
	if err != nil {
		return nil, err
	}
	return res, nil
}

// notAll is the error of a call that found one of n rows in use.
func notAll(n int) error {
	if n > 1 {
		return &rowstore.PartlyError{Err: errors.New(errLocked.Error())}
	}
	return errLocked
}

// Sweep implements [driver.SessionStore]. It is one statement.
func (s *sessions) Sweep(ctx context.Context, req driver.SweepRequest) (driver.SweepResult, error) {
	var res driver.SweepResult
	args := []any{req.After, req.Limit, req.Retention.Microseconds()}
	err := s.query(ctx, s.q.sweep, args, func(rows *sql.Rows) error {
		var name sql.NullString
		var h nullHolder
		err := rows.Scan(h.into(&res.Seen, &res.Last, &res.Purged, &name)...)
		if err != nil || !name.Valid {
			return err
		}
		crash := driver.Crash{Name: name.String}
		crash.Holder, err = h.holder()
		crash.Holder.Until = crash.Holder.Since
		res.Crashed = append(res.Crashed, crash)
		return err
	})
	res.More = res.Seen == req.Limit
	return res, err
}

// Turn implements [driver.SessionStore].
func (s *sessions) Turn(ctx context.Context, every time.Duration) (mine bool, err error) {
	err = s.query(ctx, s.q.turn, []any{every.Microseconds()}, func(*sql.Rows) error {
		mine = true
		return nil
	})
	return mine, err
}

// Proclaim implements [driver.Proclaimer].
func (s *sessions) Proclaim(ctx context.Context, req driver.SetValueRequest) (done bool, err error) {
	run := s.query
	if s.pool.Exhausted() {
		run = s.queryKept
	}
	args := []any{req.Name, req.Acq.String(), req.Version, bytea(req.Value)}
	err = run(ctx, s.q.proclaim, args, func(rows *sql.Rows) error { return rows.Scan(&done) })
	return done && err == nil, err
}
