package locksqlite

import (
	"context"
	"database/sql"
	"slices"

	"github.com/sqllock/sqllock/driver"
)

// Line implements [driver.LeaseStore]. Who has the name already, or cannot have it and
// has a ticket that lives for long enough, reads. All others are seen to in one
// transaction.
func (s *store) Line(ctx context.Context, reqs []driver.TicketRequest) ([]driver.TicketResult, error) {
	var l *lining
	err := s.do(ctx, len(reqs), func(ctx context.Context, conn *sql.Conn) error {
		l = newLining(s, conn, reqs)
		if err := l.look(ctx); err != nil || l.reads() {
			return err
		}
		return s.immediate(ctx, conn, func(ctx context.Context) error {
			l = newLining(s, conn, reqs)
			return l.run(ctx)
		})
	})
	if err != nil {
		return nil, err
	}
	if l == nil {
		return nil, nil
	}
	return l.results, nil
}

// lining is one call of Line on one connection.
type lining struct {
	store   *store
	conn    *sql.Conn
	reqs    []driver.TicketRequest
	results []driver.TicketResult
	index   map[member]int // of the requests
	names   []*awaited
}

func newLining(s *store, conn *sql.Conn, reqs []driver.TicketRequest) *lining {
	l := &lining{
		store: s, conn: conn, reqs: reqs,
		results: make([]driver.TicketResult, len(reqs)),
		index:   make(map[member]int, len(reqs)),
	}
	for i := range reqs {
		r := &reqs[i]
		l.index[member{r.Name, r.Acq}] = i
		if i == 0 || r.Name != reqs[i-1].Name {
			l.names = append(l.names, &awaited{name: r.Name})
		}
		n := l.names[len(l.names)-1]
		n.reqs = append(n.reqs, i)
	}
	return l
}

// run is Line in a transaction: what it sees is what it changes.
func (l *lining) run(ctx context.Context) error {
	if err := l.look(ctx); err != nil {
		return err
	}
	var untidy []string
	for _, n := range l.names {
		if n.untidy {
			untidy = append(untidy, n.name)
		}
	}
	if len(untidy) > 0 {
		crashed, err := l.store.mend(ctx, l.conn, toJSON(untidy))
		if err != nil {
			return err
		}
		if err := l.look(ctx); err != nil {
			return err
		}
		l.tell(crashed)
	}
	if err := l.write(ctx); err != nil {
		return err
	}
	return l.serve(ctx)
}

// tell says, with the first request of each name, whose terms are over.
func (l *lining) tell(crashed []driver.Crash) {
	for _, c := range crashed { // of several the last is told
		for _, n := range l.names {
			if n.name == c.Name && l.reqs[n.reqs[0]].Acq != c.Holder.Acq {
				l.results[n.reqs[0]].Crashed = c.Holder
			}
		}
	}
}

// serve hands names over to those who may have them.
func (l *lining) serve(ctx context.Context) error {
	next := serving{at: l.names[0].now}
	var names []string
	for _, n := range l.names {
		if n.end.before > 0 {
			next.lines, names = append(next.lines, n.end), append(names, n.name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	turns, err := l.store.serve(ctx, l.conn, next)
	if err != nil {
		return err
	}
	for _, t := range turns {
		if at, ok := l.index[t.member]; ok { // others find out when they ask
			l.results[at].GrantResult = driver.GrantResult{
				Granted: true, Version: t.Version, Remaining: t.Remaining, Now: t.Now, Crashed: l.results[at].Crashed,
			}
		}
	}
	for _, n := range l.names {
		l.succeed(n)
	}
	if err := l.store.settle(ctx, l.conn, names); err != nil {
		return err
	}
	return l.lookAgain(ctx)
}

// succeed says with the first grant of a name whose expired term it has ended.
func (l *lining) succeed(n *awaited) {
	if n.holder.Acq == (driver.ID{}) || n.holder.Until > n.now {
		return
	}
	for _, at := range n.reqs {
		if r := &l.results[at]; r.Granted {
			if n.holder.Acq != l.reqs[at].Acq {
				r.Crashed = n.holder
			}
			return
		}
	}
}

// lookAgain finds out who holds those names that others of the batch were given.
func (l *lining) lookAgain(ctx context.Context) error {
	given := make(map[string]*awaited)
	var names []string
	for _, n := range l.names {
		if n.end.before > 0 && slices.ContainsFunc(n.reqs, func(at int) bool { return !l.results[at].Granted }) {
			given[n.name], names = &awaited{name: n.name}, append(names, n.name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	if err := l.state(ctx, names, func(key int) *awaited { return given[names[key]] }); err != nil {
		return err
	}
	for i := range l.reqs {
		if n := given[l.reqs[i].Name]; n != nil && !l.results[i].Granted {
			l.results[i].Holder, l.results[i].Now = n.seen(), n.now
		}
	}
	return nil
}
