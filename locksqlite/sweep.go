package locksqlite

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// Sweep implements [driver.LeaseStore]. It looks without the write lock, and
// takes that only if there is something to do.
func (s *store) Sweep(ctx context.Context, req driver.SweepRequest) (driver.SweepResult, error) {
	var res driver.SweepResult
	err := s.call(ctx, func(ctx context.Context, conn *sql.Conn) error {
		res = driver.SweepResult{}
		var expired, untidy, awaited, idle string
		retention := req.Retention.Microseconds()
		err := conn.QueryRowContext(ctx, s.queries.window, retention, req.After, req.Limit).
			Scan(&res.Seen, &res.Last, &expired, &untidy, &awaited, &idle)
		res.More = res.Seen == req.Limit
		if err != nil || expired == nothing && untidy == nothing && awaited == nothing && idle == nothing {
			return err
		}
		return s.immediate(ctx, conn, func(ctx context.Context) error {
			if res.Crashed, err = s.sweep(ctx, conn, expired); err != nil {
				return err
			}
			if untidy != nothing {
				crashed, err := s.mend(ctx, conn, untidy)
				if err != nil {
					return err
				}
				res.Crashed = append(res.Crashed, crashed...)
			}
			if err := s.bury(ctx, conn, awaited); err != nil {
				return err
			}
			res.Purged, err = s.purge(ctx, conn, idle, retention)
			return err
		})
	})
	if err != nil {
		return driver.SweepResult{}, err
	}
	return res, nil
}

// nothing is a list of no names.
const nothing = "[]"

// sweep ends the terms of those names that are still expired, in a transaction,
// and returns whose they were.
func (s *store) sweep(ctx context.Context, conn *sql.Conn, names string) ([]driver.Crash, error) {
	if names == nothing {
		return nil, nil
	}
	var crashed []driver.Crash
	err := query(ctx, conn, s.queries.holders, []any{names}, func(scan func(...any) error) error {
		var c driver.Crash
		err := scan(append([]any{&c.Name}, holderTargets(&c.Holder)...)...)
		crashed = append(crashed, c)
		return err
	})
	if err != nil {
		return nil, err
	}
	ended := make(map[string]bool, len(crashed))
	err = query(ctx, conn, s.queries.sweep, []any{names}, func(scan func(...any) error) error {
		var name string
		err := scan(&name)
		ended[name] = true
		return err
	})
	return slices.DeleteFunc(crashed, func(c driver.Crash) bool { return !ended[c.Name] }), err
}

// bury deletes the tickets of names that are long dead, in a transaction.
func (s *store) bury(ctx context.Context, conn *sql.Conn, names string) error {
	if names == nothing {
		return nil
	}
	if _, err := conn.ExecContext(ctx, s.queries.line.bury, names); err != nil {
		return err
	}
	_, err := conn.ExecContext(ctx, s.queries.line.settle, names)
	return err
}

// purge deletes those names that are still idle.
func (s *store) purge(ctx context.Context, conn *sql.Conn, names string, retention int64) (int, error) {
	if names == nothing {
		return 0, nil
	}
	done, err := conn.ExecContext(ctx, s.queries.purge, retention, names)
	if err != nil {
		return 0, err
	}
	n, err := done.RowsAffected()
	return int(n), err
}

// Turn implements [driver.LeaseStore]. Who comes too early needs no write lock.
func (s *store) Turn(ctx context.Context, every time.Duration) (mine bool, err error) {
	err = s.call(ctx, func(ctx context.Context, conn *sql.Conn) error {
		mine = false
		if err := conn.QueryRowContext(ctx, s.queries.due, every.Microseconds()).Scan(&mine); err != nil || !mine {
			return err
		}
		done, err := conn.ExecContext(ctx, s.queries.turn, every.Microseconds())
		if err != nil {
			return err
		}
		n, err := done.RowsAffected()
		mine = n > 0
		return err
	})
	return mine && err == nil, err
}
