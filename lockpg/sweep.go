package lockpg

import (
	"context"
	"database/sql"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// Sweep implements driver.LeaseStore. It is one statement.
func (s *store) Sweep(ctx context.Context, req driver.SweepRequest) (driver.SweepResult, error) {
	var res driver.SweepResult
	args := []any{req.After, req.Limit, req.Retention.Microseconds()}
	err := s.query(ctx, s.queries.sweep, args, func(r *sql.Rows) error {
		var name sql.NullString
		var h nullHolder
		err := r.Scan(h.into(&res.Seen, &res.Last, &res.Purged, &name)...)
		if err != nil || !name.Valid {
			return err
		}
		crash := driver.Crash{Name: name.String}
		crash.Holder, err = h.holder()
		res.Crashed = append(res.Crashed, crash)
		return err
	})
	res.More = res.Seen == req.Limit
	return res, err
}

// Turn implements driver.LeaseStore.
func (s *store) Turn(ctx context.Context, every time.Duration) (mine bool, err error) {
	err = s.query(ctx, s.queries.turn, []any{every.Microseconds()}, func(*sql.Rows) error {
		mine = true
		return nil
	})
	return mine, err
}
