package lockpg

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"time"

	"github.com/sqllock/sqllock/internal/sqlconn"
)

// conns runs statements on connections of a source.
type conns struct {
	source  sqlconn.Source
	isolate bool // the default isolation level is not READ COMMITTED
}

// query runs one statement, in a transaction of its own, and calls scan for each
// row of its result. A statement of which a row was scanned is not repeated.
func (s *conns) query(ctx context.Context, query string, args []any, scan func(*sql.Rows) error) error {
	return s.source.Do(ctx, func(ctx context.Context, conn *sql.Conn) error {
		began := false
		err := s.committed(ctx, conn, func() error {
			return queryOn(ctx, conn, query, args, func(rows *sql.Rows) error {
				began = true
				return scan(rows)
			})
		})
		if began {
			return sqlconn.Unknown(err)
		}
		return unsent(err)
	})
}

// committed calls fn, which runs one statement, in a transaction of its own.
func (s *conns) committed(ctx context.Context, conn *sql.Conn, fn func() error) error {
	if !s.isolate {
		return fn()
	}
	return inOwnTx(ctx, conn, queryBound, fn)
}

// queryBound has the server end a transaction whose client is silent in it for so many
// milliseconds.
const queryBound = `SELECT set_config('idle_in_transaction_session_timeout', $1::text, true)`

// inOwnTx calls fn in a transaction of the library's own, which conn is in, and commits it. The server
// ends it if the client is silent for as long as it may take, or as a statement waits
// for a lock: else a client that was paused, or has vanished, would keep what it has
// locked. bound is [queryBound], or does more.
func inOwnTx(ctx context.Context, conn *sql.Conn, bound string, fn func() error) (err error) {
	defer func() {
		if err != nil {
			rollback(ctx, conn)
		}
	}()
	if _, err := conn.ExecContext(ctx, queryBegin); err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, bound, silenceIn(ctx)); err != nil {
		return err
	}
	if err := fn(); err != nil {
		return err
	}
	_, err = conn.ExecContext(ctx, queryCommit)
	return sqlconn.Unknown(err) // pgx says that it was not sent also if the answer was lost, see isUnsent
}

// rollback ends a transaction that a connection may be in, or else the connection.
func rollback(ctx context.Context, conn *sql.Conn) {
	if ctx.Err() == nil {
		if _, err := conn.ExecContext(ctx, queryRollback); err == nil {
			return
		}
	}
	_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn })
}

// silenceIn is for how many milliseconds the server lets the client be silent in a transaction
// of the library's own.
func silenceIn(ctx context.Context) string {
	bound := longestWait
	if end, ok := ctx.Deadline(); ok {
		bound = max(time.Millisecond, min(bound, time.Until(end)))
	}
	return milliseconds(bound)
}

// queryOn reads the result to its end: only there does an error of the commit
// show.
func queryOn(ctx context.Context, conn *sql.Conn, query string, args []any, scan func(*sql.Rows) error) error {
	rows, err := conn.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
