package claim_test

import (
	"fmt"
	"strings"

	"github.com/sqllock/sqllock/internal/claim"
)

// label says what a step is.
type label struct {
	what string
	op   op
	who  int8
}

func (l label) String() string {
	s := l.what
	if strings.Contains(s, "%d") {
		s = fmt.Sprintf(s, l.who)
	}
	if l.op != opNone {
		s += ": " + l.op.String()
	}
	return s
}

// successors are the worlds that may come next.
type successors struct {
	o      *options
	labels []label
	worlds []world
	each   func(l label, w *world) // is told of each, before times and tokens are renumbered
}

func (s *successors) add(what string, o op, who int8, w *world) {
	if s.each != nil {
		s.each(label{what, o, who}, w)
	}
	s.labels, s.worlds = append(s.labels, label{what, o, who}), append(s.worlds, *w)
	s.worlds[len(s.worlds)-1].normalize(s.o)
}

// steps returns the worlds that may come next. Without a fault a request is sent, runs and is
// answered in one step: that others come between makes a difference only where they run,
// and they run before or after. What takes longer costs a fault.
func (s *successors) steps(w *world) {
	s.labels, s.worlds = s.labels[:0], s.worlds[:0]
	s.databaseSteps(w)
	s.packetSteps(w)
	for i := range int8(clients) {
		if !w.dead[lockerOfClient(i)] {
			s.clientSteps(w, i)
		}
	}
	s.batchSteps(w)
	for l := range int8(lockers) {
		s.lockerSteps(w, l)
	}
	s.environmentSteps(w)
	s.ticks(w)
}

// databaseSteps go on with what the database has begun.
func (s *successors) databaseSteps(w *world) {
	if w.visit.open {
		x := *w
		if x.endVisit(s.o) {
			s.add("a visit for %d commits", w.visit.p.op, w.visit.p.acq, &x)
		}
	}
	if w.peek.open {
		x := *w
		if x.endPeek(s.o) {
			s.add("the rest is read for %d", w.peek.p.op, w.peek.p.acq, &x)
		}
	}
	for acq := range int8(acqs) {
		if w.guards>>acq&1 == 1 {
			x := *w
			x.guards &^= 1 << acq
			s.add("the transaction that guards %d ends", opNone, acq, &x)
			if x := *w; x.endInTx(s.o, acq) {
				s.add("a transaction ends the term of %d", opNone, acq, &x)
			}
		}
	}
	if s.o.otherPin && !w.visit.open {
		x := *w
		x.otherPin = !x.otherPin
		s.add("a stranger begins to guard, or ends", opNone, 0, &x)
	}
}

// endVisit commits the visit that is open. It reports false if a lock is in its way.
func (w *world) endVisit(o *options) bool {
	if w.waitsForRenewal(&w.visit.p) {
		return false
	}
	v := w.visit
	w.visit = visit{}
	w.commit(o, &v)
	w.hear(o, &v.p)
	return true
}

func noPeek() peek { return peek{seen: tables{lockRow: lockRow{acq: nobody}}} }

// endPeek reads the rest, and visits the name if that is not enough.
func (w *world) endPeek(o *options) bool {
	k := w.peek
	w.peek = noPeek()
	if !w.answeredByPeek(o, &k) {
		if w.visit.open || w.waitsForRenewal(&k.p) {
			return false
		}
		v := w.look(o, &k.p)
		w.commit(o, &v)
		k.p = v.p
	}
	w.hear(o, &k.p)
	return true
}

// packetSteps are about requests and replies that are late.
func (s *successors) packetSteps(w *world) {
	for i := range w.packets {
		p := w.packets[i]
		switch p.reply {
		case unsent:
			if x := *w; p.op != opNone && x.arrive(s.o, i) {
				s.add("a late request of %d arrives", p.op, p.acq, &x)
			}
		case pending:
			x := *w
			x.commitRenewal(&x.packets[i])
			p := x.packets[i]
			x.packets[i] = packet{}
			x.hear(s.o, &p)
			s.add("the renewal of %d commits", opNone, p.acq, &x)
		default:
			x := *w
			x.packets[i] = packet{}
			x.hear(s.o, &p)
			s.add("the late reply to %d is heard", p.op, p.acq, &x)
		}
		if p.op != opNone && p.heard {
			x := *w
			x.unheard(s.o, &x.packets[i])
			if x.packets[i].reply > pending {
				x.packets[i] = packet{}
			}
			s.add("%d waits for a reply no more", p.op, p.acq, &x)
		}
	}
	if w.visit.open && w.visit.p.heard {
		x := *w
		x.unheard(s.o, &x.visit.p)
		s.add("%d waits for its visit no more", w.visit.p.op, w.visit.p.acq, &x)
	}
}

// arrive runs a late request.
func (w *world) arrive(o *options, i int) bool {
	p := w.packets[i]
	w.packets[i] = packet{}
	if !w.execute(o, &p) {
		return false
	}
	w.hear(o, &p)
	return true
}

// request lets a client, or a Locker, send a request, with all that may become of it.
func (s *successors) request(w *world, what string, who int8, p packet) {
	p.sent, p.heard = now, p.acq != nobody && p.op != opForget
	if p.acq != nobody {
		p.by = lockerOf(p.acq)
	}
	if x := *w; x.execute(s.o, &p) {
		answer := p
		x.hear(s.o, &answer)
		s.add(what, p.op, who, &x)
	}
	if s.o.peeksFor(p.op) && !w.peek.open {
		x := *w
		x.peek = w.beginPeek(p.question())
		s.add(what+", reads a part", p.op, who, &x)
	}
	s.faultyRequest(w, what, who, p.question())
}

// question is a packet before it was answered.
func (p packet) question() packet {
	p.reply, p.remaining, p.limit, p.replyToken, p.slot = unsent, 0, 0, 0, 0
	return p
}

// faultyRequest is request for what costs a fault.
func (s *successors) faultyRequest(w *world, what string, who int8, p packet) {
	if x := *w; p.acq != nobody && spend(&x.left.late) && x.keep(p) {
		s.add(what+", late", p.op, who, &x)
	}
	if x, q := *w, p; p.heard && spend(&x.left.lost) && x.execute(s.o, &q) && x.keep(q) {
		s.add(what+", is answered late", p.op, who, &x)
	}
	x := *w
	if !spend(&x.left.slow) {
		return
	}
	if p.op == opRenew {
		if q := p; s.o.kind(p.acq) != claim.Exclusive && x.beginRenewal(s.o, &q) && q.reply == pending && x.keep(q) {
			s.add(what+", commits late", p.op, who, &x)
		}
		return
	}
	if y := *w; w.visit.open || w.waitsForRenewal(&p) || y.fast(s.o, &p) {
		return
	}
	x.visit = w.look(s.o, &p)
	s.add(what+", takes its time", p.op, who, &x)
}

// spend takes one of what may happen. It reports false if none is left.
func spend(left *int8) bool {
	*left--
	return *left >= 0
}

// keep puts a packet among those that are late.
func (w *world) keep(p packet) bool {
	for i := range w.packets {
		if w.packets[i].op == opNone {
			w.packets[i] = p
			return true
		}
	}
	return false
}

// awaits reports that a client, or a renewal of it, awaits a reply.
func (w *world) awaits(acq int8, renewal bool) bool {
	is := func(p *packet) bool {
		return p.op != opNone && p.acq == acq && p.heard && (p.op == opRenew) == renewal
	}
	return is(&w.packets[0]) || is(&w.packets[1]) || is(&w.visit.p) || is(&w.peek.p)
}

// lockerSteps are those of a Locker.
func (s *successors) lockerSteps(w *world, l int8) {
	if w.dead[l] {
		return
	}
	if w.waits(l) && !w.beaten[l] {
		x := *w
		x.beat(l)
		x.hearBeat(s.o, l)
		s.add("Locker %d beats", opNone, l, &x)
		if x := *w; spend(&x.left.lost) {
			x.beat(l)
			s.add("Locker %d beats, hears late", opNone, l, &x)
		}
	}
	if w.beats[l].open {
		x := *w
		x.hearBeat(s.o, l)
		s.add("Locker %d hears its beat", opNone, l, &x)
	}
	if w.moves[l] {
		x := *w
		x.moves[l] = false
		s.request(&x, "Locker %d serves the rest", l, packet{op: opMove, acq: nobody, by: l})
	}
	for acq := range int8(acqs) {
		if s.o.forgets && lockerOf(acq) == l && w.has(acq) { // it may have waited a moment ago
			s.request(w, "somebody forgets %d", acq, packet{op: opForget, acq: acq})
		}
	}
	if x := *w; spend(&x.left.deaths) {
		x.die(l)
		s.add("Locker %d dies", opNone, l, &x)
	}
}

func (w *world) die(locker int8) {
	w.dead[locker] = true
	for i := range int8(clients) {
		if lockerOfClient(i) == locker {
			w.clients[i] = client{used: w.clients[i].used}
		}
	}
	for _, p := range [...]*packet{&w.packets[0], &w.packets[1], &w.visit.p} {
		if p.op == opNone || p.by != locker {
			continue
		}
		p.heard = false
		if p.reply > pending {
			*p = packet{}
		}
	}
	if w.peek.open && w.peek.p.by == locker {
		w.peek = noPeek()
	}
	w.beats[locker], w.moves[locker] = beat{}, false
}

// environmentSteps are those of nobody in particular.
func (s *successors) environmentSteps(w *world) {
	by := int8(0)
	if w.dead[0] {
		by = 1
	}
	if s.o.sweeps && !w.dead[by] {
		x := *w
		s.request(&x, "somebody sweeps", by, packet{op: opSweep, acq: nobody, by: by})
	}
	if w.revokes > 0 && !w.dead[by] && (w.db.acq != nobody || w.db.holding > 0 || w.db.notBefore > now) {
		x := *w
		x.revokes--
		s.request(&x, "somebody revokes", by, packet{op: opRevoke, acq: nobody, by: by})
	}
	if w.resizes > 0 && !w.dead[by] && w.db.permits != 0 {
		x := *w
		x.resizes--
		s.request(&x, "somebody resizes", by, packet{op: opResize, acq: nobody, by: by})
	}
	if x := *w; s.o.sweeps && x.purge() {
		s.add("the reaper deletes the row", opNone, 0, &x)
	}
	if x := *w; spend(&x.left.crashes) {
		x.crash(s.o)
		s.add("the database crashes", opNone, 0, &x)
	}
	if x := *w; !w.visit.open && spend(&x.left.counts) {
		x.db.miscounted = true
		x.db.waiting++
		s.add("somebody counts too many waiters", opNone, 0, &x)
		x = *w
		x.left.counts--
		x.db.miscounted = true
		x.db.holding++
		s.add("somebody counts too many holders", opNone, 0, &x)
	}
	if x := *w; spend(&x.left.steps) {
		x.shiftDatabase(step)
		s.add("the clock of the database steps back", opNone, 0, &x)
	}
}

// purge deletes the row of a name that is idle. A reaper waits for so long that the clock
// is ahead of the version, even if it steps back.
func (w *world) purge() bool {
	d := &w.db
	if w.visit.open || w.left.steps > 0 || d.acq != nobody || d.waiting > 0 || d.holding > 0 || d.notBefore > now || d.version == 0 || d.version >= now {
		return false
	}
	d.lockRow = lockRow{acq: nobody, since: past, expires: past, notBefore: past}
	return true
}

// crash undoes what was not flushed and breaks all connections.
func (w *world) crash(o *options) {
	w.db = w.durable
	for _, p := range [...]*packet{&w.packets[0], &w.packets[1], &w.visit.p, &w.peek.p} {
		if p.op != opNone && p.reply <= pending {
			w.unheard(o, p)
			*p = packet{}
		}
	}
	w.visit, w.peek = visit{}, noPeek()
	w.renewing = [acqs]int8{}
	w.guards, w.otherPin = 0, false
	w.moves = [lockers]bool{}
}

// ticks lets time pass. A Locker that waits has to have beaten before, and nothing that was
// begun may be open; else that costs a fault each.
func (s *successors) ticks(w *world) {
	x := *w
	if w.visit.open && w.visit.now <= now-lag || w.peek.open && w.peek.now <= now-lag {
		return
	}
	for l := range int8(lockers) {
		if w.waits(l) && !w.beaten[l] {
			x.left.silent--
		}
		if w.moves[l] {
			x.moves[l] = false
			x.left.silent--
		}
	}
	if w.peek.open && !w.peek.slow {
		x.peek.slow = true
		x.left.silent--
	}
	if x.left.silent >= 0 {
		x.tick()
		s.add("tick", opNone, 0, &x)
	}
}
