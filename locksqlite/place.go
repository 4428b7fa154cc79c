package locksqlite

import (
	"context"
	"slices"

	"github.com/sqllock/sqllock/driver"
)

// awaited is a name that is asked for by Line, and its line as it will be.
type awaited struct {
	name string
	reqs []int // who asks, in their order

	holder    driver.Holder // as far as known, who may have expired
	untidy    bool          // the row counts those who may be gone
	notBefore int64
	waitUntil int64
	seq       int64 // of the last ticket
	now       int64

	line []place
	end  lineEnd // who may have the name now, if one of those who ask is among them
}

// place is a ticket.
type place struct {
	seq    int64
	acq    driver.ID
	shared bool
	until  int64
	req    int // whose it is, or -1
	made   bool
	longer bool
}

// look finds out how the lines are and what is to be done.
func (l *lining) look(ctx context.Context) error {
	names := make([]string, len(l.names))
	index := make(map[string]*awaited, len(l.names))
	for i, n := range l.names {
		*n = awaited{name: n.name, reqs: n.reqs}
		names[i], index[n.name] = n.name, n
	}
	clear(l.results)
	if err := l.state(ctx, names, func(key int) *awaited { return l.names[key] }); err != nil {
		return err
	}
	if err := l.members(ctx, index); err != nil {
		return err
	}
	err := query(ctx, l.conn, l.store.queries.line.tickets, []any{toJSON(names)}, func(scan func(...any) error) error {
		var key int
		p := place{req: -1}
		if err := scan(&key, &p.seq, idTarget{&p.acq}, &p.shared, &p.until); err != nil {
			return err
		}
		n := l.names[key]
		if at, ok := l.index[member{n.name, p.acq}]; ok {
			p.req = at
		}
		n.line = append(n.line, p)
		return nil
	})
	if err != nil {
		return err
	}
	for _, n := range l.names {
		l.plan(n)
	}
	return nil
}

// state reads the rows of names.
func (l *lining) state(ctx context.Context, names []string, of func(key int) *awaited) error {
	return query(ctx, l.conn, l.store.queries.line.state, []any{toJSON(names)}, func(scan func(...any) error) error {
		var key int
		var n awaited
		targets := []any{&key, &n.untidy, &n.notBefore, &n.waitUntil, &n.seq, &n.now}
		if err := scan(append(targets, holderTargets(&n.holder)...)...); err != nil {
			return err
		}
		to := of(key)
		n.name, n.reqs = to.name, to.reqs
		n.untidy = n.untidy && n.notBefore <= n.now
		*to = n
		return nil
	})
}

// members finds who of those who share holds its name already.
func (l *lining) members(ctx context.Context, index map[string]*awaited) error {
	b := newBatch(len(l.reqs))
	var which []int
	for i := range l.reqs {
		if l.reqs[i].Shared {
			b.add(i, l.reqs[i].Name, l.reqs[i].Acq)
			which = append(which, i)
		}
	}
	if len(which) == 0 {
		return nil
	}
	return query(ctx, l.conn, l.store.queries.line.member, b.args(), func(scan func(...any) error) error {
		var key int
		var version, until int64
		var holds bool
		if err := scan(&key, &version, &until, &holds); err != nil {
			return err
		}
		at := which[key]
		n := index[l.reqs[at].Name]
		if !holds { // it may still be counted
			n.untidy = true
			return nil
		}
		l.found(at, n, version, until)
		return nil
	})
}

func (l *lining) found(at int, n *awaited, version, until int64) {
	l.results[at].GrantResult = driver.GrantResult{Granted: true, Found: true, Version: version, Remaining: micros(until - n.now), Now: n.now}
}

// plan gives each who asks for a name a place in its line, or finds that it has the
// name, and finds who may have it now.
func (l *lining) plan(n *awaited) {
	mine := make(map[int]int, len(n.reqs)) // where requests stand
	for i := range n.line {
		if n.line[i].req >= 0 {
			mine[n.line[i].req] = i
		}
	}
	for _, at := range n.reqs {
		r := &l.reqs[at]
		if !r.Shared && n.holder.Acq == r.Acq && n.holder.Until > n.now {
			l.found(at, n, n.holder.Version, n.holder.Until)
		}
		if l.results[at].Granted {
			continue
		}
		i, ok := mine[at]
		if !ok {
			n.seq++
			i = len(n.line)
			n.line = append(n.line, place{seq: n.seq, acq: r.Acq, shared: r.Shared, req: at, made: true})
		}
		n.line[i].keep(n.now, r.Life.Microseconds())
	}
	n.line = slices.DeleteFunc(n.line, func(p place) bool { return p.until <= n.now })
	served := n.first()
	if !slices.ContainsFunc(n.line[:served], func(p place) bool { return p.req >= 0 }) {
		served = 0
	}
	if served > 0 {
		n.end = lineEnd{n.name, n.line[served-1].seq + 1, n.line[0].shared}
	}
	for i, p := range n.line[served:] {
		if p.req >= 0 && !l.results[p.req].Granted {
			l.results[p.req] = driver.TicketResult{GrantResult: driver.GrantResult{Now: n.now, Holder: n.seen()}, Ahead: i}
		}
	}
}

// keep lets a ticket last for life from now, and somewhat longer, so that not each who
// asks again writes.
func (p *place) keep(now, life int64) {
	if p.until < now+life {
		p.until, p.longer = now+life+life/4, !p.made
	}
}

// first returns how many, from the head of the line, may have the name now.
func (n *awaited) first() int {
	switch {
	case len(n.line) == 0, n.notBefore > n.now, n.holder.Acq != driver.ID{} && n.holder.Until > n.now:
		return 0
	case n.line[0].shared:
		if at := slices.IndexFunc(n.line, func(p place) bool { return !p.shared }); at > 0 {
			return at
		}
		return len(n.line)
	case n.holder.Shared:
		return 0
	}
	return 1
}

// seen is what those are told who wait.
func (n *awaited) seen() driver.Holder {
	switch {
	case n.holder.Shared, n.holder.Acq != driver.ID{} && n.holder.Until > n.now:
		return n.holder
	case n.notBefore > n.now:
		return driver.Holder{Until: n.notBefore}
	}
	return driver.Holder{}
}

// reads reports that nothing is to be done.
func (l *lining) reads() bool {
	return !slices.ContainsFunc(l.names, func(n *awaited) bool {
		return n.untidy || n.end.before > 0 || slices.ContainsFunc(n.line, func(p place) bool { return p.made || p.longer })
	})
}
