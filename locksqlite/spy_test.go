package locksqlite_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/locksqlite"
)

// once does something before the next statement with a verb runs, or loses its reply. The zero once does nothing.
type once struct {
	verb string
	do   func()
	lose error // what is returned when the statement has run, if not nil
}

func (o *once) before(text string) (lost error) {
	if o.do == nil && o.lose == nil || verb(text) != o.verb {
		return nil
	}
	do, lost := o.do, o.lose
	o.do, o.lose = nil, nil
	if do != nil {
		do()
	}
	return lost
}

// verb is the first word of a statement, but SELECT for one that reads.
func verb(text string) string {
	word, _, _ := strings.Cut(text, " ")
	if word == "WITH" {
		return "SELECT"
	}
	return word
}

// spied opens a handle that calls before with each statement but PRAGMAs and what each connection of
// the pool begins with, before it runs and on its goroutine. If that returns an error, the statement runs and
// its reply is the error.
func spied(tb testing.TB, path string, before func(text string) error) *sql.DB {
	tb.Helper()
	db := sql.OpenDB(spyConnector{driver: open(tb, path).Driver(), dsn: "file:" + path + "?_pragma=journal_mode(wal)", before: before})
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

type spyConnector struct {
	driver sqldriver.Driver
	dsn    string
	before func(text string) error
	// rewrite changes the text of a statement, unless nil.
	rewrite func(text string) string
}

func (c spyConnector) Driver() sqldriver.Driver { return c.driver }

func (c spyConnector) Connect(context.Context) (sqldriver.Conn, error) {
	conn, err := c.driver.Open(c.dsn)
	if err != nil {
		return nil, err
	}
	return &spyConn{conn, c}, nil
}

type spyConn struct {
	sqldriver.Conn
	spyConnector
}

// tell returns the text to run, and the error to return when it has run.
func (c *spyConn) tell(text string) (string, error) {
	if c.rewrite != nil {
		text = c.rewrite(text)
	}
	if text = strings.TrimSpace(text); strings.HasPrefix(text, "PRAGMA") || text == "ROLLBACK TRANSACTION" {
		return text, nil
	}
	return text, c.before(text)
}

func (c *spyConn) ExecContext(ctx context.Context, text string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	text, lost := c.tell(text)
	res, err := c.Conn.(sqldriver.ExecerContext).ExecContext(ctx, text, args)
	if err == nil && lost != nil {
		return nil, lost
	}
	return res, err
}

func (c *spyConn) QueryContext(ctx context.Context, text string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	text, lost := c.tell(text)
	rows, err := c.Conn.(sqldriver.QueryerContext).QueryContext(ctx, text, args)
	if err == nil && lost != nil {
		_ = rows.Close()
		return nil, lost
	}
	return rows, err
}

// classify tells what an error means.
var classify = new(locksqlite.Database).Classify
