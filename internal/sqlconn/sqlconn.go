// Package sqlconn lends the drivers a connection for a call: one from the
// application's pool, or always the one that was reserved.
package sqlconn

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"net"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"time"

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
	// Idle tells how many connections are idle, where DB does not know it either. It may be nil.
	Idle func() int
	// Beside opens connections beside DB, for when those of DB do not answer or there is no room
	// for another one. It may be nil.
	Beside *Pool
	// End ends a connection of the driver where its Close does not, because it
	// gives the connection back to a pool below. It may be nil.
	End func(driverConn any)
	// Fit looks at each connection that comes from the pool: after an error it is ended,
	// and another one is tried if the error is driver.ErrBadConn. It may be nil.
	Fit func(context.Context, *sql.Conn) error
	// Alive looks at a reserved connection that was idle, and returns driver.ErrBadConn if the
	// server has ended it. It may be nil.
	Alive func(context.Context, *sql.Conn) error

	// Unsure says that driver.ErrBadConn does not mean, as it should, that nothing was
	// sent: some drivers return it for every connection that breaks.
	Unsure bool
	// Late says that the driver may not return when a context ends. A call that
	// outlives its context has its connection closed, and does not wait for one that is
	// being opened.
	Late bool

	mu        sync.Mutex
	abandoned *dial // the last one that its call has left, nil if none is under way
}

// Known reports whether the driver of db is of one of the packages.
func Known(db *sql.DB, packages ...string) bool {
	t := reflect.TypeOf(db.Driver())
	if t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t != nil && slices.Contains(packages, t.PkgPath())
}

// grace is how long after the end of its context a call may take to return.
const grace = 250 * time.Millisecond

// use calls fn with conn. What it has to say of a broken connection is said in the way
// that driver.ErrBadConn is meant.
func (p *Pool) use(ctx context.Context, conn *sql.Conn, fn func(context.Context, *sql.Conn) error) error {
	err := p.inTime(ctx, conn, fn)
	if p.Unsure {
		err = Unknown(err)
	}
	return err
}

// inTime calls fn with conn.
func (p *Pool) inTime(ctx context.Context, conn *sql.Conn, fn func(context.Context, *sql.Conn) error) error {
	return AfterTx(conn, func() error {
		if p.Late {
			defer closeLate(ctx, conn)()
		}
		return fn(ctx, conn)
	})
}

// closeLate closes the driver's connection when ctx has ended and the function that it
// returns was not called soon after.
func closeLate(ctx context.Context, conn *sql.Conn) (done func()) {
	var driverConn any
	_ = conn.Raw(func(c any) error { driverConn = c; return nil }) // if it fails, so will every statement
	closer, ok := driverConn.(interface{ Close() error })
	if !ok {
		return func() {}
	}
	var mu sync.Mutex // so that a connection that was given back is not closed
	over := false
	returned := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-returned:
			return
		case <-time.After(grace):
		}
		mu.Lock()
		defer mu.Unlock()
		if !over {
			_ = closer.Close()
		}
	})
	return func() {
		stop()
		close(returned)
		mu.Lock()
		defer mu.Unlock()
		over = true
	}
}

// Unknown hides that err is a driver.ErrBadConn: the statement may have run.
func Unknown(err error) error {
	if errors.Is(err, sqldriver.ErrBadConn) && !errors.As(err, new(*repeatableError)) {
		return &unknownError{err}
	}
	return err
}

type unknownError struct{ err error }

func (e *unknownError) Error() string { return e.err.Error() }
func (e *unknownError) Is(target error) bool {
	return target != sqldriver.ErrBadConn && errors.Is(e.err, target)
}
func (e *unknownError) As(target any) bool { return errors.As(e.err, target) }

// Repeatable makes an error of statements that change nothing one that has them repeated
// on another connection.
func Repeatable(err error) error { return &repeatableError{err} }

type repeatableError struct{ err error }

func (e *repeatableError) Error() string   { return e.err.Error() }
func (e *repeatableError) Unwrap() []error { return []error{sqldriver.ErrBadConn, e.err} }

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
		err = p.useOnce(ctx, conn, fn)
		if !errors.Is(err, sqldriver.ErrBadConn) {
			return err
		}
	}
	return err
}

// useOnce is use of a connection that goes back to the pool. If fn panics or ends the goroutine, it
// may be in the middle of a transaction: then the connection is ended.
func (p *Pool) useOnce(ctx context.Context, conn *sql.Conn, fn func(context.Context, *sql.Conn) error) (err error) {
	defer func() { _ = conn.Close() }() // the error, if any, is fn's; after Destroy it does nothing
	return UnlessItReturns(func() { Destroy(conn, p.End) }, func() error { return p.use(ctx, conn, fn) })
}

// UnlessItReturns calls f, and end if f panics or ends the goroutine.
func UnlessItReturns(end func(), f func() error) (err error) {
	returned := false
	defer func() {
		if !returned {
			end()
		}
	}()
	err = f()
	returned = true
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
	return &Reserved{conn: conn, pool: p}, nil
}

// ReserveFresh is Reserve of a connection that is opened now: beside the pool if p can, otherwise
// if the pool has room for it. Idle connections stay in the pool if they answer, but for one if
// the pool is full of them.
func (p *Pool) ReserveFresh(ctx context.Context) (*Reserved, error) {
	if p.Beside == nil {
		return p.reserveOpened(ctx)
	}
	checked := make(chan struct{})
	go func() {
		defer close(checked)
		closeAll(p.takeIdle(ctx))
	}()
	half, cancel := HalfOf(ctx)
	r, err := p.Beside.Reserve(half)
	cancel()
	<-checked
	if err == nil || ctx.Err() != nil {
		return r, err
	}
	return p.reserveOpened(ctx) // the application may open its own in another way
}

// reserveOpened is ReserveFresh in the pool.
func (p *Pool) reserveOpened(ctx context.Context) (*Reserved, error) {
	idle := p.takeIdle(ctx)
	defer func() { closeAll(idle) }()
	if s := p.DB.Stats(); len(idle) > 0 && s.MaxOpenConnections > 0 && s.OpenConnections >= s.MaxOpenConnections {
		Destroy(idle[0], p.End)
		idle = idle[1:]
	}
	r, err := p.Reserve(ctx)
	if err != nil && len(idle) > 0 { // the server may have no room for another one
		r, idle = &Reserved{conn: idle[0], pool: p}, idle[1:]
		return r, nil
	}
	return r, err
}

// HalfOf returns a context that ends when half of the time is over that ctx leaves.
func HalfOf(ctx context.Context) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(end)/2)
}

func closeAll(conns []*sql.Conn) {
	for _, conn := range conns {
		_ = conn.Close()
	}
}

// maxIdleCheck is how long idle connections have to show that they live.
const maxIdleCheck = time.Second

// takeIdle takes the connections that are idle, all at a time: drivers ask an idle connection
// whether it lives, and end it if it does not answer. That may take a quarter of the time.
func (p *Pool) takeIdle(ctx context.Context) (idle []*sql.Conn) {
	limit := maxIdleCheck
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)/4)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup
	for range p.idle() {
		all.Go(func() {
			if conn, err := p.take(ctx); err == nil {
				mu.Lock()
				defer mu.Unlock()
				idle = append(idle, conn)
			}
		})
	}
	all.Wait()
	return idle
}

func (p *Pool) idle() int {
	if p.Idle != nil {
		return p.Idle()
	}
	return p.DB.Stats().Idle
}

func (p *Pool) conn(ctx context.Context) (conn *sql.Conn, err error) {
	for range MaxStale {
		if conn, err = p.take(ctx); err != nil || p.Fit == nil {
			return conn, err
		}
		if err = p.inTime(ctx, conn, p.Fit); err == nil {
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
	open := p.DB.Conn
	if p.Late {
		open = p.openLate
	}
	exhausted := p.Exhausted()
	conn, err := open(ctx)
	switch {
	case err == nil || ctx.Err() == nil:
	case exhausted:
		return nil, fmt.Errorf("%w: %w", driver.ErrNoConnection, err)
	case p.Late && errors.Is(err, ctx.Err()):
		return nil, unsent(err)
	}
	return conn, err
}

// unsent says, as a driver does that could not connect, that the end of a context came
// before there was a connection.
func unsent(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }

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
	pool    *Pool
	inDoubt bool
	used    time.Time // last
}

var _ Source = (*Reserved)(nil)

// aliveFor is how long after its last use nobody looks whether a reserved connection lives.
const aliveFor = time.Second

// Do implements Source. After an error the connection is in doubt.
func (r *Reserved) Do(ctx context.Context, fn func(context.Context, *sql.Conn) error) (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pool.Alive != nil && time.Since(r.used) > aliveFor {
		err = r.pool.inTime(ctx, r.conn, r.pool.Alive)
	}
	if err == nil {
		doubt := r.inDoubt
		r.inDoubt = true // if fn does not return
		err = r.pool.use(ctx, r.conn, fn)
		r.inDoubt = doubt
	}
	r.inDoubt, r.used = r.inDoubt || err != nil, time.Now()
	return err
}

// Close gives the connection back to the pool, or ends it if it is in doubt.
func (r *Reserved) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inDoubt {
		Destroy(r.conn, r.pool.End)
		return nil
	}
	return r.conn.Close()
}

// CloseAfter is Close after restore, which is not called for a connection in doubt. An error
// of restore puts the connection in doubt.
func (r *Reserved) CloseAfter(restore func(*sql.Conn) error) error {
	r.mu.Lock()
	r.inDoubt = r.inDoubt || restore(r.conn) != nil
	r.mu.Unlock()
	return r.Close()
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
