package locksqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/sqllock/sqllock/driver"
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
}

var _ driver.LeaseStore = (*store)(nil)

// Grant implements [driver.LeaseStore]. Only what looks free is asked for with
// the write lock: a losing attempt reads.
func (s *store) Grant(ctx context.Context, reqs []driver.GrantRequest) ([]driver.GrantResult, error) {
	results := make([]driver.GrantResult, len(reqs))
	err := s.do(ctx, len(reqs), func(ctx context.Context, conn *sql.Conn) error {
		clear(results)
		free, err := s.look(ctx, conn, reqs, every(len(reqs)), results)
		if err != nil || len(free) == 0 {
			return err
		}
		lost, err := s.take(ctx, conn, reqs, free, results)
		if err != nil || len(lost) == 0 {
			return err
		}
		// Who was quicker is good to know and no more. An error here must not
		// hide what was granted.
		_, _ = s.look(ctx, conn, reqs, lost, results)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// look fills the results of the requests at which and returns those of them
// that look free.
func (s *store) look(ctx context.Context, conn *sql.Conn, reqs []driver.GrantRequest, which []int,
	results []driver.GrantResult) (free []int, err error) {
	names := make([]string, len(which))
	for i, at := range which {
		names[i] = reqs[at].Name
	}
	err = query(ctx, conn, s.queries.look, []any{toJSON(names)}, func(scan func(...any) error) error {
		var key int
		var grantable bool
		var acq []byte
		var r driver.GrantResult
		h := &r.Holder
		if err := scan(&key, &r.Now, &grantable, &acq, &h.Owner, &h.Label, &h.Version, &h.Since, &h.Until); err != nil {
			return err
		}
		at := which[key]
		copy(h.Acq[:], acq)
		if grantable {
			free = append(free, at)
		}
		results[at] = seen(r, len(acq) > 0, reqs[at].Acq)
		return nil
	})
	return free, err
}

// seen makes the result of a look of what was read: held says that the row
// names an acquisition, which may have expired.
func seen(r driver.GrantResult, held bool, acq driver.ID) driver.GrantResult {
	switch held = held && r.Holder.Until > r.Now; {
	case !held:
		r.Holder = driver.Holder{}
	case r.Holder.Acq == acq:
		r.Granted, r.Version = true, r.Holder.Version
		r.Remaining = micros(r.Holder.Until - r.Now)
		r.Holder = driver.Holder{}
	}
	return r
}

// take asks for the requests at which and returns those that came too late.
func (s *store) take(ctx context.Context, conn *sql.Conn, reqs []driver.GrantRequest, which []int,
	results []driver.GrantResult) (lost []int, err error) {
	b := newBatch(len(which))
	for _, at := range which {
		r := &reqs[at]
		b.add(at, r.Name, r.Acq, r.Owner, r.TTL.Microseconds())
	}
	args := b.args(s.client.Instance[:], s.client.Label)
	err = query(ctx, conn, s.queries.grant, args, func(scan func(...any) error) error {
		var name string
		var version, since, until int64
		if err := scan(&name, &version, &since, &until); err != nil {
			return err
		}
		results[b.index[name]] = driver.GrantResult{
			Granted: true, Version: version, Remaining: micros(until - since), Now: since,
		}
		delete(b.index, name)
		return nil
	})
	for _, at := range b.index {
		lost = append(lost, at)
	}
	return lost, err
}

// Renew implements [driver.LeaseStore]. SQLite locks the whole database, never
// a row, so there is nothing to skip: a busy database is an error to be tried
// again.
func (s *store) Renew(ctx context.Context, reqs []driver.RenewRequest, _ bool) (driver.RenewResults, error) {
	b := newBatch(len(reqs))
	for i := range reqs {
		r := &reqs[i]
		b.add(i, r.Name, r.Acq, r.Version, r.TTL.Microseconds(), r.Holds)
	}
	res := driver.RenewResults{Status: make([]driver.RenewStatus, len(reqs))}
	err := s.do(ctx, len(reqs), func(ctx context.Context, conn *sql.Conn) error {
		clear(res.Status)
		res.Now = 0
		err := query(ctx, conn, s.queries.renew, b.args(), func(scan func(...any) error) error {
			var name string
			if err := scan(&name, &res.Now); err != nil {
				return err
			}
			res.Status[b.index[name]] = driver.Renewed
			return nil
		})
		if err != nil || res.Now != 0 {
			return err
		}
		return conn.QueryRowContext(ctx, queryNow).Scan(&res.Now)
	})
	if err != nil {
		return driver.RenewResults{}, err
	}
	return res, nil
}

// Release implements [driver.LeaseStore].
func (s *store) Release(ctx context.Context, reqs []driver.ReleaseRequest) ([]bool, error) {
	b := newBatch(len(reqs))
	for i := range reqs {
		b.add(i, reqs[i].Name, reqs[i].Acq, reqs[i].Version)
	}
	freed := make([]bool, len(reqs))
	err := s.do(ctx, len(reqs), func(ctx context.Context, conn *sql.Conn) error {
		clear(freed)
		return query(ctx, conn, s.queries.release, b.args(), func(scan func(...any) error) error {
			var name string
			if err := scan(&name); err != nil {
				return err
			}
			freed[b.index[name]] = true
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return freed, nil
}

// Abandon implements [driver.LeaseStore].
func (s *store) Abandon(ctx context.Context, reqs []driver.AbandonRequest) error {
	b := newBatch(len(reqs))
	for i := range reqs {
		b.add(i, reqs[i].Name, reqs[i].Acq)
	}
	return s.do(ctx, len(reqs), func(ctx context.Context, conn *sql.Conn) error {
		_, err := conn.ExecContext(ctx, s.queries.abandon, b.args()...)
		return err
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
	return s.conns.Do(ctx, func(ctx context.Context, conn *sql.Conn) error {
		return impatient(ctx, conn, fn)
	})
}

// batch is what a statement over many requests takes, see queries.go.
type batch struct {
	rows  [][]any
	acqs  []byte
	index map[string]int // where the request for a name stands
}

func newBatch(size int) *batch {
	return &batch{
		rows:  make([][]any, 0, size),
		acqs:  make([]byte, 0, size*len(driver.ID{})),
		index: make(map[string]int, size),
	}
}

// add adds the request at index at.
func (b *batch) add(at int, name string, acq driver.ID, values ...any) {
	b.rows = append(b.rows, append([]any{name}, values...))
	b.acqs = append(b.acqs, acq[:]...)
	b.index[name] = at
}

// args returns the parameters of the statement, more being those after the batch.
func (b *batch) args(more ...any) []any {
	return append([]any{toJSON(b.rows), b.acqs}, more...)
}

// toJSON encodes a batch. Strings are valid UTF-8 and there is nothing else
// that could fail.
func toJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic("bug: " + err.Error())
	}
	return string(text)
}

func every(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
