package lockmysql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/sqlconn"
	"github.com/sqllock/sqllock/internal/termstore"
)

// sessions is what the modes have in common that keep locks in sessions: the table
// of terms, and a connection for what must not wait for one of the application.
type sessions struct {
	termstore.Store
	base    *engine // the pool, and what is known of the server
	control *sqlconn.Kept
	host    atomic.Pointer[host] // where control leads
	texts   map[string]string
	client  driver.Client
	ttl     time.Duration
	timeout time.Duration // of a renewal

	mortal bool // a row that cannot be locked ends the whole transaction
	hash   func(name string) [16]byte
}

// The numbers of the modes in the table of terms.
const (
	modeForUpdate = "2"
	modeAdvisory  = "3"
)

// minSessionTTL is the shortest silence that the server can be trusted to tell.
const minSessionTTL = 2 * time.Second

// openSessions checks what can be checked before any SQL, and then the server.
func (d *Database) openSessions(ctx context.Context, client driver.Client, opts driver.SessionOptions, mode string) (*sessions, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	most := d.db.Stats().MaxOpenConnections
	if opts.TTL < minSessionTTL {
		return nil, fmt.Errorf("%w: TTL %v: must be at least %v, because the server counts the silence of a session in seconds",
			driver.ErrInvalidOption, opts.TTL, minSessionTTL)
	}
	if err := driver.CheckPool(most); err != nil {
		return nil, err
	}
	pool := d.newPool()
	s := &sessions{
		base:  &engine{pool: pool, source: pool, queries: newQueries(d.prefix), client: client},
		texts: sessionTexts(d.prefix, mode), client: client,
		ttl: opts.TTL, timeout: cmp.Or(opts.Timeout, opts.TTL/3),
	}
	s.Store = termstore.Store{Pool: runner{s, s.onPool}, Kept: runner{s, s.onControl}, Exhausted: pool.Exhausted,
		Instance: client.Instance, ErrReadOnly: errDemoted}
	s.control = pool.Keep(s.setHost)
	err := s.control.Do(ctx, func(ctx context.Context, conn *sql.Conn) error {
		return s.inspect(ctx, session{Conn: conn}, d)
	})
	if err != nil {
		_ = s.control.Close()
		return nil, closedHandle(err)
	}
	s.base.info.MaxConns = most
	return s, nil
}

// Info implements [driver.SessionStore].
func (s *sessions) Info() driver.Info { return s.base.info }

// Close implements [driver.SessionStore].
func (s *sessions) Close() error { return s.control.Close() }

// Begin implements [driver.GuardStore].
func (s *sessions) Begin(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error) {
	return s.base.pool.DB.BeginTx(ctx, opts)
}

// Classify implements [driver.SessionStore].
func (s *sessions) Classify(err error) driver.Fault {
	if errors.Is(err, driver.ErrUnsupported) {
		return driver.Refused
	}
	return classify(err)
}

// onControl calls fn with the connection that is kept. What the server answers puts
// no doubt on it.
func (s *sessions) onControl(ctx context.Context, fn func(context.Context, session) error) error {
	return s.control.Do(ctx, func(ctx context.Context, conn *sql.Conn) error {
		err := fn(ctx, session{Conn: conn})
		if isAnswer(err) {
			return sqlconn.Settled(err)
		}
		return err
	})
}

// stale is an error of a statement that changes nothing, when it is the first on the
// connection that is kept: that may have died since it was used, and another is tried.
func stale(ctx context.Context, err error) error {
	if err == nil || isAnswer(err) || ctx.Err() != nil {
		return err
	}
	return sqlconn.Repeatable(err)
}

// lookFirst is look as the first statement on the connection that is kept.
func (s *sessions) lookFirst(ctx context.Context, c session, name string) ([]termstore.Term, error) {
	terms, err := s.Terms(ctx, s.on(c), name)
	return terms, stale(ctx, err)
}

// onPool calls fn with a connection of the pool.
func (s *sessions) onPool(ctx context.Context, fn func(context.Context, session) error) error {
	return s.base.do(ctx, fn)
}
