package lockpg_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"
)

// hidden connects as a driver does that is not pgx, and knows as little as database/sql
// asks for: no context ends a statement.
type hidden struct{ dsn string }

func (h hidden) Driver() sqldriver.Driver { return stdlib.GetDefaultDriver() }

func (h hidden) Connect(context.Context) (sqldriver.Conn, error) {
	conn, err := stdlib.GetDefaultDriver().Open(h.dsn)
	return plainConn{conn}, err
}

// plainConn has none of the methods by which a connection tells what it is.
type plainConn struct{ conn sqldriver.Conn }

func (c plainConn) Prepare(query string) (sqldriver.Stmt, error) { return c.conn.Prepare(query) }
func (c plainConn) Close() error                                 { return c.conn.Close() }

func (c plainConn) Begin() (sqldriver.Tx, error) { //nolint:staticcheck // it is all that it has
	return c.conn.(sqldriver.ConnBeginTx).BeginTx(context.Background(), sqldriver.TxOptions{})
}

// hide opens a handle whose driver is not known.
func hide(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db := sql.OpenDB(hidden{dsn})
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// unknownDriver is hidden, with a driver that is not pgx.
type unknownDriver struct{ hidden }

func (f unknownDriver) Driver() sqldriver.Driver            { return f }
func (f unknownDriver) Open(string) (sqldriver.Conn, error) { return f.Connect(context.Background()) }

// hideDriver is hide, and the library does not know that pgx is below the handle.
func hideDriver(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db := sql.OpenDB(unknownDriver{hidden{dsn}})
	t.Cleanup(func() { _ = db.Close() })
	return db
}
