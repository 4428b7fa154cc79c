package lockmysql

import (
	"cmp"
	"context"
	"database/sql"
	"slices"

	"github.com/sqllock/sqllock/driver"
)

// moving is a transaction that makes others the holders of names. It locks the rows of
// the names first, and waits for nobody.
type moving struct {
	s      *store
	tx     *sql.Tx
	places []*place
}

// lock locks the rows that a statement finds, and calls each with the number of the
// request.
func (m *moving) lock(ctx context.Context, text string, b *batch, each func(k int, p *place)) error {
	return m.s.queryStates(ctx, m.tx, text, b, func(k int, st *state) {
		p := newPlace(st)
		m.places = append(m.places, p)
		each(k, p)
	})
}

// lockNames locks the rows of names, or returns errLocked.
func (m *moving) lockNames(ctx context.Context, names []string) error {
	err := m.lock(ctx, m.s.queries.shared.hold, nameBatch(names), func(int, *place) {})
	if err == nil && len(m.places) < len(names) {
		return errLocked
	}
	return err
}

// handOver gives what has become free to who stands in line for it, and writes all.
func (m *moving) handOver(ctx context.Context) error {
	waited := m.which(func(p *place) bool { return p.waited() })
	if len(waited) > 0 {
		if err := m.heads(ctx, waited); err != nil {
			return err
		}
		if err := m.readers(m.plain(ctx), waited); err != nil {
			return err
		}
		if err := m.entries(ctx, m.which((*place).heir)); err != nil {
			return err
		}
		for _, p := range waited {
			p.advance(m.s.client.Instance)
		}
	}
	return m.write(ctx)
}

func (m *moving) which(is func(*place) bool) (some []*place) {
	for _, p := range m.places {
		if is(p) {
			some = append(some, p)
		}
	}
	return some
}

// namesOf is a batch of the names of places.
func namesOf(places []*place) *batch {
	b := newBatch(len(places))
	for _, p := range places {
		b.row(p.name, driver.ID{}).end()
	}
	return b
}

// heads reads who is first in line. The rest is read only if it may matter: who shares
// does not enter alone, and tickets that nobody has kept alive are to be deleted.
func (m *moving) heads(ctx context.Context, places []*place) error {
	by := m.plain(ctx)
	err := by(m.s.queries.line.heads, namesOf(places), func(rows *sql.Rows) error {
		var i int
		var last int64
		var t ticket
		err := t.scanHead(rows, &i, &last)
		if err == nil {
			places[i].tickets, places[i].more = []ticket{t}, last > t.seq
		}
		return err
	})
	if err != nil {
		return err
	}
	var rest []*place
	for _, p := range places {
		if len(p.tickets) == 0 || p.tickets[0].shared || p.tickets[0].seq != p.qhead+1 || !p.more && p.tickets[0].seq != p.qseq {
			p.tickets, p.more = nil, false
			rest = append(rest, p)
		}
	}
	if len(rest) == 0 {
		return nil
	}
	err = by(m.s.queries.line.line, namesOf(rest), func(rows *sql.Rows) error {
		var i int
		var t ticket
		err := t.scanHead(rows, &i, new(sql.NullInt64))
		if err == nil {
			rest[i].add(t)
		}
		return err
	})
	inLine(rest)
	return err
}

// add adds a ticket that was read, in any order.
func (p *place) add(t ticket) {
	p.qseq = max(p.qseq, t.seq)
	if t.until > p.now {
		p.tickets = append(p.tickets, t)
	} else {
		p.dead = append(p.dead, t)
	}
}

// inLine puts the tickets of places in order.
func inLine(places []*place) {
	for _, p := range places {
		slices.SortFunc(p.tickets, func(a, b ticket) int { return cmp.Compare(a.seq, b.seq) })
	}
}

func (t *ticket) scan(rows *sql.Rows, i *int) error {
	var acq []byte
	err := rows.Scan(i, &t.seq, &acq, &t.shared, &t.until)
	copy(t.acq[:], acq)
	return err
}

func (t *ticket) scanHead(rows *sql.Rows, i *int, last any) error {
	var acq, instance []byte
	err := rows.Scan(i, last, &t.seq, &acq, &t.shared, &t.until, &t.owner, &instance, &t.label, &t.ttl, &t.handed)
	copy(t.acq[:], acq)
	copy(t.instance[:], instance)
	return err
}

// reader runs a statement of requests and calls scan for each row of its result.
type reader func(text string, b *batch, scan func(*sql.Rows) error) error

// plain reads in the transaction.
func (m *moving) plain(ctx context.Context) reader {
	return func(text string, b *batch, scan func(*sql.Rows) error) error {
		return query(ctx, m.tx, text, []any{b.String()}, scan)
	}
}

// tickets reads all tickets, but for what only a hand-over asks.
func (m *moving) tickets(by reader) error {
	if len(m.places) == 0 {
		return nil
	}
	err := by(m.s.queries.line.tickets, namesOf(m.places), func(rows *sql.Rows) error {
		var i int
		var t ticket
		err := t.scan(rows, &i)
		if err == nil {
			m.places[i].add(t)
		}
		return err
	})
	inLine(m.places)
	return err
}

// readers reads who hold names together, as far as their rows say that somebody does.
func (m *moving) readers(by reader, places []*place) error {
	var shared []*place
	for _, p := range places {
		if p.others > 0 && !p.held() {
			shared = append(shared, p)
		}
	}
	if len(shared) == 0 {
		return nil
	}
	return by(m.s.queries.line.readers, namesOf(shared), func(rows *sql.Rows) error {
		i, h, err := scanReader(rows)
		if err == nil {
			shared[i].readers = append(shared[i].readers, h)
		}
		return err
	})
}

// entries locks what a guard locks, where no guard does.
func (m *moving) entries(ctx context.Context, places []*place) error {
	places = slices.DeleteFunc(places, func(p *place) bool { return p.entry })
	if len(places) == 0 {
		return nil
	}
	b := newBatch(len(places))
	for _, p := range places {
		b.row(p.name, driver.ID{}).int(p.holder.Version).end()
	}
	return query(ctx, m.tx, m.s.queries.line.entries, []any{b.String()}, func(rows *sql.Rows) error {
		var i int
		err := rows.Scan(&i)
		if err == nil {
			places[i].entry = true
		}
		return err
	})
}

// write writes what has changed. Tickets go last, for the new holders' values stand in
// them.
func (m *moving) write(ctx context.Context) error {
	if err := m.move(ctx); err != nil {
		return err
	}
	left, seated, queued, gone := newBatch(1), newBatch(1), newBatch(1), newBatch(1)
	for _, p := range m.places {
		for _, acq := range p.left {
			left.row(p.name, acq).end()
		}
		for _, t := range p.seated {
			seated.row(p.name, t.acq).int(p.holder.Version).hex([]byte(t.owner)).int(t.since).int(t.until).
				id(t.instance).hex([]byte(t.label)).end()
		}
		if p.queued && !p.moved {
			queued.row(p.name, driver.ID{}).int(p.qseq).int(p.qhead).int(p.waitUntil).end()
		}
		slices.Sort(p.gone)
		for _, seq := range p.gone {
			gone.row(p.name, driver.ID{}).int(seq).end()
		}
	}
	q := &m.s.queries
	for _, w := range []struct {
		text string
		b    *batch
	}{{q.shared.leave, left}, {q.line.seat, seated}, {q.line.queue, queued}, {q.line.gone, gone}} {
		if w.b.empty() {
			continue
		}
		if _, err := m.tx.ExecContext(ctx, w.text, w.b.String()); err != nil {
			return err
		}
	}
	return nil
}

// move writes the terms that begin or end, and finds out their versions.
func (m *moving) move(ctx context.Context) error {
	moved := newBatch(1)
	for _, p := range m.places {
		if p.moved {
			p.move(moved)
		}
	}
	if moved.empty() {
		return nil
	}
	done, err := m.tx.ExecContext(ctx, m.s.queries.line.move, moved.String())
	if err != nil {
		return err
	}
	now, err := done.LastInsertId()
	for _, p := range m.places {
		if p.rise > 0 {
			p.settle(max(p.was+p.rise, now))
		}
	}
	return err
}

// move adds the row as it is to be written.
func (p *place) move(b *batch) {
	h := &p.holder
	b.row(p.name, h.Acq).int(p.rise).hex([]byte(h.Owner)).id(p.instance).hex([]byte(h.Label)).
		int(h.Since).int(p.expiresAt).int(int64(p.others)).int(p.othersUntil).
		int(int64(p.ended)).int(p.revoked).int(p.notBefore).
		int(p.qseq).int(p.qhead).int(p.waitUntil).int(p.seq).end()
}

// next are the turns of all places.
func (m *moving) next() map[string][]driver.Turn {
	next := make(map[string][]driver.Turn)
	for _, p := range m.places {
		for i := range p.next {
			p.next[i].Version = p.holder.Version
		}
		next[p.name] = p.next
	}
	return next
}
