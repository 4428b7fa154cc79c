package lockpg

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// Sweep implements driver.LeaseStore. It is one statement, unless readers of a name
// have gone without a word.
func (s *store) Sweep(ctx context.Context, req driver.SweepRequest) (driver.SweepResult, error) {
	var res driver.SweepResult
	var untidy string // names, as JSON
	args := []any{req.After, req.Limit, req.Retention.Microseconds()}
	err := s.query(ctx, s.queries.sweep, args, func(r *sql.Rows) error {
		var name sql.NullString
		var h nullHolder
		err := r.Scan(h.into(&res.Seen, &res.Last, &res.Purged, &untidy, &name)...)
		if err != nil || !name.Valid {
			return err
		}
		crash := driver.Crash{Name: name.String}
		crash.Holder, err = h.holder()
		res.Crashed = append(res.Crashed, crash)
		return err
	})
	res.More = res.Seen == req.Limit
	if err != nil || untidy == "" {
		return res, err
	}
	// Whom the statement has found must be told of: an error here has to wait for the
	// next pass, which finds the same names.
	var names []string
	if json.Unmarshal([]byte(untidy), &names) == nil {
		crashed, err := s.mend(ctx, names)
		if err != nil && len(res.Crashed) == 0 {
			return driver.SweepResult{}, err
		}
		res.Crashed = append(res.Crashed, crashed...)
	}
	return res, nil
}

// Turn implements driver.LeaseStore.
func (s *store) Turn(ctx context.Context, every time.Duration) (mine bool, err error) {
	err = s.query(ctx, s.queries.turn, []any{every.Microseconds()}, func(*sql.Rows) error {
		mine = true
		return nil
	})
	return mine, err
}
