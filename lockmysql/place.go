package lockmysql

import (
	"slices"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// ticket is one who stands in line.
type ticket struct {
	seq         int64
	acq         driver.ID
	shared      bool
	until       int64
	owner       string
	instance    driver.ID
	label       string
	ttl, handed int64
}

// lasts is for how long the row keeps a name that a client hands over to this one.
func (t *ticket) lasts(client driver.ID) int64 {
	if t.instance == client {
		return t.ttl
	}
	return t.handed
}

// place is a name whose row is locked: as it is, and then as it is to be written.
type place struct {
	state
	was      int64     // the version, when the row was locked
	rise     int64     // by how much the version does at least; until it is written it is a guess
	instance driver.ID // of a new holder
	seq      int64     // of the ticket that has the new holder's value

	tickets []ticket        // the first of those who are alive, in line
	more    bool            // there are others behind them who are alive
	dead    []ticket        // of others
	readers []driver.Holder // who hold the name together, or did
	entry   bool            // no guard is in the way of a new term

	moved  bool // the term is to be written
	queued bool // or no more than the line
	gone   []int64
	left   []driver.ID // readers who are to be taken away
	seated []seating
	next   []driver.Turn
}

func newPlace(st *state) *place { return &place{state: *st, was: st.holder.Version} }

// seating is one who comes to share a name.
type seating struct {
	ticket
	since, until int64
}

// live is how many hold the name together who have not expired.
func (p *place) live() (n int) {
	for i := range p.readers {
		if p.reads(&p.readers[i]) {
			n++
		}
	}
	return n
}

func (p *place) reads(h *driver.Holder) bool { return p.counts(h) && h.Until > p.now }

// counts reports that a reader is one of those that the row counts, alive or not.
func (p *place) counts(h *driver.Holder) bool {
	return !p.held() && p.others > 0 && h.Version == p.holder.Version
}

// taken reports that somebody who is alive has the name alone.
func (p *place) taken() bool { return p.held() && p.holder.Until > p.now }

// free reports that a new term may begin, if no guard is in the way.
func (p *place) free() bool { return !p.taken() && p.notBefore <= p.now && p.live() == 0 }

// end ends the term of the one who has the name alone.
func (p *place) end(as driver.Ending) {
	p.holder.Acq, p.holder.Owner, p.holder.Label = driver.ID{}, "", ""
	p.holder.Until, p.expiresAt, p.ended = p.now, p.now, as
	p.moved = true
}

// release ends the term by a release.
func (p *place) release(minHold time.Duration) {
	if minHold > 0 {
		p.notBefore = max(p.notBefore, p.holder.Since+minHold.Microseconds())
	}
	p.end(driver.EndedReleased)
}

// revoke ends the term of whoever has the name. It counts as revoked only if it was held.
func (p *place) revoke() {
	if p.held() || p.others > 0 && p.othersUntil > p.now {
		p.revoked = p.holder.Version
	}
	p.raise()
	p.notBefore, p.others, p.othersUntil, p.readers = 0, 0, 0, nil
	p.end(driver.EndedRevoked)
}

// heir reports that a new term begins with who is first in line.
func (p *place) heir() bool { return !p.held() && len(p.tickets) > 0 && p.free() }

// advance gives the name to the first in line, if nobody has it and no gate keeps it,
// or to all who are first and share it. client is who does this.
func (p *place) advance(client driver.ID) {
	n := 0
	switch {
	case p.held(), len(p.tickets) == 0, p.notBefore > p.now:
	case p.tickets[0].shared:
		if n = p.sharing(); p.live() == 0 && !p.entry {
			n = 0
		}
		for _, t := range p.tickets[:n] {
			p.seat(t, t.lasts(client))
			p.turn(&t, client)
		}
	case p.live() == 0 && p.entry:
		t := p.tickets[0]
		p.hold(t, t.lasts(client))
		p.seq, n = t.seq, 1
		p.turn(&t, client)
	}
	for range n {
		p.serve(0)
	}
	p.close()
}

// sharing is how many of the first in line share the name.
func (p *place) sharing() int {
	n := slices.IndexFunc(p.tickets, func(t ticket) bool { return !t.shared })
	if n < 0 {
		return len(p.tickets)
	}
	return n
}

func (p *place) turn(t *ticket, client driver.ID) {
	if t.instance == client {
		p.next = append(p.next, driver.Turn{Acq: t.acq, Remaining: micros(t.ttl), Now: p.now})
	}
}

// raise raises the version.
func (p *place) raise() {
	p.holder.Version = max(p.holder.Version+1, p.now)
	p.rise++
}

// settle replaces the guess.
func (p *place) settle(version int64) {
	for i := range p.readers {
		if h := &p.readers[i]; p.counts(h) {
			h.Version = version
		}
	}
	p.holder.Version = version
}

// tidy takes those away who share the name no more, and counts the others anew. It
// returns the last who has expired, unless it is acq, which asks again.
func (p *place) tidy(acq driver.ID) (crashed driver.Holder) {
	if p.held() || !p.untidy() {
		return crashed
	}
	var readers []driver.Holder
	until := int64(0)
	for _, h := range p.readers {
		switch {
		case p.reads(&h):
			readers = append(readers, h)
			until = max(until, h.Until)
			continue
		case h.Until <= p.now && h.Acq != acq:
			crashed = h
		}
		p.left = append(p.left, h.Acq)
	}
	if len(readers) == 0 {
		p.expiresAt, p.ended = max(p.expiresAt, min(p.othersUntil, p.now)), driver.EndedExpired
	}
	p.readers, p.others, p.othersUntil, p.moved = readers, len(readers), until, true
	return crashed
}

// untidy reports that the row counts others than those who share the name.
func (p *place) untidy() bool {
	n := p.live()
	return p.others != n || len(p.readers) != n
}

// begin begins a term. Who has expired before it is not counted any more.
func (p *place) begin() {
	p.raise()
	p.holder = driver.Holder{Version: p.holder.Version, Since: p.now}
	p.others, p.othersUntil, p.moved = 0, 0, true
}

// hold begins the term of one who has the name alone.
func (p *place) hold(t ticket, ttl int64) {
	p.begin()
	p.holder.Acq, p.holder.Owner, p.holder.Label, p.instance = t.acq, t.owner, t.label, t.instance
	p.holder.Until, p.expiresAt = p.now+ttl, p.now+ttl
}

// seat lets one more share the name, with those who share it now.
func (p *place) seat(t ticket, ttl int64) {
	if p.live() == 0 {
		p.begin()
	}
	until := p.now + ttl
	was := slices.IndexFunc(p.readers, func(h driver.Holder) bool { return h.Acq == t.acq && p.counts(&h) })
	if was < 0 {
		p.others++
	}
	p.othersUntil, p.moved = max(p.othersUntil, until), true
	p.seated = append(p.seated, seating{ticket: t, since: p.now, until: until})
	p.readers = append(p.readers, driver.Holder{Acq: t.acq, Version: p.holder.Version, Since: p.now, Until: until, Shared: true})
}

// serve takes a ticket out of the line, and those that nobody has kept alive before it.
func (p *place) serve(i int) {
	seq := p.tickets[i].seq
	p.gone = append(p.gone, seq)
	p.tickets = slices.Delete(p.tickets, i, i+1)
	p.dead = slices.DeleteFunc(p.dead, func(t ticket) bool {
		if t.seq < seq {
			p.gone = append(p.gone, t.seq)
		}
		return t.seq < seq
	})
	p.qhead, p.queued = max(p.qhead, seq), true
}

// close opens the gate of the line if nobody is left in it. Nobody can prolong a
// ticket then that was dead.
func (p *place) close() {
	if len(p.tickets) > 0 || p.more {
		return
	}
	p.queued = p.queued || p.waitUntil != 0
	p.waitUntil = 0
	for _, t := range p.dead {
		p.gone = append(p.gone, t.seq)
	}
	p.dead = nil
}
