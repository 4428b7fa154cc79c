package lockmysql

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/sqlconn"
)

// store is the unique mode. What its statements change they commit by themselves:
// no transaction stays open between two of them.
type store struct {
	pool      *sqlconn.Pool
	source    sqlconn.Source // the pool, or a connection reserved from it
	queries   queries
	client    driver.Client
	info      driver.Info
	maxPacket int                // bytes that the server takes at once
	hasty     bool               // it can be told to wait for no lock, see queries_clean.go
	isolate   bool               // a plain SELECT would read what is not committed
	level     sql.IsolationLevel // of transactions

	bound, unbound string // settings of a session around a transaction
}

var _ driver.LeaseStore = (*store)(nil)

// Info implements [driver.LeaseStore].
func (s *store) Info() driver.Info { return s.info }

// Close implements [driver.LeaseStore].
func (s *store) Close() error { return s.source.Close() }

// Exhausted implements [driver.LeaseStore].
func (s *store) Exhausted() bool { return s.source == s.pool && s.pool.Exhausted() }

// Classify implements [driver.LeaseStore].
func (s *store) Classify(err error) driver.Fault { return classify(err) }

// Reserve implements [driver.LeaseStore].
func (s *store) Reserve(ctx context.Context) (driver.LeaseStore, error) {
	conn, err := s.pool.Reserve(ctx)
	if err != nil {
		return nil, err
	}
	reserved := *s
	reserved.source = conn
	return &reserved, nil
}

// do calls fn with a connection. That a row is locked puts no doubt on the
// connection.
func (s *store) do(ctx context.Context, fn func(context.Context, session) error) error {
	locked := false
	err := s.source.Do(ctx, func(ctx context.Context, conn *sql.Conn) error {
		err := fn(ctx, session{conn})
		if locked = err == errLocked; locked {
			return nil
		}
		return err
	})
	if err == nil && locked {
		return errLocked
	}
	return err
}

// session is a connection. All statements go through it, so that it could keep
// them prepared; now go-sql-driver prepares, runs and closes each, or writes the
// parameters into the text, as its DSN says.
type session struct{ *sql.Conn }

// exec runs a statement and returns how many rows it changed, or found, as the
// connection counts, and what it gave to LAST_INSERT_ID.
func (c session) exec(ctx context.Context, query string, args ...any) (rows, id int64, err error) {
	res, err := c.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, 0, err
	}
	if rows, err = res.RowsAffected(); err != nil {
		return 0, 0, err
	}
	id, err = res.LastInsertId()
	return rows, id, err
}

// querier is a connection or a transaction on it.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// query runs a statement and calls scan for each row of its result.
func query(ctx context.Context, q querier, query string, args []any, scan func(*sql.Rows) error) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// read is query for a statement that locks nothing. What another has not committed
// may be undone yet: to take it for a grant of ours would be fatal.
func (s *store) read(ctx context.Context, c session, text string, args []any, scan func(*sql.Rows) error) error {
	if !s.isolate {
		return query(ctx, c, text, args, scan)
	}
	return s.inOwnTx(ctx, c, &sql.TxOptions{Isolation: sql.LevelReadCommitted, ReadOnly: true}, func(tx *sql.Tx) error {
		return query(ctx, tx, text, args, scan)
	})
}

// inOwnTx calls fn in a transaction of the library's own and commits it. The server
// ends the session if the client is silent meanwhile: else a client that was paused,
// or has vanished, would keep what it has locked. A session whose settings cannot be
// restored is ended, whatever became of the transaction.
func (s *store) inOwnTx(ctx context.Context, c session, opts *sql.TxOptions, fn func(*sql.Tx) error) error {
	if _, err := c.ExecContext(ctx, s.bound); err != nil {
		return err
	}
	defer func() {
		if _, err := c.ExecContext(ctx, s.unbound); err != nil {
			sqlconn.Destroy(c.Conn, s.pool.End)
		}
	}()
	tx, err := c.BeginTx(ctx, opts)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// patience waits a little while a row is locked, as it is for a moment by everybody
// who was too late to take it. A statement that waits on the server cannot be told
// to stop.
type patience struct {
	end   time.Time
	pause time.Duration
}

// Who waits keeps a connection, which renewals may need: so most calls wait
// briefly, and their caller asks again.
const (
	brief = 50 * time.Millisecond
	long  = time.Second
)

func newPatience(d time.Duration) *patience {
	return &patience{end: time.Now().Add(d), pause: time.Millisecond}
}

// wait returns errLocked when patience is at its end, or ctx is.
func (p *patience) wait(ctx context.Context) error {
	pause := min(p.pause, time.Until(p.end))
	if pause <= 0 {
		return errLocked
	}
	p.pause = min(2*p.pause, 100*time.Millisecond)
	if sleep(ctx, pause) != nil {
		return errLocked
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

var errLocked = errors.New("lockmysql: another transaction has locked the row")
