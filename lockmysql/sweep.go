package lockmysql

import (
	"context"
	"database/sql"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// Sweep implements [driver.LeaseStore]. A look finds what there is to do.
func (s *store) Sweep(ctx context.Context, req driver.SweepRequest) (res driver.SweepResult, err error) {
	err = s.do(ctx, func(ctx context.Context, c session) error {
		states, err := s.window(ctx, c, req.After, req.Limit)
		if err != nil {
			return err
		}
		res, err = s.clean(ctx, c, req, states)
		return err
	})
	if err != nil {
		return driver.SweepResult{}, err
	}
	return res, nil
}

// clean does what the rows of a window ask for. It purges first: a failure after
// terms have been ended would hide who has crashed.
func (s *store) clean(ctx context.Context, c session, req driver.SweepRequest, states []state) (res driver.SweepResult, err error) {
	res.Seen, res.More = len(states), len(states) == req.Limit
	idle := newBatch(1)
	purge := false
	var expired []state
	var untidy, ticketed []string
	for i := range states {
		st := &states[i]
		switch {
		case st.expired():
			expired = append(expired, *st)
		case st.idle(req.Retention):
			idle.row(st.name, driver.ID{}).end()
			purge = true
		}
		if st.leftOver || st.untidy && !st.idle(req.Retention) {
			untidy = append(untidy, st.name)
		}
		if st.ticketed {
			ticketed = append(ticketed, st.name)
		}
		res.Last = st.name
	}
	if len(ticketed) > 0 {
		if err := s.bury(ctx, c, ticketed); err != nil {
			return res, err
		}
	}
	if purge {
		age := req.Retention.Microseconds()
		purged, _, err := c.exec(ctx, s.queries.purge, idle.String(), age, age, age, age)
		if err != nil {
			return res, err
		}
		res.Purged = int(purged)
	}
	if len(expired) > 0 {
		if res.Crashed, err = s.end(ctx, c, expired); err != nil {
			return res, err
		}
	}
	if len(untidy) > 0 {
		crashed, err := s.mend(ctx, c, untidy)
		if err != nil && len(res.Crashed) == 0 {
			return res, err
		}
		// Otherwise the next pass finds the same names.
		res.Crashed = append(res.Crashed, crashed...)
	}
	return res, nil
}

// end ends those of the terms whose rows are not locked, and returns them. A
// transaction makes certain which they are. It has the isolation level of the
// session, for a server that logs statements takes no writes in READ COMMITTED. The
// transaction waits for nobody's rows.
func (s *store) end(ctx context.Context, c session, expired []state) (crashed []driver.Crash, err error) {
	b := newBatch(len(expired))
	for i := range expired {
		b.row(expired[i].name, expired[i].holder.Acq).int(expired[i].holder.Version).end()
	}
	err = s.inOwnTx(ctx, c, nil, func(tx *sql.Tx) error {
		mine := newBatch(len(expired))
		err := query(ctx, tx, s.queries.crashed, []any{b.String()}, func(rows *sql.Rows) error {
			var i int
			if err := rows.Scan(&i); err != nil {
				return err
			}
			st := &expired[i]
			mine.row(st.name, st.holder.Acq).int(st.holder.Version).end()
			crashed = append(crashed, driver.Crash{Name: st.name, Holder: st.holder})
			return nil
		})
		if err != nil || len(crashed) == 0 {
			return err
		}
		return change(ctx, tx, s.queries.end, mine, len(crashed)) // all that is locked, or nothing
	})
	if err != nil {
		return nil, err
	}
	return crashed, nil
}

// Turn implements [driver.LeaseStore]. It reads before it writes; of two that have
// read the same, one finds the row locked or no longer due.
func (s *store) Turn(ctx context.Context, every time.Duration) (mine bool, err error) {
	err = s.do(ctx, func(ctx context.Context, c session) error {
		var due bool
		err := s.read(ctx, c, s.queries.due, []any{every.Microseconds()}, func(rows *sql.Rows) error { return rows.Scan(&due) })
		if err != nil || !due {
			return err
		}
		n, _, err := c.exec(ctx, s.queries.turn, every.Microseconds())
		mine = n > 0
		return err
	})
	return mine, err
}
