package lockpg

import (
	"context"
	"database/sql"
	"time"

	"github.com/sqllock/sqllock/driver"
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

// Grant implements driver.LeaseStore. Names whose holder was seen to have
// expired are asked for by a second statement.
func (s *store) Grant(ctx context.Context, reqs []driver.GrantRequest) ([]driver.GrantResult, error) {
	res := make([]driver.GrantResult, 0, len(reqs))
	err := s.query(ctx, s.queries.grant, s.grantArgs(reqs), func(rows *sql.Rows) error {
		r, err := scanGrant(rows, &reqs[len(res)])
		res = append(res, r)
		return err
	})
	if err != nil {
		return nil, err
	}
	var expired []driver.GrantRequest
	var index []int
	for i, r := range res {
		if !r.Granted && r.Holder.Acq != (driver.ID{}) && r.Holder.Until <= r.Now {
			expired, index = append(expired, reqs[i]), append(index, i)
		}
	}
	if len(expired) == 0 {
		return res, nil
	}
	err = s.takeOver(ctx, expired, func(i int, version, now int64) {
		res[index[i]] = driver.GrantResult{Granted: true, Version: version, Remaining: expired[i].TTL, Now: now}
	})
	switch {
	case err == nil:
		return res, nil
	case len(expired) < len(reqs): // the first statement may have granted others
		return nil, &partialError{err}
	}
	return nil, err
}

func (s *store) grantArgs(reqs []driver.GrantRequest) []any {
	n := len(reqs)
	return []any{
		array(n, func(i int) string { return reqs[i].Name }),
		array(n, func(i int) string { return reqs[i].Acq.String() }),
		array(n, func(i int) string { return reqs[i].Owner }),
		integers(n, func(i int) int64 { return reqs[i].TTL.Microseconds() }),
		s.client.Instance.String(),
		s.client.Label,
	}
}

// scanGrant reads one answer to a request: granted now, granted before to the
// same acquisition, or held by somebody.
func scanGrant(rows *sql.Rows, req *driver.GrantRequest) (driver.GrantResult, error) {
	var won, version, since, until sql.NullInt64
	var acq, owner, label sql.NullString
	var r driver.GrantResult
	if err := rows.Scan(&won, &acq, &owner, &label, &version, &since, &until, &r.Now); err != nil {
		return r, err
	}
	if won.Valid {
		r.Granted, r.Version, r.Remaining = true, won.Int64, req.TTL
		return r, nil
	}
	if !acq.Valid {
		return r, nil
	}
	id, err := parseID(acq.String)
	if err != nil {
		return r, err
	}
	if id == req.Acq && until.Int64 > r.Now {
		r.Granted, r.Version = true, version.Int64
		r.Remaining = time.Duration(until.Int64-r.Now) * time.Microsecond
		return r, nil
	}
	r.Holder = driver.Holder{Acq: id, Owner: owner.String, Label: label.String,
		Version: version.Int64, Since: since.Int64, Until: until.Int64}
	return r, nil
}

func (s *store) takeOver(ctx context.Context, reqs []driver.GrantRequest, won func(i int, version, now int64)) error {
	i := 0
	return s.query(ctx, s.queries.takeOver, s.grantArgs(reqs), func(rows *sql.Rows) error {
		var version sql.NullInt64
		var now int64
		if err := rows.Scan(&version, &now); err != nil {
			return err
		}
		if version.Valid {
			won(i, version.Int64, now)
		}
		i++
		return nil
	})
}

// Renew implements driver.LeaseStore.
func (s *store) Renew(ctx context.Context, reqs []driver.RenewRequest, wait bool) (driver.RenewResults, error) {
	n := len(reqs)
	args := []any{
		array(n, func(i int) string { return reqs[i].Name }),
		array(n, func(i int) string { return reqs[i].Acq.String() }),
		integers(n, func(i int) int64 { return reqs[i].Version }),
		integers(n, func(i int) int64 { return reqs[i].TTL.Microseconds() }),
		integers(n, func(i int) int64 { return int64(reqs[i].Holds) }),
	}
	query, locked := s.queries.renew, driver.Busy
	if wait {
		query, locked = s.queries.renewWait, driver.Gone
	}
	res := driver.RenewResults{Status: make([]driver.RenewStatus, 0, n)}
	err := s.query(ctx, query, args, func(rows *sql.Rows) error {
		var renewed, held bool
		if err := rows.Scan(&renewed, &held, &res.Now); err != nil {
			return err
		}
		status := driver.Gone
		switch {
		case renewed:
			status = driver.Renewed
		case held: // and passed over
			status = locked
		}
		res.Status = append(res.Status, status)
		return nil
	})
	return res, err
}

// Release implements driver.LeaseStore.
func (s *store) Release(ctx context.Context, reqs []driver.ReleaseRequest) ([]bool, error) {
	n := len(reqs)
	args := []any{
		array(n, func(i int) string { return reqs[i].Name }),
		array(n, func(i int) string { return reqs[i].Acq.String() }),
		integers(n, func(i int) int64 { return reqs[i].Version }),
	}
	res := make([]bool, 0, n)
	err := s.query(ctx, s.queries.release, args, func(rows *sql.Rows) error {
		var freed bool
		err := rows.Scan(&freed)
		res = append(res, freed)
		return err
	})
	return res, err
}

// Abandon implements driver.LeaseStore.
func (s *store) Abandon(ctx context.Context, reqs []driver.AbandonRequest) error {
	n := len(reqs)
	args := []any{
		array(n, func(i int) string { return reqs[i].Name }),
		array(n, func(i int) string { return reqs[i].Acq.String() }),
	}
	return s.query(ctx, s.queries.abandon, args, nil)
}

// querier is a connection or a transaction on it.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// query runs one statement, in a transaction of its own, and calls scan for each
// row of its result.
func (s *store) query(ctx context.Context, query string, args []any, scan func(*sql.Rows) error) error {
	return s.source.Do(ctx, func(ctx context.Context, conn *sql.Conn) error {
		if !s.isolate {
			return queryOn(ctx, conn, query, args, scan)
		}
		tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if err := queryOn(ctx, tx, query, args, scan); err != nil {
			return err
		}
		return tx.Commit()
	})
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
