package locksqlite

import (
	"context"
	"database/sql"
	"slices"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/access"
)

// Grant implements [driver.LeaseStore].
func (s *store) Grant(ctx context.Context, reqs []driver.GrantRequest) ([]driver.GrantResult, error) {
	return access.Each(reqs, func(r *driver.GrantRequest) bool { return r.Shared },
		func(reqs []driver.GrantRequest) ([]driver.GrantResult, error) { return s.grantAlone(ctx, reqs) },
		func(reqs []driver.GrantRequest) ([]driver.GrantResult, error) { return s.grantShared(ctx, reqs) },
		partly)
}

// grantAlone is Grant for those who do not share. Only what looks free is asked for
// with the write lock: a losing attempt reads. If a holder was seen who has expired,
// all is asked for in one transaction, so that it is certain whose term ended.
func (s *store) grantAlone(ctx context.Context, reqs []driver.GrantRequest) ([]driver.GrantResult, error) {
	var g granting
	err := s.do(ctx, len(reqs), func(ctx context.Context, conn *sql.Conn) error {
		g = granting{
			store: s, conn: conn, reqs: reqs,
			results: make([]driver.GrantResult, len(reqs)),
			expired: make([]driver.Holder, len(reqs)),
		}
		return g.run(ctx)
	})
	if err != nil {
		return nil, err
	}
	return g.results, nil
}

// granting is one call of Grant on one connection.
type granting struct {
	store   *store
	conn    *sql.Conn
	reqs    []driver.GrantRequest
	results []driver.GrantResult
	expired []driver.Holder // whose term a grant would end
	untidy  []int           // requests that only those keep off who may be gone
}

func (g *granting) run(ctx context.Context) error {
	free, err := g.look(ctx, every(len(g.reqs)))
	if err != nil || len(free)+len(g.untidy) == 0 {
		return err
	}
	if len(g.untidy) > 0 {
		return g.store.immediate(ctx, g.conn, func(ctx context.Context) error { return g.mendAndTakeOver(ctx, free) })
	}
	if slices.ContainsFunc(free, func(at int) bool { return g.expired[at].Acq != driver.ID{} }) {
		return g.store.immediate(ctx, g.conn, func(ctx context.Context) error { return g.takeOver(ctx, free) })
	}
	if err := g.store.alone(ctx, func() error { return g.take(ctx, free, false) }); err != nil {
		return err
	}
	lost := slices.DeleteFunc(free, func(at int) bool { return g.results[at].Granted })
	if len(lost) > 0 {
		// Who was quicker is good to know and no more. An error here must not
		// hide what was granted.
		_, _ = g.look(ctx, lost)
	}
	return nil
}

// takeOver asks for the requests at which, in a transaction: what it sees is what
// it ends.
func (g *granting) takeOver(ctx context.Context, which []int) error {
	free, err := g.look(ctx, which)
	if err != nil || len(free) == 0 {
		return err
	}
	return g.take(ctx, free, true)
}

// mendAndTakeOver is takeOver of the requests at which and of those that may find
// nobody any more when the dead are no longer counted.
func (g *granting) mendAndTakeOver(ctx context.Context, which []int) error {
	untidy := g.untidy
	names := make([]string, len(untidy))
	for i, at := range untidy {
		names[i] = g.reqs[at].Name
	}
	crashed, err := g.store.mend(ctx, g.conn, toJSON(names))
	if err != nil {
		return err
	}
	if err := g.takeOver(ctx, append(which, untidy...)); err != nil {
		return err
	}
	for _, c := range crashed { // of several the last is told
		for _, at := range untidy {
			if g.reqs[at].Name == c.Name {
				g.results[at].Crashed = c.Holder
			}
		}
	}
	return nil
}

// look fills the results of the requests at which and returns those of them
// that look free.
func (g *granting) look(ctx context.Context, which []int) (free []int, err error) {
	names := make([]string, len(which))
	for i, at := range which {
		names[i] = g.reqs[at].Name
	}
	g.untidy = nil
	err = query(ctx, g.conn, g.store.queries.state, []any{toJSON(names)}, func(scan func(...any) error) error {
		var key int
		var grantable, untidy bool
		var gate, now int64
		var h driver.Holder
		if err := scan(append([]any{&key, &grantable, &untidy, &gate, &now}, holderTargets(&h)...)...); err != nil {
			return err
		}
		at := which[key]
		if untidy && gate <= now {
			g.untidy = append(g.untidy, at)
		}
		g.results[at], g.expired[at] = seen(h, gate, now, g.reqs[at].Acq), driver.Holder{}
		if grantable {
			free, g.expired[at] = append(free, at), h
		}
		return nil
	})
	return free, err
}

// seen makes the result of a look for acq.
func seen(h driver.Holder, gate, now int64, acq driver.ID) driver.GrantResult {
	r := driver.GrantResult{Now: now}
	held := h.Acq != driver.ID{} && h.Until > now
	switch {
	case held && h.Acq == acq:
		r.Granted, r.Found = true, true
		r.Version, r.Remaining = h.Version, micros(h.Until-now)
	case held, h.Shared:
		r.Holder = h
	case gate > now:
		r.Holder.Until = gate
	}
	return r
}

// take asks for the requests at which. Names whose holder has expired are only
// taken within a transaction, where what was seen of them still holds.
func (g *granting) take(ctx context.Context, which []int, expired bool) error {
	b := newBatch(len(which))
	var values []byte
	for _, at := range which {
		r := &g.reqs[at]
		b.add(at, r.Name, r.Acq, r.Owner, r.TTL.Microseconds(), len(values), len(r.Value))
		values = append(values, r.Value...)
	}
	client := &g.store.client
	args := b.args(client.Instance[:], client.Label, values, bit(expired))
	return query(ctx, g.conn, g.store.queries.grant, args, func(scan func(...any) error) error {
		var name string
		var version, since, until int64
		if err := scan(&name, &version, &since, &until); err != nil {
			return err
		}
		at := b.index[name]
		r := driver.GrantResult{Granted: true, Version: version, Remaining: micros(until - since), Now: since}
		if was := g.expired[at]; was.Acq != (driver.ID{}) && was.Acq != g.reqs[at].Acq {
			r.Crashed = was
		}
		g.results[at] = r
		return nil
	})
}
