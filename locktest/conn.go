package locktest

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"strings"
	"time"

	"modernc.org/sqlite"
)

// connector opens connections of a Database. They fail while it is down, and read its clock.
type connector struct {
	database *Database
	dsn      string
}

var _ sqldriver.Connector = (*connector)(nil)

// Driver implements [sqldriver.Connector].
func (c *connector) Driver() sqldriver.Driver { return &sqlite.Driver{} }

// Connect implements [sqldriver.Connector].
func (c *connector) Connect(context.Context) (sqldriver.Conn, error) {
	if c.database.down.Load() {
		return nil, ErrDown
	}
	inner, err := c.Driver().Open(c.dsn)
	if err != nil {
		return nil, err
	}
	return &conn{sqliteConn: inner.(sqliteConn), database: c.database}, nil
}

// sqliteConn is what a connection of the driver can do.
type sqliteConn interface {
	sqldriver.Conn
	sqldriver.ConnBeginTx
	sqldriver.ConnPrepareContext
	sqldriver.ExecerContext
	sqldriver.QueryerContext
	sqldriver.Pinger
	sqldriver.SessionResetter
	sqldriver.Validator
}

// conn is a connection to a Database. database/sql uses it in one goroutine at a time.
type conn struct {
	sqliteConn
	database *Database
	began    bool // a statement has run in the transaction that is open
	inTx     bool
}

// A statement that finds the database busy waits as with a busy_timeout. SQLite itself would
// wait in the operating system, where no bubble of synctest sees it.
const (
	busyTimeout = time.Second
	busyPause   = 50 * time.Millisecond // at most; the first is a millisecond
)

// run calls fn, which sends something to SQLite, unless the database is down. It repeats that
// while the database is busy, but not in a transaction that has read: others wait for its end.
func (c *conn) run(ctx context.Context, fn func() error) error {
	start := time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, busyPause) {
		if c.database.down.Load() {
			return ErrDown
		}
		err := fn()
		if !isBusy(err) || c.began || time.Since(start) >= busyTimeout {
			c.began = c.inTx && (c.began || err == nil)
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// isBusy reports whether an error is SQLITE_BUSY.
func isBusy(err error) bool {
	const codeBusy, primary = 5, 0xff
	var e *sqlite.Error
	return errors.As(err, &e) && e.Code()&primary == codeBusy
}

// Ping implements [sqldriver.Pinger].
func (c *conn) Ping(ctx context.Context) error {
	return c.run(ctx, func() error { return c.sqliteConn.Ping(ctx) })
}

// ExecContext implements [sqldriver.ExecerContext].
func (c *conn) ExecContext(ctx context.Context, text string, args []sqldriver.NamedValue) (res sqldriver.Result, err error) {
	err = c.run(ctx, func() (err error) {
		res, err = c.sqliteConn.ExecContext(ctx, c.database.text(text), args)
		return err
	})
	return res, err
}

// QueryContext implements [sqldriver.QueryerContext].
func (c *conn) QueryContext(ctx context.Context, text string, args []sqldriver.NamedValue) (rows sqldriver.Rows, err error) {
	err = c.run(ctx, func() (err error) {
		rows, err = c.sqliteConn.QueryContext(ctx, c.database.text(text), args)
		return err
	})
	return rows, err
}

// PrepareContext implements [sqldriver.ConnPrepareContext]. It does not replace the clock in the
// text, which would keep the time at which it was prepared. The library prepares nothing.
func (c *conn) PrepareContext(ctx context.Context, text string) (sqldriver.Stmt, error) {
	var inner sqldriver.Stmt
	err := c.run(ctx, func() (err error) {
		inner, err = c.sqliteConn.PrepareContext(ctx, text)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &stmt{inner.(sqliteStmt), c}, nil
}

// BeginTx implements [sqldriver.ConnBeginTx].
func (c *conn) BeginTx(ctx context.Context, opts sqldriver.TxOptions) (sqldriver.Tx, error) {
	var inner sqldriver.Tx
	err := c.run(ctx, func() (err error) {
		inner, err = c.sqliteConn.BeginTx(ctx, opts)
		return err
	})
	if err != nil {
		return nil, err
	}
	c.inTx = true
	return &tx{inner, c}, nil
}

// tx is a transaction.
type tx struct {
	inner sqldriver.Tx
	conn  *conn
}

// Commit implements [sqldriver.Tx]. The driver's own Commit would roll back a transaction that
// finds the database busy.
func (t *tx) Commit() error {
	t.conn.inTx, t.conn.began = false, false
	_, err := t.conn.ExecContext(context.Background(), "COMMIT", nil)
	if err != nil {
		_ = t.inner.Rollback()
	}
	return err
}

// Rollback implements [sqldriver.Tx]. It ends the transaction while the database is down, too.
func (t *tx) Rollback() error {
	t.conn.inTx, t.conn.began = false, false
	return t.inner.Rollback()
}

// sqliteStmt is what a prepared statement of the driver can do.
type sqliteStmt interface {
	sqldriver.Stmt
	sqldriver.StmtExecContext
	sqldriver.StmtQueryContext
}

// stmt is a prepared statement.
type stmt struct {
	sqliteStmt
	conn *conn
}

// ExecContext implements [sqldriver.StmtExecContext].
func (s *stmt) ExecContext(ctx context.Context, args []sqldriver.NamedValue) (res sqldriver.Result, err error) {
	err = s.conn.run(ctx, func() (err error) {
		res, err = s.sqliteStmt.ExecContext(ctx, args)
		return err
	})
	return res, err
}

// QueryContext implements [sqldriver.StmtQueryContext].
func (s *stmt) QueryContext(ctx context.Context, args []sqldriver.NamedValue) (rows sqldriver.Rows, err error) {
	err = s.conn.run(ctx, func() (err error) {
		rows, err = s.sqliteStmt.QueryContext(ctx, args)
		return err
	})
	return rows, err
}

// How the statements of package locksqlite read the clock, and how a time is written for SQLite.
const (
	readsClock = `julianday('now')`
	timeLayout = `2006-01-02 15:04:05.000`
)

// text returns a statement with the clock of the database, where SQLite would read that of the
// machine. A view is left alone: it would show that time for ever.
func (d *Database) text(statement string) string {
	if !strings.Contains(statement, readsClock) || strings.Contains(statement, "CREATE VIEW") {
		return statement
	}
	return strings.ReplaceAll(statement, readsClock, `julianday('`+d.now().Format(timeLayout)+`')`)
}
