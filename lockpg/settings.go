package lockpg

import (
	"context"
	"database/sql"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sqllock/sqllock/internal/rowstore"
)

// settings are those of a session that a Locker keeps to itself. Statements need what "plans"
// sets, so it is set once for the session, and not in each transaction. Before the session
// goes back to the application, it gets back what it had.
type settings struct {
	uses          int // of the session, until they are set
	names, values []string
}

// settleAfter is how many transactions a session must have had before its settings are
// changed: a Locker that is seldom used gives it back soon.
const settleAfter = 8

// restoreWait is how long giving the settings back may take. Then the session is ended.
const restoreWait = 250 * time.Millisecond

// plans are the steps that begin a transaction of the library's own.
func (e *engine) plans(ctx context.Context, conn *pgx.Conn) ([]step, error) {
	p := preparedOn(conn)
	if s := e.settings; s != nil && p != nil && s.names == nil {
		if s.uses++; s.uses == settleAfter {
			if err := e.settle(ctx, conn); err != nil {
				return nil, err
			}
		}
	}
	if e.settings != nil && e.settings.names != nil {
		return nil, nil
	}
	return []step{e.step("plans")}, nil
}

// settle changes the settings of the session, unless a pooler stands between.
func (e *engine) settle(ctx context.Context, conn *pgx.Conn) error {
	keep := e.step("keep_plans", int64(conn.PgConn().PID()))
	keep.scan = func(scan rowstore.Scanner) error {
		var name, before, after string
		err := scan(&name, &before, &after)
		if err == nil {
			e.settings.names, e.settings.values = append(e.settings.names, name), append(e.settings.values, before)
		}
		return err
	}
	_, err := pipeline(ctx, conn, []step{keep})
	return err
}

// Restore implements [rowstore.Restorer]: it gives the session its settings back.
func (e *engine) Restore(conn *sql.Conn) error {
	s := e.settings
	if len(s.names) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), restoreWait)
	defer cancel()
	return conn.Raw(func(c any) error {
		_, err := pipeline(ctx, c.(*stdlib.Conn).Conn(), []step{e.step("restore", s.names, s.values)})
		return err
	})
}
