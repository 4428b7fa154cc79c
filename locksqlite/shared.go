package locksqlite

import (
	"context"
	"database/sql"

	"github.com/sqllock/sqllock/driver"
)

// grantShared is Grant for those who share. As there, a losing attempt reads.
func (s *store) grantShared(ctx context.Context, reqs []driver.GrantRequest) ([]driver.GrantResult, error) {
	var j joining
	err := s.do(ctx, len(reqs), func(ctx context.Context, conn *sql.Conn) error {
		j = joining{
			store: s, conn: conn, reqs: reqs,
			results: make([]driver.GrantResult, len(reqs)),
			expired: make([]driver.Holder, len(reqs)),
		}
		return j.run(ctx)
	})
	if err != nil {
		return nil, err
	}
	return j.results, nil
}

// joining is one call of grantShared on one connection.
type joining struct {
	store   *store
	conn    *sql.Conn
	reqs    []driver.GrantRequest
	results []driver.GrantResult
	expired []driver.Holder // whose term a grant would end
	stale   []string        // names of which a requester has a row that is over
}

func (j *joining) run(ctx context.Context) error {
	free, err := j.look(ctx, every(len(j.reqs)))
	if err != nil || len(free) == 0 {
		return err
	}
	return j.store.immediate(ctx, j.conn, func(ctx context.Context) error {
		free, err := j.look(ctx, free)
		if err != nil || len(free) == 0 {
			return err
		}
		if len(j.stale) > 0 { // it may still be counted
			if _, err := j.store.mend(ctx, j.conn, toJSON(j.stale)); err != nil {
				return err
			}
		}
		return j.take(ctx, free)
	})
}

// look fills the results of the requests at which and returns those of them that
// can be granted.
func (j *joining) look(ctx context.Context, which []int) (free []int, err error) {
	b := newBatch(len(which))
	for _, at := range which {
		b.add(at, j.reqs[at].Name, j.reqs[at].Acq)
	}
	j.stale = nil
	err = query(ctx, j.conn, j.store.queries.shared.state, b.args(), func(scan func(...any) error) error {
		var key int
		var joinable, mine, known bool
		var until, gate, now int64
		var h driver.Holder
		if err := scan(append([]any{&key, &joinable, &mine, &known, &until, &gate, &now}, holderTargets(&h)...)...); err != nil {
			return err
		}
		at := which[key]
		j.expired[at] = driver.Holder{}
		if mine {
			j.results[at] = driver.GrantResult{Granted: true, Found: true, Version: h.Version, Remaining: micros(until - now), Now: now}
			return nil
		}
		j.results[at] = driver.GrantResult{Now: now}
		switch {
		case joinable:
			free = append(free, at)
			if h.Acq != (driver.ID{}) {
				j.expired[at] = h
			}
			if known {
				j.stale = append(j.stale, j.reqs[at].Name)
			}
		case h.Acq != driver.ID{} && h.Until > now:
			j.results[at].Holder = h
		case gate > now:
			j.results[at].Holder.Until = gate
		}
		return nil
	})
	return free, err
}

// take counts in the requests at which and writes who they are, in a transaction.
func (j *joining) take(ctx context.Context, which []int) error {
	b := newBatch(len(which))
	named := make(map[string][]int, len(which))
	for _, at := range which {
		r := &j.reqs[at]
		b.add(at, r.Name, r.Acq, r.TTL.Microseconds())
		if len(named[r.Name]) > 0 {
			j.expired[at] = driver.Holder{} // the first of them tells
		}
		named[r.Name] = append(named[r.Name], at)
	}
	joined := newBatch(len(which))
	err := query(ctx, j.conn, j.store.queries.shared.join, []any{toJSON(b.rows)}, func(scan func(...any) error) error {
		var name string
		var version, since int64
		if err := scan(&name, &version, &since); err != nil {
			return err
		}
		at := named[name][0] // whichever it is: their answers differ by nothing but the TTL
		named[name] = named[name][1:]
		r := &j.reqs[at]
		joined.add(at, name, r.Acq, r.Owner, version, since, since+r.TTL.Microseconds())
		j.results[at] = driver.GrantResult{Granted: true, Version: version, Remaining: r.TTL, Now: since, Crashed: j.expired[at]}
		return nil
	})
	if err != nil {
		return err
	}
	client := &j.store.client
	_, err = j.conn.ExecContext(ctx, j.store.queries.shared.enter, joined.args(client.Instance[:], client.Label)...)
	return err
}

// mend makes right, in a transaction, what the rows of names, a JSON array, say of
// those who hold them together. It returns who of them has expired.
func (s *store) mend(ctx context.Context, conn *sql.Conn, names string) (crashed []driver.Crash, err error) {
	err = query(ctx, conn, s.queries.shared.mend, []any{names}, func(scan func(...any) error) error {
		c := driver.Crash{Holder: driver.Holder{Shared: true}}
		var expired bool
		h := &c.Holder
		err := scan(&c.Name, idTarget{&h.Acq}, &h.Owner, &h.Label, &h.Version, &h.Since, &h.Until, &expired)
		if expired {
			crashed = append(crashed, c)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	_, err = conn.ExecContext(ctx, s.queries.shared.recount, names)
	return crashed, err
}
