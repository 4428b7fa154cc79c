package claim_test

import "github.com/sqllock/sqllock/internal/claim"

// clientSteps are those that a client takes by itself.
func (s *successors) clientSteps(w *world, i int8) {
	c, acq := &w.clients[i], w.acq(i)
	if c.phase == holding {
		s.holderSteps(w, i)
	}
	if w.awaits(acq, false) {
		return
	}
	switch c.phase {
	case idle:
		s.begin(w, i)
	case trying, adopting, resuming, entering, releasing, detaching, cleaning:
		s.repeat(w, "client %d repeats", i, c.phase)
	case wanting:
		if w.lives[lockerOfClient(i)] > now {
			s.repeat(w, "client %d enters the queue", i, entering)
		}
	case waiting:
		s.repeat(w, "client %d asks again", i, waiting)
		x := *w
		x.clients[i].unknown = true // whether it was granted meanwhile
		x.clients[i].phase = cleaning
		s.add("client %d stops waiting", opNone, i, &x)
	}
	switch c.phase {
	case trying, adopting, resuming, wanting, entering:
		s.giveUp(w, i)
	}
}

// requestOf is what a client sends in a phase.
func requestOf(p phase) op {
	switch p {
	case trying:
		return opTry
	case entering, waiting:
		return opEnter
	case adopting:
		return opAdopt
	case resuming:
		return opResume
	case releasing:
		return opRelease
	case detaching:
		return opDetach
	case cleaning:
		return opWithdraw
	}
	return opNone
}

// repeat lets a client enter a phase, and send what belongs to it, perhaps once more.
func (s *successors) repeat(w *world, what string, i int8, p phase) {
	x := *w
	c := &x.clients[i]
	c.phase = p
	s.request(&x, what, i, packet{op: requestOf(p), acq: w.acq(i), token: c.token, guarded: c.guarded})
}

// giveUp lets a client end its request without success.
func (s *successors) giveUp(w *world, i int8) {
	x := *w
	x.finish(i)
	s.add("client %d gives up", opNone, i, &x)
}

// begin lets a client make its next request.
func (s *successors) begin(w *world, i int8) {
	o, x := s.o, *w
	c := &x.clients[i]
	if o.requests > 0 && c.used >= o.requests || !x.newAcquisition(i) {
		return
	}
	if o.requests > 0 {
		c.used++
	}
	acq := x.acq(i)
	if o.resume && i == 2 && w.mayResume(i) {
		y := x
		y.clients[i].phase, y.clients[i].token = resuming, w.db.version
		s.request(&y, "client %d follows", i, packet{op: opResume, acq: acq, token: w.db.version})
	}
	if o.detach && i == 2 {
		if w.keyUsed {
			c.phase = adopting
			s.request(&x, "client %d adopts", i, packet{op: opAdopt, acq: acq})
		}
		return
	}
	if !o.tries[i] {
		c.phase = wanting
		s.add("client %d wants the name", opNone, i, &x)
	}
	c.phase = trying
	s.request(&x, "client %d tries", i, packet{op: opTry, acq: acq})
}

// newAcquisition gives a client an acquisition that nothing in the world is about.
func (w *world) newAcquisition(i int8) bool {
	used := w.mentioned()
	for slot := range int8(slots) {
		if used>>(i*slots+slot)&1 == 0 {
			w.clients[i].slot = slot
			return true
		}
	}
	return false
}

// holderSteps are those of a client that believes, or did believe, that it holds.
func (s *successors) holderSteps(w *world, i int8) {
	o, c, acq := s.o, &w.clients[i], w.acq(i)
	if now >= c.trust {
		x := *w
		x.finish(i)
		s.add("client %d has lost the name", opNone, i, &x)
	} else if !w.awaits(acq, true) {
		s.request(w, "client %d renews", i, packet{op: opRenew, acq: acq, token: c.token})
	}
	x := *w
	x.clients[i].phase = releasing
	s.request(&x, "client %d unlocks", i, packet{op: opRelease, acq: acq, token: c.token, guarded: c.guarded})
	if o.detach && i == 0 && !w.keyUsed {
		x := *w
		x.keyUsed, x.clients[i].phase = true, detaching
		s.request(&x, "client %d detaches", i, packet{op: opDetach, acq: acq, token: c.token})
	}
	if o.guards>>i&1 == 1 && now < c.trust {
		x := *w
		x.clients[i].guarded = true
		x.guard(acq, c.token)
		s.add("client %d guards", opNone, i, &x)
	}
	if o.resume && i == 0 {
		s.restart(w, i)
	}
}

// guard begins a transaction that guards a term, if there is one and no lock is in the way.
func (w *world) guard(acq, token int8) {
	if w.db.acq == acq && w.db.version == token && w.db.expires > now && (!w.visit.open || w.visit.pinned) {
		w.guards |= 1 << acq
	}
	if c := &w.db.claims[acq]; c.state == hasTerm && c.token == token && c.expires > now && (!w.visit.open || w.visit.locks>>acq&1 == 0) {
		w.guards |= 1 << acq
	}
}

// endInTx lets the transaction that guards a term end it and commit. It reports false if
// the transaction cannot: it passes over a row that is locked. What the client does next is
// what it does after a commit without a reply.
func (w *world) endInTx(o *options, acq int8) bool {
	c := &w.clients[acq/slots]
	if w.visit.open || w.otherPin || w.acq(acq/slots) != acq || c.phase != holding || o.kind(acq) != claim.Exclusive {
		return false
	}
	row, x := w.db.row(o), w.db
	mine := x.acq == acq && x.version == c.token
	kept := x.since + o.minHold[acq/slots]
	if row.End(idOf(acq), int64(c.token), int64(o.minHold[acq/slots]), int64(now)) != mine {
		w.fail(fastDiffers)
	}
	if !mine {
		return false
	}
	w.db.set(&row)
	x.acq, x.expires, x.limit, x.delay, x.ended = nobody, min(x.expires, now), 0, 0, claim.Released
	if o.minHold[acq/slots] > 0 && kept > now {
		x.notBefore = max(x.notBefore, kept)
	}
	if w.db != x || row.Locker != idOf(nobody) || row.Holds != 0 { // what is counted is as it was
		w.fail(badRow)
	}
	w.guards &^= 1 << acq
	c.phase, c.unknown = cleaning, true
	return true
}

// restart lets a client forget its term, and resume that of whoever holds the name.
func (s *successors) restart(w *world, i int8) {
	x := *w
	for _, p := range [...]*packet{&x.packets[0], &x.packets[1], &x.visit.p, &x.peek.p} {
		if p.op != opNone && p.acq == x.acq(i) {
			p.heard = false
			if p.reply > pending {
				*p = packet{}
			}
		}
	}
	used := x.clients[i].used
	if !x.newAcquisition(i) || !x.mayResume(i) {
		return
	}
	x.clients[i] = client{phase: resuming, slot: x.clients[i].slot, used: used, token: x.db.version}
	s.add("client %d is restarted", opNone, i, &x)
}

// mayResume reports that somebody holds the name whose place a client may take: not
// another process of the same owner that lives.
func (w *world) mayResume(i int8) bool {
	switch {
	case w.db.acq == nobody || w.db.acq == key:
		return false
	case i == 2:
		return w.dead[0]
	}
	return w.db.acq/slots != 2
}

// hear gives a client the reply to a packet.
func (w *world) hear(o *options, p *packet) {
	if p.acq == nobody || !p.heard {
		return
	}
	n := p.acq / slots
	c := &w.clients[n]
	if w.dead[lockerOf(p.acq)] || w.acq(n) != p.acq || c.phase == idle {
		return
	}
	acquires := c.phase == trying || c.phase == entering || c.phase == waiting || c.phase == adopting || c.phase == resuming
	switch p.reply {
	case granted:
		if acquires {
			w.becomeHolder(p)
		}
	case refused:
		switch {
		case c.phase == adopting || acquires && o.tries[n]:
			w.finish(n)
		case c.phase == trying || c.phase == resuming:
			c.phase = wanting
		}
	case mismatch:
		if acquires {
			w.finish(n)
		}
	case queued:
		if c.phase == entering {
			c.phase = waiting
		}
	case done, over, busy:
		w.heardEnd(o, n, p)
	}
}

// heardEnd is hear for what is not an acquisition.
func (w *world) heardEnd(o *options, n int8, p *packet) {
	c := &w.clients[n]
	switch {
	case p.op == opRenew && c.phase == holding && p.reply == over:
		w.finish(n)
	case p.op == opRenew && c.phase == holding && now < c.trust: // loss is sticky
		c.trust = max(c.trust, p.sent+p.remaining)
		if c.limit != 0 {
			c.trust = min(c.trust, c.limit)
		}
	case p.op == opRelease && c.phase == releasing, p.op == opDetach && c.phase == detaching:
		if p.reply == busy {
			c.phase, c.trust = holding, now // whether it may go on, its renewal says: here it may not
			return
		}
		w.finish(n)
	case p.op == opWithdraw && c.phase == cleaning && p.reply == done && p.sent >= c.until:
		c.unknown = false
		w.finish(n)
	}
}

// becomeHolder makes a client a holder, if it is not too late.
func (w *world) becomeHolder(p *packet) {
	c := &w.clients[p.acq/slots]
	c.trust, c.token, c.permit, c.phase = p.sent+p.remaining, p.replyToken, p.slot, holding
	if p.limit != 0 {
		c.limit = p.sent + p.limit
	}
	if c.trust <= now {
		c.phase, c.unknown = cleaning, true
	}
}

// finish ends a call as far as its caller sees.
func (w *world) finish(n int8) {
	c := &w.clients[n]
	if c.unknown {
		c.phase = cleaning
		return
	}
	*c = client{used: c.used, slot: c.slot}
}

// unheard makes a client stop waiting for a reply.
func (w *world) unheard(o *options, p *packet) {
	heard := p.heard
	p.heard = false
	if p.acq == nobody || !heard || w.acq(p.acq/slots) != p.acq {
		return
	}
	n := p.acq / slots
	c := &w.clients[n]
	if p.op == opTry || p.op == opEnter || p.op == opAdopt || p.op == opResume {
		c.unknown = true
		c.until = max(c.until, p.sent+o.ttl[n]+o.delay[n])
	}
}

// waits reports whether a Locker has to keep its waiter row alive.
func (w *world) waits(locker int8) bool {
	if w.dead[locker] {
		return false
	}
	for i := range int8(clients) {
		if lockerOfClient(i) == locker && w.clients[i].phase >= wanting && w.clients[i].phase <= waiting {
			return true
		}
	}
	return false
}

// beat keeps a waiter row alive and reads the Locker's claims with it.
func (w *world) beat(locker int8) {
	b := beat{open: true, sent: now}
	w.db.beats[locker] = max(w.db.beats[locker], now+life)
	w.beaten[locker] = true
	for i := range int8(clients) {
		acq := w.acq(i)
		if lockerOfClient(i) != locker || w.clients[i].phase != waiting || w.awaits(acq, false) {
			continue
		}
		b.waited |= 1 << acq
		f := &b.read[acq]
		switch c := &w.db.claims[acq]; {
		case w.db.acq == acq:
			*f = found{hasTerm, w.db.expires - now, w.db.limit, w.db.version, 0}
		case c.state == hasTerm:
			*f = found{hasTerm, c.expires - now, c.limit, c.token, c.slot}
		default:
			f.state = c.state
		}
		if f.limit != 0 {
			f.limit -= now
		}
	}
	w.beats[locker] = b
}

// hearBeat compares what the database has with what the Locker knows.
func (w *world) hearBeat(o *options, locker int8) {
	b := w.beats[locker]
	w.beats[locker] = beat{}
	w.lives[locker] = max(w.lives[locker], b.sent+life)
	for acq := range int8(acqs) {
		c := &w.clients[acq/slots]
		if b.waited>>acq&1 == 0 || c.phase != waiting || w.acq(acq/slots) != acq || w.awaits(acq, false) {
			continue
		}
		switch f := &b.read[acq]; f.state {
		case none:
			c.phase = wanting
		case hasTerm:
			g := packet{acq: acq, sent: b.sent, remaining: o.worth(acq, f.remaining), replyToken: f.token, slot: f.permit}
			if f.limit != 0 {
				g.limit = max(o.worth(acq, f.limit), 1)
			}
			w.becomeHolder(&g)
		}
	}
}
