package lockpg

import (
	"context"
	"database/sql"
	"net"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sqllock/sqllock/internal/sqlconn"
)

// sessionConn is a connection that holds locks.
type sessionConn struct{ *sqlconn.Session }

// take takes a connection out of the pool and prepares it. Gone is closed when the socket is,
// if the connection is one of pgx.
func (s *sessions) take(ctx context.Context, prepare func(sessionConn) error) (c sessionConn, err error) {
	answered := func(ctx context.Context, err error) bool { return isAnswer(err) && ctx.Err() == nil }
	c.Session, err = s.pool.Session(ctx, answered, func(c *sqlconn.Session) error { return prepare(sessionConn{c}) })
	if err == nil {
		c.Watch(ctx, func(conn *sql.Conn, tell func()) (stop func()) {
			if socket := socketOf(conn); socket != nil {
				stop = watch(socket, tell)
			}
			return stop
		})
	}
	return c, err
}

// socketOf returns the connection that is below one of pgx, nil if it is of another
// driver.
func socketOf(conn *sql.Conn) (socket net.Conn) {
	_ = conn.Raw(func(c any) error {
		if c, ok := c.(*stdlib.Conn); ok {
			socket = c.Conn().PgConn().Conn()
		}
		return nil
	})
	return socket
}

// query runs a statement and calls scan for each row of its result.
func (c sessionConn) query(ctx context.Context, query string, args []any, scan func(*sql.Rows) error) error {
	return c.Do(ctx, func(ctx context.Context, conn *sql.Conn) error { return queryOn(ctx, conn, query, args, scan) })
}

// exec runs a statement that has no parameters and no result. Drivers send it as it
// is, without preparing it.
func (c sessionConn) exec(ctx context.Context, query string) error {
	return c.Do(ctx, func(ctx context.Context, conn *sql.Conn) error {
		_, err := conn.ExecContext(ctx, query)
		return err
	})
}

// isAnswer reports that a server has refused a statement, and that the session goes
// on.
func isAnswer(err error) bool {
	state, _ := stateOf(err)
	switch state {
	case "25006", // the server takes no writes any more
		"25P03", "25P04", "57P01", "57P02", "57P03", "57P04", "57P05":
		return false // what it says last
	}
	return len(state) == 5 && state[:2] != "08"
}
