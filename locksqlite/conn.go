package locksqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sqllock/sqllock/internal/rowstore"
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

// alone calls fn, which writes, when no other write of the engine is under way. SQLite
// has one writer at a time anyway, but lets others find out by trying, with pauses.
func (e *engine) alone(ctx context.Context, fn func() error) error {
	select {
	case <-e.writer:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errBusyHere, ctx.Err())
	}
	defer func() { e.writer <- struct{}{} }()
	return fn()
}

// errBusyHere says that nothing was sent, because the process itself was writing.
var errBusyHere = errors.New("sqllock: the database is locked by another statement of this process")

// call calls fn with a connection. What fn has done counts for nothing if the file, by
// then, is another one.
func (e *engine) call(ctx context.Context, fn func(context.Context, *sql.Conn) error) error {
	return e.conns.Do(ctx, func(ctx context.Context, conn *sql.Conn) error {
		if err := e.file.checkPath(); err != nil {
			return err
		}
		err := impatient(ctx, conn, fn)
		if err != nil {
			if moved := e.file.checkPath(); errors.As(moved, new(*movedError)) {
				return moved
			}
			return err
		}
		err = e.file.check(context.WithoutCancel(ctx), conn)
		if err != nil && !errors.As(err, new(*movedError)) {
			return &rowstore.PartlyError{Err: err}
		}
		return err
	})
}

// immediate calls fn alone in a transaction that has the write lock from its start:
// nothing changes between what fn reads and what it writes, and all of it happens
// or nothing. The commit is not cancelled, so that its outcome is known; it waits
// for a busy database no longer than other statements.
func (e *engine) immediate(ctx context.Context, conn *sql.Conn, fn func(context.Context) error) error {
	return e.alone(ctx, func() error { return immediate(ctx, conn, fn) })
}

func immediate(ctx context.Context, conn *sql.Conn, fn func(context.Context) error) error {
	ending := context.WithoutCancel(ctx)
	done := false
	defer func() {
		if !done {
			rollback(ending, conn)
		}
	}()
	if _, err := conn.ExecContext(ctx, queryBegin); err != nil {
		return err
	}
	if err := fn(ctx); err != nil {
		return err
	}
	_, err := conn.ExecContext(ending, queryCommit)
	done = err == nil
	return err
}

// rollback ends the transaction, if there is one: a driver may call a BEGIN
// cancelled that has run, and some errors end a transaction by themselves. A
// connection that might be left inside one is not given back.
func rollback(ctx context.Context, conn *sql.Conn) {
	_, err := conn.ExecContext(ctx, queryRollback)
	if err != nil && !strings.Contains(err.Error(), "no transaction is active") {
		sqlconn.Destroy(conn, nil)
	}
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
