package locksqlite

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/access"
	"github.com/sqllock/sqllock/internal/sqlconn"
)

// store is the lease store on one database. Its connections come from the pool
// or, if it was reserved, are always the same one.
type store struct {
	conns   sqlconn.Source
	pool    *sqlconn.Pool // nil if reserved
	queries queries
	client  driver.Client
	info    driver.Info
	file    *file
	turn    chan struct{} // holds a token while nobody writes; all stores of one Open share it
}

var _ driver.LeaseStore = (*store)(nil)

// Renew implements [driver.LeaseStore]. SQLite locks the whole database, never
// a row, so there is nothing to skip: a busy database is an error to be tried
// again.
func (s *store) Renew(ctx context.Context, reqs []driver.RenewRequest, _ bool) (driver.RenewResults, error) {
	var res driver.RenewResults
	with := func(renew func(context.Context, []driver.RenewRequest) (driver.RenewResults, error)) func([]driver.RenewRequest) ([]driver.RenewStatus, error) {
		return func(reqs []driver.RenewRequest) ([]driver.RenewStatus, error) {
			part, err := renew(ctx, reqs)
			res.Now = part.Now
			return part.Status, err
		}
	}
	status, err := access.Each(reqs, func(r *driver.RenewRequest) bool { return r.Shared }, with(s.renewAlone), with(s.renewShared), partly)
	if errors.As(err, new(*movedError)) { // what is in the file that is there now is not ours
		return driver.RenewResults{Status: make([]driver.RenewStatus, len(reqs)), Why: err}, nil
	}
	if err != nil {
		return driver.RenewResults{}, err
	}
	res.Status = status
	return res, nil
}

// renewAlone is Renew for those who do not share.
func (s *store) renewAlone(ctx context.Context, reqs []driver.RenewRequest) (driver.RenewResults, error) {
	b := newBatch(len(reqs))
	for i := range reqs {
		r := &reqs[i]
		b.add(i, r.Name, r.Acq, r.Version, r.TTL.Microseconds(), r.Holds)
	}
	res := driver.RenewResults{Status: make([]driver.RenewStatus, len(reqs))}
	err := s.do(ctx, len(reqs), func(ctx context.Context, conn *sql.Conn) error {
		clear(res.Status)
		err := s.alone(ctx, func() error {
			return query(ctx, conn, s.queries.renew, b.args(), func(scan func(...any) error) error {
				var name string
				if err := scan(&name, &res.Now); err != nil {
					return err
				}
				res.Status[b.index[name]] = driver.Renewed
				return nil
			})
		})
		if err != nil || !slices.Contains(res.Status, driver.Gone) {
			return err
		}
		return s.revoked(ctx, conn, b, &res)
	})
	if err != nil {
		return driver.RenewResults{}, err
	}
	return res, nil
}

// revoked finds out which of the leases that are gone were revoked.
func (s *store) revoked(ctx context.Context, conn *sql.Conn, b *batch, res *driver.RenewResults) error {
	return query(ctx, conn, s.queries.revoked, []any{toJSON(b.rows)}, func(scan func(...any) error) error {
		var key int
		var revoked bool
		if err := scan(&key, &revoked, &res.Now); err != nil {
			return err
		}
		if revoked && res.Status[key] == driver.Gone {
			res.Status[key] = driver.Revoked
		}
		return nil
	})
}

// Reserve implements [driver.LeaseStore].
func (s *store) Reserve(ctx context.Context) (driver.LeaseStore, error) {
	if s.pool == nil {
		return nil, errors.New("bug: Reserve of a reserved store")
	}
	conns, err := s.pool.Reserve(ctx)
	if err != nil {
		return nil, err
	}
	reserved := *s
	reserved.conns, reserved.pool = conns, nil
	return &reserved, nil
}

// Exhausted implements [driver.LeaseStore].
func (s *store) Exhausted() bool { return s.pool != nil && s.pool.Exhausted() }

// Classify implements [driver.LeaseStore].
func (s *store) Classify(err error) driver.Fault { return classify(err) }

// Info implements [driver.LeaseStore].
func (s *store) Info() driver.Info { return s.info }

// Close implements [driver.LeaseStore].
func (s *store) Close() error { return s.conns.Close() }

// do calls fn with a connection, unless there is nothing to do.
func (s *store) do(ctx context.Context, requests int, fn func(context.Context, *sql.Conn) error) error {
	if requests == 0 {
		return nil
	}
	return s.call(ctx, fn)
}

// call calls fn with a connection. What fn has done counts for nothing if the file, by
// then, is another one.
func (s *store) call(ctx context.Context, fn func(context.Context, *sql.Conn) error) error {
	return s.conns.Do(ctx, func(ctx context.Context, conn *sql.Conn) error {
		if err := s.file.checkPath(); err != nil {
			return err
		}
		err := impatient(ctx, conn, fn)
		if err != nil {
			if moved := s.file.checkPath(); errors.As(moved, new(*movedError)) {
				return moved
			}
			return err
		}
		err = s.file.check(context.WithoutCancel(ctx), conn)
		if err != nil && !errors.As(err, new(*movedError)) {
			return partly(err)
		}
		return err
	})
}
