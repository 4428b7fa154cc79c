// Package sqlconn lends the drivers a connection for a call: one from the
// application's pool, or always the one that was reserved.
package sqlconn

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/sqllock/sqllock/driver"
)

// Source runs a function on a connection.
type Source interface {
	// Do calls fn with a connection that nobody else uses meanwhile. An error of
	// getting the connection is returned as it is, or wraps
	// driver.ErrNoConnection if the pool was exhausted; fn was not called then.
	Do(ctx context.Context, fn func(context.Context, *sql.Conn) error) error
	// Close gives back what the Source holds.
	Close() error
}

// MaxStale is how many connections Do tries that turn out to be dead before
// they were used, as database/sql itself does.
const MaxStale = 3

// Pool is a Source that takes a connection from the pool for each call.
type Pool struct {
	DB *sql.DB
	// Full reports that the pool has no connection to give, where DB does not
	// know it because another pool is below it. It may be nil.
	Full func() bool
	// End ends a connection of the driver where its Close does not, because it
	// gives the connection back to a pool below. It may be nil.
	End func(driverConn any)
	// Fit looks at each connection that comes from the pool: after an error it is ended,
	// and another one is tried if the error is driver.ErrBadConn. It may be nil.
	Fit func(context.Context, *sql.Conn) error
}

var _ Source = (*Pool)(nil)

// Do implements Source. A connection that turns out to have died in the pool
// is replaced.
func (p *Pool) Do(ctx context.Context, fn func(context.Context, *sql.Conn) error) error {
	var err error
	for range MaxStale {
		var conn *sql.Conn
		if conn, err = p.conn(ctx); err != nil {
			return err
		}
		err = AfterTx(conn, func() error { return fn(ctx, conn) })
		_ = conn.Close() // the error, if any, is fn's
		if !errors.Is(err, sqldriver.ErrBadConn) {
			return err
		}
	}
	return err
}

// Close implements Source. The handle is the application's.
func (p *Pool) Close() error { return nil }

// Reserve takes a connection out of the pool until Close.
func (p *Pool) Reserve(ctx context.Context) (*Reserved, error) {
	conn, err := p.conn(ctx)
	if err != nil {
		return nil, err
	}
	return &Reserved{conn: conn, end: p.End}, nil
}

func (p *Pool) conn(ctx context.Context) (conn *sql.Conn, err error) {
	for range MaxStale {
		if conn, err = p.take(ctx); err != nil || p.Fit == nil {
			return conn, err
		}
		if err = AfterTx(conn, func() error { return p.Fit(ctx, conn) }); err == nil {
			return conn, nil
		}
		Destroy(conn, p.End)
		if !errors.Is(err, sqldriver.ErrBadConn) {
			break
		}
	}
	return nil, err
}

func (p *Pool) take(ctx context.Context) (*sql.Conn, error) {
	exhausted := p.Exhausted()
	conn, err := p.DB.Conn(ctx)
	if err != nil && exhausted && ctx.Err() != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrNoConnection, err)
	}
	return conn, err
}

// Exhausted reports that all connections are in use and no more may be opened:
// whoever asks for one has to wait.
func (p *Pool) Exhausted() bool {
	if p.Full != nil {
		return p.Full()
	}
	s := p.DB.Stats()
	return s.MaxOpenConnections > 0 && s.InUse >= s.MaxOpenConnections
}

// Reserved is a Source that always uses one connection.
type Reserved struct {
	mu      sync.Mutex
	conn    *sql.Conn
	end     func(driverConn any)
	inDoubt bool
}

var _ Source = (*Reserved)(nil)

// Do implements Source. After an error the connection is in doubt.
func (r *Reserved) Do(ctx context.Context, fn func(context.Context, *sql.Conn) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := AfterTx(r.conn, func() error { return fn(ctx, r.conn) })
	r.inDoubt = r.inDoubt || err != nil
	return err
}

// Close gives the connection back to the pool, or ends it if it is in doubt.
func (r *Reserved) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inDoubt {
		Destroy(r.conn, r.end)
		return nil
	}
	return r.conn.Close()
}

// Destroy ends a connection for good, so that neither what the session holds
// nor what was set on it reaches the pool. What end means see Pool.
func Destroy(conn *sql.Conn, end func(driverConn any)) {
	_ = AfterTx(conn, func() error {
		return conn.Raw(func(c any) error {
			if end != nil {
				end(c)
			}
			if closer, ok := c.(interface{ Close() error }); ok {
				_ = closer.Close()
			}
			return sqldriver.ErrBadConn
		})
	})
	_ = conn.Close()
}

// AfterTx calls use, which uses conn, and returns sql.ErrConnDone if conn was closed
// before one of its statements began. A transaction whose context has ended is rolled
// back in a goroutine of database/sql, which closes conn if the connection is broken; a
// statement that begins in this very moment panics, as of Go 1.26. It was not sent.
func AfterTx(conn *sql.Conn, use func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(runtime.Error); !ok || !isClosed(conn) {
				panic(p)
			}
			err = sql.ErrConnDone
		}
	}()
	return use()
}

func isClosed(conn *sql.Conn) bool {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return errors.Is(conn.PingContext(ctx), sql.ErrConnDone)
}
