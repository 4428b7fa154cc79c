package lockpg

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
	"github.com/sqllock/sqllock/internal/sqlconn"
	"github.com/sqllock/sqllock/internal/termstore"
)

// sessions is what the modes have in common that keep locks in sessions: the table
// of terms, and a connection for what must not wait for one of the application.
type sessions struct {
	termstore.Store
	pool    *sqlconn.Pool
	close   func() error
	tables  tables
	texts   map[string]string
	client  driver.Client
	ttl     time.Duration
	silent  bool // a server may be unable to end a silent session
	info    driver.Info
	kept    *sqlconn.Kept
	onPool  *conns // runs statements on a connection of the pool
	control *conns // runs them on the connection that is kept
	id      driver.ID
	server  atomic.Int64            // of the connection that is kept, see the statement server
	key     func(name string) int64 // of pg_locks, nil in the mode for update
}

// The numbers of the modes in the table of terms.
const (
	modeForUpdate = "2"
	modeAdvisory  = "3"
)

// openSessions checks what can be checked before any SQL, and then the server.
func (d *Database) openSessions(ctx context.Context, client driver.Client, opts driver.SessionOptions, mode string) (*sessions, error) {
	p, err := d.open()
	if err != nil {
		return nil, err
	}
	if err := driver.CheckPool(p.maxConns); err != nil {
		return nil, errors.Join(err, p.close())
	}
	s := &sessions{
		pool: &p.Pool, close: p.close, client: client, ttl: opts.TTL, silent: opts.AllowSilentHolders,
		tables: tables{schema: d.schema, prefix: d.prefix},
	}
	s.Store = termstore.Store{Pool: s.on(s.query), Kept: s.on(s.queryKept), Exhausted: s.pool.Exhausted,
		Instance: client.Instance, Keys: s.keys, Pins: mode == modeForUpdate, ErrReadOnly: errNotPrimary}
	s.kept = p.Keep(s.enter)
	var isolate bool
	err = s.kept.Do(ctx, func(ctx context.Context, conn *sql.Conn) (err error) {
		if s.info, isolate, err = d.inspectSessions(ctx, conn, s, mode); err == nil {
			err = s.meet(ctx, conn)
		}
		if err != nil && (isAnswer(err) || isVerdict(err)) {
			return sqlconn.Settled(err)
		}
		return err
	})
	if err == nil {
		s.id, err = parseID(s.tables.id)
	}
	if err != nil {
		return nil, errors.Join(closedHandle(err), s.Close())
	}
	s.info.MaxConns = p.maxConns
	s.onPool = &conns{source: s.pool, isolate: isolate}
	s.control = &conns{source: settling{s.kept}, isolate: isolate}
	return s, nil
}

// settling is a Source that keeps its connection if the server has only refused a
// statement.
type settling struct{ *sqlconn.Kept }

// Do implements [sqlconn.Source].
func (s settling) Do(ctx context.Context, fn func(context.Context, *sql.Conn) error) error {
	return s.Kept.Do(ctx, func(ctx context.Context, conn *sql.Conn) error {
		err := fn(ctx, conn)
		if err != nil && isAnswer(err) {
			return sqlconn.Settled(err)
		}
		return err
	})
}

// isVerdict reports an error that says what is wrong with the server.
func isVerdict(err error) bool {
	return errors.Is(err, driver.ErrUnsupported) || errors.Is(err, driver.ErrSchema) || errors.Is(err, driver.ErrInvalidOption)
}

// Info implements [driver.SessionStore].
func (s *sessions) Info() driver.Info { return s.info }

// Close implements [driver.SessionStore].
func (s *sessions) Close() error { return errors.Join(s.kept.Close(), s.close()) }

// Begin implements [driver.GuardStore].
func (s *sessions) Begin(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error) {
	return s.pool.DB.BeginTx(ctx, opts)
}

// Classify implements [driver.SessionStore].
func (s *sessions) Classify(err error) driver.Fault {
	if errors.Is(err, driver.ErrTooManyLocks) {
		return driver.Refused
	}
	return classify(err)
}

// query runs a statement on a connection of the pool.
func (s *sessions) query(ctx context.Context, query string, args []any, scan func(*sql.Rows) error) error {
	return s.onPool.query(ctx, query, args, scan)
}

// queryKept runs a statement, which may be repeated, on the connection that is kept.
// That may turn out to have ended while it was idle; then the statement is run on
// another.
func (s *sessions) queryKept(ctx context.Context, query string, args []any, scan func(*sql.Rows) error) error {
	began := false
	run := func() error {
		return s.control.query(ctx, query, args, func(rows *sql.Rows) error {
			began = true
			return scan(rows)
		})
	}
	err := run()
	if err != nil && !began && !isAnswer(err) && ctx.Err() == nil {
		err = run()
	}
	return err
}

// onKept calls fn with the connection that is kept, for statements that may be repeated.
func (s *sessions) onKept(ctx context.Context, fn func(ctx context.Context, conn *sql.Conn, run runner) error) error {
	do := func() error {
		return s.control.source.Do(ctx, func(ctx context.Context, conn *sql.Conn) error {
			return fn(ctx, conn, (&conns{source: alone{conn}, isolate: s.control.isolate}).query)
		})
	}
	err := do()
	if err != nil && !isAnswer(err) && ctx.Err() == nil {
		err = do()
	}
	return err
}

// lockKey is the column lock_key of a name.
func (s *sessions) lockKey(name string) any {
	if s.key == nil {
		return nil
	}
	return s.key(name)
}

// keys are the columns lock_key of names.
func (s *sessions) keys(names []string) rowstore.Column {
	keys := make([]int64, len(names))
	for i, name := range names {
		if s.key != nil {
			keys[i] = s.key(name)
		}
	}
	return keys
}
