package locksqlite

import (
	"context"
	"database/sql"
	"strconv"
	"time"

	"github.com/sqllock/sqllock/internal/sqlconn"
)

// longestWait is how long one statement may wait inside SQLite for a busy
// database. While it waits there it hears no cancellation.
const longestWait = 250 * time.Millisecond

// impatient calls fn with a connection whose busy_timeout is at most
// longestWait and ends with ctx, and leaves the connection as it was. A shorter
// one stays: it may stand for a busy handler of the application's own, which
// setting a time-out would replace for good.
func impatient(ctx context.Context, conn *sql.Conn, fn func(context.Context, *sql.Conn) error) error {
	setting := context.WithoutCancel(ctx) // the setting takes no time and must not be left half changed
	var was int64
	if err := conn.QueryRowContext(setting, queryBusy).Scan(&was); err != nil {
		return err
	}
	limit := longestWait
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, max(time.Until(deadline), time.Millisecond))
	}
	if was <= limit.Milliseconds() {
		return fn(ctx, conn)
	}
	if err := setBusy(setting, conn, limit.Milliseconds()); err != nil {
		return err
	}
	err := fn(ctx, conn)
	if setBusy(setting, conn, was) != nil {
		sqlconn.Destroy(conn, nil)
	}
	return err
}

func setBusy(ctx context.Context, conn *sql.Conn, millis int64) error {
	_, err := conn.ExecContext(ctx, queryBusySet+strconv.FormatInt(millis, 10))
	return err
}

// query calls each for every row. It reads to the end: a statement with
// RETURNING commits there, and fails there.
func query(ctx context.Context, conn *sql.Conn, text string, args []any, each func(scan func(...any) error) error) error {
	rows, err := conn.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
