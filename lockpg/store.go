package lockpg

import (
	"context"
	"database/sql"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/access"
	"github.com/sqllock/sqllock/internal/sqlconn"
)

// store is the unique mode: one statement per call.
type store struct {
	pool    *sqlconn.Pool
	source  sqlconn.Source // the pool, or a connection reserved from it
	close   func() error
	queries queries
	client  driver.Client
	info    driver.Info
	isolate bool // the default isolation level is not READ COMMITTED

	sessionPooler bool // one in session mode may stand between
}

var _ driver.LeaseStore = (*store)(nil)

// Info implements driver.LeaseStore.
func (s *store) Info() driver.Info { return s.info }

// Close implements driver.LeaseStore.
func (s *store) Close() error { return s.close() }

// Exhausted implements driver.LeaseStore.
func (s *store) Exhausted() bool { return s.source == s.pool && s.pool.Exhausted() }

// Reserve implements driver.LeaseStore.
func (s *store) Reserve(ctx context.Context) (driver.LeaseStore, error) {
	conn, err := s.pool.Reserve(ctx)
	if err != nil {
		return nil, err
	}
	reserved := *s
	reserved.source, reserved.close = conn, conn.Close
	return &reserved, nil
}

// Renew implements driver.LeaseStore.
func (s *store) Renew(ctx context.Context, reqs []driver.RenewRequest, wait bool) (driver.RenewResults, error) {
	query, shared := s.queries.renew, s.queries.shared.renew
	if wait {
		query, shared = s.queries.renewWait, s.queries.shared.renewWait
	}
	var res driver.RenewResults
	by := func(query string) func([]driver.RenewRequest) ([]driver.RenewStatus, error) {
		return func(reqs []driver.RenewRequest) ([]driver.RenewStatus, error) {
			part, err := s.renew(ctx, query, reqs)
			res.Now = part.Now
			return part.Status, err
		}
	}
	status, err := access.Each(reqs, func(r *driver.RenewRequest) bool { return r.Shared }, by(query), by(shared), partly)
	res.Status = status
	return res, err
}

func (s *store) renew(ctx context.Context, query string, reqs []driver.RenewRequest) (driver.RenewResults, error) {
	n := len(reqs)
	args := []any{
		array(n, func(i int) string { return reqs[i].Name }),
		ids(n, func(i int) driver.ID { return reqs[i].Acq }),
		integers(n, func(i int) int64 { return reqs[i].Version }),
		integers(n, func(i int) int64 { return reqs[i].TTL.Microseconds() }),
		integers(n, func(i int) int64 { return int64(reqs[i].Holds) }),
	}
	res := driver.RenewResults{Status: make([]driver.RenewStatus, 0, n)}
	err := s.query(ctx, query, args, func(rows *sql.Rows) error {
		var renewed, held, revoked bool
		if err := rows.Scan(&renewed, &held, &revoked, &res.Now); err != nil {
			return err
		}
		status := driver.Gone
		switch {
		case renewed:
			status = driver.Renewed
		case held: // when the statement began: it was passed over, or has changed since
			status = driver.Busy
		case revoked:
			status = driver.Revoked
		}
		res.Status = append(res.Status, status)
		return nil
	})
	return res, err
}

// querier is a connection or a transaction on it.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// query runs one statement, in a transaction of its own, and calls scan for each
// row of its result. A statement of which a row was scanned is not repeated.
func (s *store) query(ctx context.Context, query string, args []any, scan func(*sql.Rows) error) error {
	return s.source.Do(ctx, func(ctx context.Context, conn *sql.Conn) error {
		began := false
		err := s.queryOn(ctx, conn, query, args, func(rows *sql.Rows) error {
			began = true
			return scan(rows)
		})
		if began {
			return sqlconn.Unknown(err)
		}
		return unsent(err)
	})
}

// queryOn is query on a connection.
func (s *store) queryOn(ctx context.Context, conn *sql.Conn, query string, args []any, scan func(*sql.Rows) error) error {
	if !s.isolate {
		return queryOn(ctx, conn, query, args, scan)
	}
	return inOwnTx(ctx, conn, readCommitted, func(tx *sql.Tx) error { return queryOn(ctx, tx, query, args, scan) })
}

var readCommitted = &sql.TxOptions{Isolation: sql.LevelReadCommitted}

// inOwnTx calls fn in a transaction of the library's own and commits it. The server
// ends it if the client is silent for as long as it may take, or as a statement waits
// for a lock: else a client that was paused, or has vanished, would keep what it has
// locked.
func inOwnTx(ctx context.Context, conn *sql.Conn, opts *sql.TxOptions, fn func(*sql.Tx) error) error {
	tx, err := conn.BeginTx(ctx, opts)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	bound := longestWait
	if end, ok := ctx.Deadline(); ok {
		bound = max(time.Millisecond, min(bound, time.Until(end)))
	}
	if _, err := tx.ExecContext(ctx, queryBound, milliseconds(bound)); err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// queryOn reads the result to its end: only there does an error of the commit
// show.
func queryOn(ctx context.Context, q querier, query string, args []any, scan func(*sql.Rows) error) error {
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
