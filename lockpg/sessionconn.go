package lockpg

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"sync"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sqllock/sqllock/internal/sqlconn"
)

// sessionConn is a connection that holds locks. One goroutine uses it at a time; the
// channel of Gone is everybody's.
type sessionConn struct {
	conn *sqlconn.Reserved
	stop func() // of the watch
	over bool   // the connection was ended or given back

	once sync.Once
	gone chan struct{}
}

// errOver is returned by a session that has ended.
var errOver = fmt.Errorf("sqllock: the session has ended: %w", sql.ErrConnDone)

// take takes a connection out of the pool and prepares it. One that has died in the
// pool is replaced.
func (s *sessions) take(ctx context.Context, prepare func(*sessionConn) error) (*sessionConn, error) {
	var err error
	for range sqlconn.MaxStale {
		conn, none := s.pool.Reserve(ctx)
		if none != nil {
			return nil, none
		}
		c := &sessionConn{conn: conn, gone: make(chan struct{}), stop: func() {}}
		if err = prepare(c); err == nil {
			c.watch(ctx)
			return c, nil
		}
		c.end()
		if isAnswer(err) || ctx.Err() != nil {
			break
		}
	}
	return nil, err
}

// watch has Gone closed when the socket is, if the connection is one of pgx.
func (c *sessionConn) watch(ctx context.Context) {
	_ = c.conn.Do(ctx, func(_ context.Context, conn *sql.Conn) error {
		if socket := socketOf(conn); socket != nil {
			c.stop = watch(socket, c.tell)
		}
		return nil
	})
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

// Gone implements [driver.Session].
func (c *sessionConn) Gone() <-chan struct{} { return c.gone }

func (c *sessionConn) tell() { c.once.Do(func() { close(c.gone) }) }

// end ends the connection, and with it all that it holds.
func (c *sessionConn) end() {
	_ = c.conn.Do(context.Background(), func(context.Context, *sql.Conn) error { return errOver }) // it is in doubt
	_ = c.giveBack()
}

// giveBack gives the connection back to the pool, or ends it if it is in doubt. The
// watch goes first: the server hears of nothing while a descriptor is left.
func (c *sessionConn) giveBack() error {
	if c.over {
		return nil
	}
	c.over = true
	c.stop()
	err := c.conn.Close()
	c.tell()
	return err
}

// do calls fn with the connection. An error by which the server says that a statement
// did not run leaves the connection as it is, any other ends it.
func (c *sessionConn) do(ctx context.Context, fn func(context.Context, *sql.Conn) error) error {
	if c.over {
		return errOver
	}
	var answer error
	err := c.conn.Do(ctx, func(ctx context.Context, conn *sql.Conn) error {
		err := fn(ctx, conn)
		if err != nil && isAnswer(err) && ctx.Err() == nil {
			answer = err
			return nil
		}
		return err
	})
	if err != nil {
		_ = c.giveBack()
		return err
	}
	return answer
}

// query runs a statement and calls scan for each row of its result.
func (c *sessionConn) query(ctx context.Context, query string, args []any, scan func(*sql.Rows) error) error {
	return c.do(ctx, func(ctx context.Context, conn *sql.Conn) error { return queryOn(ctx, conn, query, args, scan) })
}

// exec runs a statement that has no parameters and no result. Drivers send it as it
// is, without preparing it.
func (c *sessionConn) exec(ctx context.Context, query string) error {
	return c.do(ctx, func(ctx context.Context, conn *sql.Conn) error {
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
