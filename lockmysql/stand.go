package lockmysql

import (
	"context"
	"database/sql"
	"slices"

	"github.com/sqllock/sqllock/driver"
)

// Line implements [driver.LineStore]. It looks first. Who is in line and cannot have
// the name yet has its ticket prolonged by one statement for all; a transaction sees
// to the rest.
func (s *store) Line(ctx context.Context, reqs []driver.TicketRequest) (res []driver.TicketResult, err error) {
	for i := range reqs {
		if err := s.checkValues([]driver.GrantRequest{reqs[i].GrantRequest}); err != nil {
			return nil, err
		}
	}
	for len(reqs) > 0 {
		n := s.fitting(len(reqs), func(i int) int {
			return textSize(&reqs[i].GrantRequest) + 16*len(reqs[i].Carries) + len(s.client.Label) + requestBytes/2
		})
		w := waiting{s: s, reqs: reqs[:n], res: make([]driver.TicketResult, n)}
		if err := s.do(ctx, w.run); err != nil {
			if len(res) > 0 {
				return nil, &unresolvedError{err}
			}
			return nil, err
		}
		res, reqs = append(res, w.res...), reqs[n:]
	}
	return res, nil
}

// waiting is one statement's share of a call of Line.
type waiting struct {
	s      *store
	c      session
	reqs   []driver.TicketRequest
	res    []driver.TicketResult
	stands []stand // of the requests
}

// stand is what a look found of a name and of one who asks for it.
type stand struct {
	seat
	seq, lasts int64 // of the ticket; 0 if there is none
}

// standing returns the stands of n requests.
func (s *store) standing(ctx context.Context, c session, b *batch, n int) ([]stand, error) {
	stands := make([]stand, n)
	err := s.read(ctx, c, s.queries.line.stand, []any{b.String()}, func(rows *sql.Rows) error {
		var i int
		var st stand
		var version, until, seq, lasts sql.NullInt64
		err := st.scan(rows, &i, &version, &until, &seq, &lasts)
		if err == nil {
			st.version, st.until, st.seq, st.lasts = version.Int64, until.Int64, seq.Int64, lasts.Int64
			stands[i] = st
		}
		return err
	})
	return stands, err
}

// run has nothing granted before it fails.
func (w *waiting) run(ctx context.Context, c session) error {
	w.c = c
	w.stands = make([]stand, len(w.reqs))
	todo := every(len(w.reqs))
	patience := newPatience(long)
	for {
		var err error
		if todo, err = w.once(ctx, todo); err != nil || len(todo) == 0 {
			return err
		}
		if err := patience.wait(ctx); err != nil {
			return err
		}
	}
}

// once sees to the requests at todo, and returns those whose names are locked.
func (w *waiting) once(ctx context.Context, todo []int) ([]int, error) {
	todo, places, err := w.look(ctx, todo)
	if err != nil || len(todo) == 0 {
		return nil, err
	}
	return w.act(ctx, todo, places)
}

// look answers those of the requests at todo which have their names already. It returns
// the others, and what it has found of their names. Names without rows get them.
func (w *waiting) look(ctx context.Context, todo []int) ([]int, map[string]*place, error) {
	b := newBatch(len(todo))
	for _, i := range todo {
		b.row(w.reqs[i].Name, w.reqs[i].Acq).end()
	}
	stands, err := w.s.standing(ctx, w.c, b, len(todo))
	if err != nil {
		return nil, nil, err
	}
	for k, i := range todo {
		w.stands[i] = stands[k]
	}
	if todo = slices.DeleteFunc(todo, w.found); len(todo) == 0 {
		return nil, nil, nil
	}
	places, err := w.places(ctx, todo)
	return todo, places, err
}

// act prolongs the tickets of those who have one, if it is not their turn, and asks for
// the others.
func (w *waiting) act(ctx context.Context, todo []int, places map[string]*place) ([]int, error) {
	var stay, ask []int
	for _, i := range todo {
		if w.stays(places[w.reqs[i].Name], i) {
			stay = append(stay, i)
		} else {
			ask = append(ask, i)
		}
	}
	if len(stay) > 0 {
		all, err := w.prolong(ctx, stay)
		if err != nil {
			return nil, err
		}
		if !all { // some have been served, or may be just now
			ask = todo
		}
	}
	if len(ask) == 0 {
		return nil, nil
	}
	done, err := w.ask(ctx, ask)
	if err != nil || done {
		return nil, err
	}
	return ask, nil
}

// found answers a request that has the name already.
func (w *waiting) found(i int) bool {
	st, r := &w.stands[i], &w.reqs[i]
	res := st.answer(r.Acq)
	if st.mine() {
		res = driver.GrantResult{Granted: true, Found: true, Version: st.version, Remaining: micros(st.until - st.now), Now: st.now}
	}
	if res.Granted {
		w.res[i] = driver.TicketResult{GrantResult: res}
	}
	return res.Granted
}

// places reads who stands in line for the names of the requests at todo, and who share
// them, where it matters: the others ask in any case.
func (w *waiting) places(ctx context.Context, todo []int) (map[string]*place, error) {
	m := moving{s: w.s}
	byName := make(map[string]*place)
	absent := newBatch(1)
	for _, i := range todo {
		st, name := &w.stands[i], w.reqs[i].Name
		p := byName[name]
		if p == nil {
			p = newPlace(&st.state)
			p.name = name
			byName[name] = p
			if !p.exists {
				absent.row(name, driver.ID{}).end()
			}
		}
		if n := len(m.places); st.seq != 0 && (n == 0 || m.places[n-1] != p) {
			m.places = append(m.places, p)
		}
	}
	if !absent.empty() {
		if _, _, err := w.c.exec(ctx, w.s.queries.shared.free, absent.String()); err != nil {
			return nil, err
		}
	}
	by := func(text string, b *batch, scan func(*sql.Rows) error) error {
		return w.s.read(ctx, w.c, text, []any{b.String()}, scan)
	}
	if err := m.tickets(by); err != nil {
		return nil, err
	}
	return byName, m.readers(by, m.places)
}

// stays reports that a request has a ticket, which only needs to be prolonged, because
// it is not its turn.
func (w *waiting) stays(p *place, i int) bool {
	st, r := &w.stands[i], &w.reqs[i]
	until := p.now + r.Life.Microseconds()
	at := p.find(r.Acq)
	if !p.exists || at < 0 || p.tickets[at].seq != st.seq || p.waitUntil < until || p.untidy() || p.may(r, at) {
		return false
	}
	w.res[i] = p.tell(at)
	return true
}

// prolong prolongs the tickets of the requests at which, and reports whether it knows
// that it did so with all.
func (w *waiting) prolong(ctx context.Context, which []int) (bool, error) {
	b := newBatch(len(which))
	n := 0
	for _, i := range which {
		st, r := &w.stands[i], &w.reqs[i]
		if until := st.now + r.Life.Microseconds(); until > st.lasts {
			b.row(r.Name, r.Acq).int(st.seq).int(until).end()
			n++
		}
	}
	if n == 0 {
		return true, nil
	}
	changed, _, err := w.c.exec(ctx, w.s.queries.line.stay, b.String())
	return changed == int64(n), err
}

// ask gives names to those of the requests at which who may have them, and tickets to
// the others: to all, or to nobody if a row is locked. It reports which.
func (w *waiting) ask(ctx context.Context, which []int) (bool, error) {
	res := make([]driver.TicketResult, len(w.reqs))
	done, err := w.s.orLocked(ctx, w.c, func(tx *sql.Tx) error {
		m := moving{s: w.s, tx: tx}
		if err := m.lockNames(ctx, distinct(which, func(i int) string { return w.reqs[i].Name })); err != nil {
			return err
		}
		if err := m.tickets(m.plain(ctx)); err != nil {
			return err
		}
		if err := m.readers(m.plain(ctx), m.places); err != nil {
			return err
		}
		if err := m.entries(ctx, m.which((*place).free)); err != nil {
			return err
		}
		e := entering{w: w, m: &m, res: res}
		return e.run(ctx, which)
	})
	if err != nil || !done {
		return false, err
	}
	for _, i := range which {
		w.res[i] = res[i]
	}
	return true, nil
}

// distinct are the names of sorted requests.
func distinct(which []int, name func(int) string) []string {
	names := make([]string, len(which))
	for k, i := range which {
		names[k] = name(i)
	}
	return slices.Compact(names)
}
