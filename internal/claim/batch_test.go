package claim_test

import "github.com/sqllock/sqllock/internal/claim"

// batchSteps let clients 0 and 1 share a visit, with requests of one kind.
func (s *successors) batchSteps(w *world) {
	if !s.o.batches || w.dead[0] || w.visit.open {
		return
	}
	x := *w
	var ps [2]packet
	for i := range ps {
		if !x.next(s.o, int8(i), &ps[i]) {
			return
		}
	}
	if ps[0].op != ps[1].op || w.waitsForRenewal(&ps[0]) || w.waitsForRenewal(&ps[1]) {
		return
	}
	x.commitBatch(s.o, &ps)
	for i := range ps {
		x.hear(s.o, &ps[i])
	}
	s.add("clients 0 and 1 in one visit", ps[0].op, 0, &x)
}

// next is what a client may ask for next.
func (w *world) next(o *options, i int8, p *packet) bool {
	c := &w.clients[i]
	if w.awaits(w.acq(i), false) {
		return false
	}
	switch c.phase {
	case idle:
		if o.requests > 0 && c.used >= o.requests || !w.newAcquisition(i) {
			return false
		}
		if o.requests > 0 {
			c.used++
		}
		p.op, c.phase = opTry, trying
	case wanting:
		if w.lives[0] <= now {
			return false
		}
		p.op, c.phase = opEnter, entering
	case waiting:
		p.op = opEnter
	case holding:
		p.op, p.token, c.phase = opRelease, c.token, releasing
	case cleaning:
		p.op = opWithdraw
	default:
		return false
	}
	p.acq, p.sent, p.heard, p.guarded = w.acq(i), now, true, c.guarded
	return true
}

// commitBatch runs two requests in one visit.
func (w *world) commitBatch(o *options, ps *[2]packet) {
	v := w.look(o, &ps[0])
	if second := w.look(o, &ps[1]); ps[1].guarded {
		v.locks = second.locks
	}
	before := w.db
	rs, why := w.decideBatch(o, &v, ps, o.window)
	if rs[1].usedUp {
		w.db = before
		rs, why = w.decideBatch(o, &v, ps, o.window+1)
	}
	w.fail(why)
	all := &rs[1].changes
	if all.Changed != (w.db != before) {
		w.fail(badChanged)
	}
	w.top = max(w.top, w.db.version)
	w.moves[0] = w.moves[0] || rs[1].usedUp
	if all.Durable {
		w.flush()
	}
	for i := range ps {
		w.replyTo(o, &ps[i], &rs[i], now)
	}
	for _, t := range all.HandOvers {
		if acq := acqOf(t.Acq); acq != ps[0].acq && acq != ps[1].acq {
			w.fail(notifiedWrongly) // there is no third client on this Locker
		}
	}
}

// decideBatch is decide for two requests. It judges each of them.
func (w *world) decideBatch(o *options, v *visit, ps *[2]packet, k int8) (rs [2]result, why wrong) {
	v.p = ps[0]
	set, readTo := w.visible(o, v, k)
	c := v.newVisit(o, w.db.row(o), w.db.rows(o, set))
	c.ReadTo = readTo
	before, top := w.db, w.top
	var previous claim.Changes
	for i := range ps {
		v.p = ps[i]
		was, all := w.db, before
		rs[i] = v.operate(o, &w.db, c)
		rs[i].changes, rs[i].usedUp = c.Changes(), c.UsedUp()
		if bad := all.write(o, &rs[i].changes); why == right {
			why = bad
		}
		w.db = all
		r := rs[i]
		r.changes.HandOvers, r.changes.Wakes = r.changes.HandOvers[len(previous.HandOvers):], r.changes.Wakes[len(previous.Wakes):]
		r.changes.Crashed = r.changes.Crashed[len(previous.Crashed):]
		e := effect{o: o, v: v, r: &r, before: &was, after: &all}
		if i == 1 {
			r.changes.Changed = was != all
			r.changes.Durable = r.changes.Durable && (!previous.Durable || e.tells())
		}
		if bad := e.judge(top); why == right {
			why = bad
		}
		top, previous = max(top, all.version), rs[i].changes
	}
	return rs, why
}
