package claim_test

import (
	"bytes"
	"math/bits"
	"slices"

	"github.com/sqllock/sqllock/internal/claim"
)

// tick lets a tick pass: all times are earlier by one, seen from now. So are tokens that a visit which
// has read the clock before may come to.
func (w *world) tick() {
	if w.visit.open {
		w.eachNumber(func(token *int8) { shift(token, -1) }, func(*int8) {})
	}
	w.shiftDatabase(-1)
	for i := range w.clients {
		c := &w.clients[i]
		c.trust, c.until = c.trust-1, c.until-1
		shift(&c.limit, -1)
	}
	for i := range w.packets {
		w.packets[i].sent--
	}
	w.visit.p.sent, w.peek.p.sent = w.visit.p.sent-1, w.peek.p.sent-1
	for l := range w.beats {
		w.beats[l].sent--
		w.lives[l]--
		w.beaten[l] = false
	}
}

// shiftDatabase moves all times of the database, as seen from its clock.
func (w *world) shiftDatabase(by int8) {
	w.db.shift(by)
	w.durable.shift(by)
	w.peek.seen.shift(by)
	w.visit.now, w.peek.now = w.visit.now+by, w.peek.now+by
	for acq := range w.renewing {
		shift(&w.renewing[acq], by)
	}
}

func (r *lockRow) shift(by int8) {
	r.since, r.expires, r.notBefore = r.since+by, r.expires+by, r.notBefore+by
	shift(&r.limit, by)
}

func (d *tables) shift(by int8) {
	d.lockRow.shift(by)
	for acq := range d.claims {
		if c := &d.claims[acq]; c.state != none {
			c.since, c.expires = c.since+by, c.expires+by
			shift(&c.limit, by)
		}
	}
	for l := range d.beats {
		d.beats[l] += by
	}
}

// shift moves a time unless it is 0, which is none.
func shift(t *int8, by int8) {
	if *t != 0 {
		*t += by
	}
}

// normalize makes worlds equal that differ in nothing that matters.
func (w *world) normalize(o *options) {
	w.clear(o)
	w.forget(o)
	w.renumber()
	w.relabelSlots()
	if o.alike {
		x := *w
		x.exchange()
		x.sortPackets()
		w.sortPackets()
		if bytes.Compare(x.bytes(), w.bytes()) < 0 {
			*w = x
		}
		return
	}
	w.sortPackets()
}

// clear empties what nobody reads any more.
func (w *world) clear(o *options) {
	if w.left.crashes == 0 {
		w.durable = tables{lockRow: lockRow{acq: nobody}}
	}
	if !w.visit.open {
		w.visit = visit{}
	}
	if !w.peek.open {
		w.peek = noPeek()
	} else if o.peeks != claimsFirst {
		w.peek.seen.claims, w.peek.seen.beats = [acqs]claimRow{}, [lockers]int8{}
	} else {
		w.peek.seen.lockRow = lockRow{acq: nobody}
	}
	for l := range w.beats {
		if !w.beats[l].open {
			w.beats[l] = beat{}
		}
		if !w.waits(int8(l)) {
			w.beaten[l] = false
		}
	}
	for i := range w.clients {
		w.clients[i].clear()
	}
	for i := range w.packets {
		if w.packets[i].op == opNone {
			w.packets[i] = packet{}
		}
	}
}

// clear empties what a client in its phase does not look at.
func (c *client) clear() {
	if c.phase != holding {
		c.trust, c.permit, c.limit = past, 0, 0
	}
	switch c.phase {
	case holding, releasing, detaching:
	case cleaning:
		c.token = 0
	case resuming:
		c.guarded = false
	default:
		c.token, c.guarded = 0, false
	}
}

// forget makes all times equal that are over.
func (w *world) forget(o *options) {
	over := now // nothing compares times of the database before it
	if w.left.steps > 0 {
		over -= step
	}
	if w.visit.open || w.peek.open {
		over -= lag + step
	}
	w.db.forget(o, over)
	w.durable.forget(o, over)
	w.peek.seen.forget(o, over)
	for acq := range w.renewing {
		floor(&w.renewing[acq], over)
	}
	heard := now
	for i := range w.packets {
		if p := &w.packets[i]; p.op != opNone {
			heard = now - lag - step
			p.sent = max(p.sent, heard)
		}
	}
	if w.visit.open || w.peek.open {
		heard = now - lag - step
	}
	for i := range w.clients {
		c := &w.clients[i]
		c.trust, c.until = max(c.trust, now), max(c.until, heard)
		floor(&c.limit, now)
	}
	for l := range w.lives {
		w.lives[l] = max(w.lives[l], now)
		if b := &w.beats[l]; b.open {
			b.sent = max(b.sent, now-lag-step)
		}
	}
}

// floor makes a time later, unless it is 0, which is none.
func floor(t *int8, earliest int8) {
	if *t != 0 {
		*t = max(*t, earliest)
	}
}

func (r *lockRow) forget(o *options, over int8) {
	r.since, r.expires, r.notBefore = max(r.since, over-o.longest), max(r.expires, over), max(r.notBefore, over)
	floor(&r.limit, over)
}

func (d *tables) forget(o *options, over int8) {
	d.lockRow.forget(o, over)
	for acq := range d.claims {
		c := &d.claims[acq]
		switch c.state {
		case none:
			continue
		case waits:
			c.since, c.expires = over, over
		case hasTerm:
			c.since, c.expires = max(c.since, over-o.longest), max(c.expires, over)
		}
		floor(&c.limit, over)
	}
	for l := range d.beats {
		d.beats[l] = max(d.beats[l], over-gone)
	}
}

// renumber renumbers tokens, and positions in the queue. Those that a request of now, or an open visit,
// may come to keep their distance from its clock.
func (w *world) renumber() {
	clock := now
	if w.visit.open {
		clock = min(clock, w.visit.now)
	}
	tokens, positions := &numbers{}, &numbers{}
	w.eachNumber(tokens.note, positions.note)
	tokens.renumber(clock - 1)
	positions.renumber(now - 1)
	w.eachNumber(tokens.replace, positions.replace)
}

// eachNumber calls token and position with each number.
func (w *world) eachNumber(token, position func(*int8)) {
	for _, d := range [...]*tables{&w.db, &w.durable, &w.peek.seen} {
		token(&d.version)
		token(&d.revoked)
		position(&d.seq)
		for acq := range d.claims {
			if c := &d.claims[acq]; c.state != none {
				token(&c.token)
				position(&c.seq)
			}
		}
	}
	for _, p := range [...]*packet{&w.visit.p, &w.peek.p, &w.packets[0], &w.packets[1]} {
		token(&p.token)
		token(&p.replyToken)
	}
	for i := range w.clients {
		token(&w.clients[i].token)
	}
	for l := range w.beats {
		if w.beats[l].open {
			for acq := range w.beats[l].read {
				token(&w.beats[l].read[acq].token)
			}
		}
	}
	token(&w.top)
	token(&w.revoked)
}

// numbers are some numbers and what they become. 0 is none.
type numbers struct {
	set [2]uint64
	is  [128]int8
}

func (n *numbers) note(v *int8) { n.set[*v>>6] |= 1 << (*v & 63) }

func (n *numbers) replace(v *int8) { *v = n.is[*v] }

// renumber gives the highest number its place, but none below lowest, and the others those below it.
func (n *numbers) renumber(lowest int8) {
	n.set[0] &^= 1
	next := int8(0)
	for part := 1; part >= 0; part-- {
		for set := n.set[part]; set != 0; {
			v := 63 - bits.LeadingZeros64(set)
			set &^= 1 << v
			v += part * 64
			if next == 0 {
				next = min(max(int8(v), lowest), now+1)
			}
			n.is[v] = next
			next--
		}
	}
}

// sortPackets puts packets in an order of their own.
func (w *world) sortPackets() {
	slices.SortFunc(w.packets[:], func(a, b packet) int { return bytes.Compare(a.bytes(), b.bytes()) })
}

// relabelSlots gives each client's current acquisition the first slot, and what is left of
// an earlier one the second.
func (w *world) relabelSlots() {
	used := w.mentioned()
	for i := range int8(clients) {
		c := &w.clients[i]
		first, second := i*slots, i*slots+1
		current := c.phase != idle
		if !current {
			c.slot = 0
		}
		if current && c.slot == 1 || !current && used>>first&1 == 0 && used>>second&1 == 1 {
			w.swap(first, second)
			c.slot = 0
		}
	}
}

// mentioned are the acquisitions that something in the world is about, apart from the
// clients themselves.
func (w *world) mentioned() (set uint8) {
	add := func(acq int8) {
		if acq != nobody {
			set |= 1 << acq
		}
	}
	for _, d := range [...]*tables{&w.db, &w.durable, &w.peek.seen} {
		add(d.acq)
		for acq := range d.claims {
			if d.claims[acq].state != none {
				set |= 1 << acq
			}
		}
	}
	for acq := range w.renewing {
		if w.renewing[acq] != 0 {
			set |= 1 << acq
		}
	}
	set |= w.visit.locks
	for _, p := range [...]*packet{&w.visit.p, &w.peek.p, &w.packets[0], &w.packets[1]} {
		if p.op != opNone {
			add(p.acq)
		}
	}
	for l := range w.beats {
		if w.beats[l].open {
			set |= w.beats[l].waited
		}
	}
	return set | w.guards
}

// swap exchanges two acquisitions in all positions but the clients themselves.
func (w *world) swap(a, b int8) {
	acq := func(p *int8) {
		switch *p {
		case a:
			*p = b
		case b:
			*p = a
		}
	}
	set := func(p *uint8) {
		if (*p>>a^*p>>b)&1 == 1 {
			*p ^= 1<<a | 1<<b
		}
	}
	for _, d := range [...]*tables{&w.db, &w.durable, &w.peek.seen} {
		acq(&d.acq)
		d.claims[a], d.claims[b] = d.claims[b], d.claims[a]
	}
	w.renewing[a], w.renewing[b] = w.renewing[b], w.renewing[a]
	for _, p := range [...]*packet{&w.visit.p, &w.peek.p, &w.packets[0], &w.packets[1]} {
		if p.op != opNone {
			acq(&p.acq)
		}
	}
	set(&w.visit.locks)
	for l := range w.beats {
		r := &w.beats[l].read
		r[a], r[b] = r[b], r[a]
		set(&w.beats[l].waited)
	}
	set(&w.guards)
}

// exchange exchanges clients 0 and 1, who belong to the same Locker.
func (w *world) exchange() {
	for slot := range int8(slots) {
		w.swap(slot, slots+slot)
	}
	w.clients[0], w.clients[1] = w.clients[1], w.clients[0]
}

// prepare works out what follows from options.
func (o *options) prepare() {
	o.longest = max(o.minHold[0], o.minHold[1], o.minHold[2])
	for i := range o.permits {
		if o.kinds[i] != claim.Permit {
			o.permits[i] = 0
		}
	}
	for acq := range int8(acqs) {
		o.reqs[acq] = o.newRequest(acq)
	}
	o.alike = !o.detach && !o.resume && o.kinds[0] == o.kinds[1] && o.tries[0] == o.tries[1] && o.ttl[0] == o.ttl[1] &&
		o.minHold[0] == o.minHold[1] && o.delay[0] == o.delay[1] && o.maxHold[0] == o.maxHold[1] && o.permits[0] == o.permits[1] &&
		o.guards&1 == o.guards>>1&1
}
