package lockpg

import (
	"context"
	"database/sql"
	"time"

	"github.com/sqllock/sqllock/internal/sqlconn"
)

// conns runs statements on connections of a source.
type conns struct {
	source  sqlconn.Source
	isolate bool // the default isolation level is not READ COMMITTED
}

// querier is a connection or a transaction on it.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// query runs one statement, in a transaction of its own, and calls scan for each
// row of its result. A statement of which a row was scanned is not repeated.
func (s *conns) query(ctx context.Context, query string, args []any, scan func(*sql.Rows) error) error {
	return s.source.Do(ctx, func(ctx context.Context, conn *sql.Conn) error {
		began := false
		err := s.committed(ctx, conn, func(q querier) error {
			return queryOn(ctx, q, query, args, func(rows *sql.Rows) error {
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
func (s *conns) committed(ctx context.Context, conn *sql.Conn, fn func(querier) error) error {
	if !s.isolate {
		return fn(conn)
	}
	return inOwnTx(ctx, conn, readCommitted, func(tx *sql.Tx) error { return fn(tx) })
}

var readCommitted = &sql.TxOptions{Isolation: sql.LevelReadCommitted}

// queryBound has the server end a transaction whose client is silent in it for so many
// milliseconds.
const queryBound = `SELECT set_config('idle_in_transaction_session_timeout', $1::text, true)`

// inOwnTx calls fn in a transaction of the library's own and commits it. The server
// ends it if the client is silent for as long as it may take, or as a statement waits
// for a lock: else a client that was paused, or has vanished, would keep what it has
// locked.
func inOwnTx(ctx context.Context, conn *sql.Conn, opts *sql.TxOptions, fn func(*sql.Tx) error) error {
	tx, err := conn.BeginTx(ctx, opts)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, queryBound, silenceIn(ctx)); err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
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
func queryOn(ctx context.Context, q querier, query string, args []any, scan func(*sql.Rows) error) error {
	rows, err := q.QueryContext(ctx, query, args...)
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
