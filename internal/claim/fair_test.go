package claim_test

// fairSteps is how many steps a world takes at most to come to rest.
const fairSteps = 300

// quiet is the world without any further fault.
func (w *world) quiet() world {
	x := *w
	x.left, x.revokes, x.resizes, x.otherPin = faults{}, 0, 0, false
	return x
}

// fairStep takes one step that brings a world to rest: what was sent arrives, transactions
// end, holders unlock, waiters wait and beat. It reports false if the world is at rest.
func (w *world) fairStep(o *options) bool {
	if w.fairPackets(o) || w.fairLockers(o) {
		return true
	}
	for i := range int8(clients) {
		if !w.dead[lockerOfClient(i)] && w.fairClient(o, i) {
			return true
		}
	}
	return w.fairTick(o)
}

// fairPackets ends what is open and delivers what is late.
func (w *world) fairPackets(o *options) bool {
	for i := range w.packets {
		p := w.packets[i]
		switch {
		case p.op == opNone:
			continue
		case p.reply == pending:
			w.commitRenewal(&p)
		case p.reply == unsent && w.visit.open:
			continue
		case p.reply == unsent:
			return w.arrive(o, i)
		}
		w.packets[i] = packet{}
		w.hear(o, &p)
		return true
	}
	switch {
	case w.visit.open:
		return w.endVisit(o)
	case w.peek.open:
		return w.endPeek(o)
	case w.guards != 0:
		w.guards = 0
		return true
	}
	return false
}

// fairLockers lets Lockers go on with what they have begun.
func (w *world) fairLockers(o *options) bool {
	for l := range int8(lockers) {
		switch {
		case w.dead[l]:
		case w.beats[l].open:
			w.hearBeat(o, l)
			return true
		case w.moves[l]:
			w.moves[l] = false
			return w.execute(o, &packet{op: opMove, acq: nobody, by: l, sent: now})
		case w.waits(l) && !w.beaten[l]:
			w.beat(l)
			w.hearBeat(o, l)
			return true
		}
	}
	return false
}

// fairClient lets a client go on with what it has begun.
func (w *world) fairClient(o *options, i int8) bool {
	c := &w.clients[i]
	switch {
	case c.phase == idle || c.phase == waiting || c.phase == cleaning && now < c.until:
		return false
	case c.phase == holding && now >= c.trust:
		w.finish(i)
		return true
	case c.phase == holding:
		c.phase = releasing
	case c.phase == wanting:
		c.phase = entering
	}
	w.fairRequest(o, i, packet{op: requestOf(c.phase), token: c.token})
	return true
}

func (w *world) fairRequest(o *options, i int8, p packet) {
	p.acq, p.by, p.sent, p.heard, p.guarded = w.acq(i), lockerOfClient(i), now, true, w.clients[i].guarded
	w.execute(o, &p)
	w.hear(o, &p)
}

// fairTick lets a tick pass, in which every waiter asks again, unless there is nothing left
// to wait for.
func (w *world) fairTick(o *options) bool {
	busy := w.db.acq != nobody || w.db.waiting != 0 || w.db.holding != 0 || w.db.notBefore > now
	for i := range w.clients {
		busy = busy || w.clients[i].phase != idle
	}
	if !busy {
		return false
	}
	w.tick()
	for i := range int8(clients) {
		if w.clients[i].phase == waiting {
			w.fairRequest(o, i, packet{op: opEnter})
		}
	}
	by := int8(0)
	if w.dead[0] {
		by = 1
	}
	w.execute(o, &packet{op: opSweep, acq: nobody, by: by, sent: now})
	return true
}

// atRest reports what is wrong with a world in which nobody does anything.
func (w *world) atRest(o *options) string {
	row := w.db.row(o)
	if !row.Grant(o.request(0), int64(now)) {
		return "the name cannot be granted any more"
	}
	return w.broken(o)
}
