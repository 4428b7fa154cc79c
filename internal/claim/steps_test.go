package claim_test

import (
	"fmt"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/claim"
)

// send puts a packet on its way. It reports false if there are too many.
func (w *world) send(p packet) bool {
	for i := range w.packets {
		if w.packets[i].op == opNone {
			p.sent = w.now
			w.packets[i] = p
			return true
		}
	}
	return false
}

// awaits reports that a reply to an operation of an acquisition is still to be heard.
func (w *world) awaits(o op, acq int8) bool {
	for i := range w.packets {
		if p := &w.packets[i]; p.op == o && p.acq == acq && p.heard {
			return true
		}
	}
	p := &w.visit.p
	return w.visit.stage > 0 && p.op == o && p.acq == acq && p.heard
}

// underWay reports that there is such an operation, heard or not.
func (w *world) underWay(o op) bool {
	for i := range w.packets {
		if w.packets[i].op == o {
			return true
		}
	}
	return w.visit.stage > 0 && w.visit.p.op == o
}

func (w *world) flush() { w.durable = w.db }

// arrive runs a packet as far as its first atomic step goes. It reports false if a lock
// is in its way.
func (w *world) arrive(o *options, i int) bool {
	p := w.packets[i]
	if p.op == opRenew && o.kind(p.acq) != claim.Exclusive {
		return w.renewClaim(o, i)
	}
	if w.visit.stage != 0 {
		return false
	}
	row := w.db.row()
	now := int64(w.now)
	switch {
	case p.op == opRenew:
		p.reply = over
		expired := w.db.expires <= w.now
		if row.Renew(idOf(p.acq), int64(p.token), o.request(p.acq).TTL, 1, now) {
			p.reply = done
			w.db.setRow(row)
			w.flush()
			if expired {
				w.wrong = revived
			}
		}
	case p.op == opTry && o.kind(p.acq) == claim.Exclusive && w.fastGrant(o, &p, row, now):
	case p.op == opTry && o.kind(p.acq) == claim.Exclusive && w.db.acq != nobody && w.db.expires > w.now:
		p.reply = refused
		if w.db.acq == p.acq {
			w.grantReply(o, &p, w.db.version, 0, w.db.expires, w.now)
		}
	case p.op == opRelease && o.kind(p.acq) == claim.Exclusive && w.fastFree(o, &p, row, now):
	default:
		w.packets[i] = packet{}
		w.visit = visit{stage: 1, p: p}
		return true
	}
	w.packets[i] = p
	w.answered(i)
	return true
}

func (w *world) fastGrant(o *options, p *packet, row claim.Row, now int64) bool {
	before := w.db
	q := o.request(p.acq)
	if !row.Grant(&q, now) {
		return false
	}
	w.db.setRow(row)
	w.flush()
	w.judge(o, &before, w.now, 3, false)
	w.grantReply(o, p, w.db.version, 0, w.db.expires, w.now)
	return true
}

func (w *world) fastFree(o *options, p *packet, row claim.Row, now int64) bool {
	minHold := o.minHold[p.acq/requests]
	if !row.Free(idOf(p.acq), int64(p.token), int64(minHold), now) {
		return false
	}
	w.keep(w.db.since + minHold)
	w.db.setRow(row)
	p.reply = done
	for _, c := range w.db.claims {
		if c.there && c.state == claim.Waiting {
			w.wrong = leftIdle
		}
	}
	return true
}

func (w *world) keep(until int8) {
	if until > w.now {
		w.kept = max(w.kept, until)
	}
}

// renewClaim is the first half of a renewal of a claim: its row is written and locked.
func (w *world) renewClaim(o *options, i int) bool {
	p := &w.packets[i]
	if w.renewing[p.acq] != 0 || w.visit.stage == 2 && w.visit.locks>>p.acq&1 == 1 {
		return false
	}
	for _, c := range w.db.rows(o) {
		if c.Acq == idOf(p.acq) && c.Renew(int64(p.token), o.request(p.acq).TTL, 1, int64(w.now)) {
			w.renewing[p.acq] = int8(c.Expires)
			if w.db.claims[p.acq].expires <= w.now {
				w.wrong = revived
			}
			p.reply = pending
			return true
		}
	}
	p.reply = over
	w.answered(i)
	return true
}

// commitRenewal is the second half.
func (w *world) commitRenewal(acq int8) {
	c := &w.db.claims[acq]
	there := c.there && c.state == claim.Holding
	if there {
		c.expires = max(c.expires, w.renewing[acq])
	}
	w.renewing[acq] = 0
	w.flush()
	for i := range w.packets {
		if p := &w.packets[i]; p.op == opRenew && p.acq == acq && p.reply == pending {
			p.reply = done // what it was told is what it wrote
			w.answered(i)
		}
	}
}

// answered forgets a packet whose reply nobody hears.
func (w *world) answered(i int) {
	if !w.packets[i].heard {
		w.packets[i] = packet{}
	}
}

func (w *world) grantReply(o *options, p *packet, token int8, slot int, expires, now int8) {
	p.reply, p.replyToken, p.slot = granted, token, int8(slot)
	p.remaining = expires - now - o.delay[p.acq/requests]
}

// read is the later statement of a visit: it reads the clock and the claims, and locks
// those that it may end. It reports false if a lock is in its way.
func (w *world) read(o *options) bool {
	v := &w.visit
	ends := uint8(0) // what it ends for certain
	switch v.p.op {
	case opRelease, opWithdraw:
		ends = 1 << v.p.acq
	case opRevoke:
		ends = 1<<acqs - 1
	}
	for acq := range int8(acqs) {
		if ends>>acq&1 == 1 && w.renewing[acq] != 0 {
			return false
		}
	}
	v.stage, v.now, v.locks = 2, w.now, ends
	for acq := range int8(acqs) {
		if c := w.db.claims[acq]; c.there && c.state == claim.Holding && w.renewing[acq] == 0 && c.expires <= w.now {
			v.dead |= 1 << acq
		}
	}
	v.locks |= v.dead
	for locker := range int8(lockers) {
		if w.db.beats[locker] > w.now {
			v.alive |= 1 << locker
		}
	}
	return true
}

// commit decides and writes.
func (w *world) commit(o *options) {
	x := w.visit
	w.visit = visit{}
	p := x.p
	v := claim.NewVisit(w.db.row(), w.db.rows(o))
	v.Now = int64(x.now)
	v.By = lockerID(lockerOf(p.acq))
	v.Locked = func(id driver.ID) bool { return x.locks>>acqOf(id)&1 == 1 }
	v.Alive = func(id driver.ID) bool { return x.alive>>(id[0]-100)&1 == 1 }
	minHold := int64(o.minHold[p.acq/requests])
	since := w.since(p.acq)
	var a claim.Answer
	switch p.op {
	case opTry, opEnter:
		q := o.request(p.acq)
		q.Waits = p.op == opEnter
		a = v.Acquire(q)
	case opRelease:
		p.reply = over
		if freed, _ := v.Release(idOf(p.acq), int64(p.token), minHold, false); freed {
			p.reply = done
		}
	case opWithdraw:
		v.Withdraw(idOf(p.acq), minHold, false)
		p.reply = done
	case opMove:
		v.Advance()
		p.reply = done
	case opSweep:
		v.Sweep(func(id driver.ID) bool { return w.db.beats[id[0]-100]+2 <= x.now })
		p.reply = done
	case opRevoke:
		v.Revoke()
		p.reply = done
		w.kept, w.revoked = 0, w.db.version
	case opDetach:
		p.reply = over
		if ok, _ := v.Detach(idOf(p.acq), int64(p.token), idOf(key), int64(o.ttl[p.acq/requests])); ok {
			p.reply = done
		}
	case opAdopt:
		a = v.Adopt(idOf(key), o.request(p.acq))
	}
	changes := v.Changes()
	before := w.db
	w.db.write(changes)
	if p.op == opRelease && p.reply == done || p.op == opWithdraw && since >= 0 {
		w.keep(since + int8(minHold))
	}
	w.judge(o, &before, x.now, x.alive, p.op == opAdopt)
	w.judgeAnswer(&before, &x, &a)
	if p.op != opDetach && p.op != opAdopt && w.isIdle(o, &x) {
		w.wrong = leftIdle
	}
	if p.op == opWithdraw && (w.db.acq == p.acq || w.db.claims[p.acq].there) {
		w.wrong = leftBehind
	}
	if changes.Durable {
		w.flush()
	}
	switch {
	case p.op != opTry && p.op != opEnter && p.op != opAdopt:
	case a.Outcome == claim.Granted:
		w.grantReply(o, &p, int8(a.Token), a.Slot, int8(a.Expires), x.now)
	case a.Outcome == claim.Queued:
		p.reply = queued
	default:
		p.reply = refused
	}
	if p.heard {
		sent := p.sent
		w.send(p)
		for i := range w.packets {
			if q := &w.packets[i]; q.op == p.op && q.acq == p.acq && q.reply == p.reply {
				q.sent = sent
			}
		}
	}
}

// judgeAnswer compares what a visit has answered with what it has found.
func (w *world) judgeAnswer(before *tables, x *visit, a *claim.Answer) {
	p := &x.p
	was := &before.claims[p.acq]
	held := before.acq == p.acq && before.expires > x.now || was.there && was.state == claim.Holding && was.expires > x.now
	switch p.op {
	case opTry, opEnter:
		if held && a.Outcome != claim.Granted {
			w.wrong = forgotten
		}
	case opAdopt:
		if a.Outcome == claim.Granted && !held && (before.acq != key || before.expires <= x.now) {
			w.wrong = adoptedWrongly
		}
	case opRevoke:
		for acq := range int8(acqs) {
			if c := &before.claims[acq]; c.there && c.state == claim.Holding && w.db.claims[acq].token == c.token {
				w.wrong = leftBehind
			}
		}
	}
	for acq := range int8(acqs) {
		if _, ok := w.grantedSince(before, acq); ok && acq != p.acq && x.alive>>lockerOf(acq)&1 == 0 {
			w.wrong = grantedToDead
		}
	}
}

// isIdle reports that nobody holds a name after a visit although somebody waits whom the
// visit has seen alive.
func (w *world) isIdle(o *options, x *visit) bool {
	if w.db.acq != nobody && w.db.expires > x.now || w.db.notBefore > x.now {
		return false
	}
	awaited := false
	for acq, c := range w.db.claims {
		switch {
		case c.there && c.state == claim.Holding && x.dead>>acq&1 == 0:
			return false
		case c.there && c.state == claim.Waiting && x.alive>>lockerOf(int8(acq))&1 == 1:
			awaited = true
		}
	}
	return awaited
}

// since is when the term of an acquisition began, or -1 if it has none.
func (w *world) since(acq int8) int8 {
	if w.db.acq == acq {
		return w.db.since
	}
	return -1
}

// judge compares the tables before and after a commit that was made in view of some
// Lockers' beats.
func (w *world) judge(o *options, before *tables, now int8, alive uint8, adopts bool) {
	highest := w.top
	for acq := range int8(acqs) {
		token, ok := w.grantedSince(before, acq)
		if !ok {
			continue
		}
		if token < w.top || token == w.top && !w.joins(o, acq) || w.doubled(o, acq, token) {
			w.wrong = tokenDoesNotRise
		}
		highest = max(highest, token)
		if w.lasts(acq)-now-o.delay[acq/requests] < 1 {
			w.wrong = tooShort
		}
		if !adopts && now < w.kept {
			w.wrong = keptNameGranted
		}
		if !adopts && w.passes(before, acq, alive) {
			w.wrong = passedOver
		}
	}
	w.top = highest
}

// grantedSince reports whether an acquisition was granted, and with which token.
func (w *world) grantedSince(before *tables, acq int8) (token int8, ok bool) {
	was, is := &before.claims[acq], &w.db.claims[acq]
	if is.there && is.state == claim.Holding {
		return is.token, !was.there || was.state != claim.Holding
	}
	return w.db.version, w.db.acq == acq && before.acq != acq
}

// lasts is until when the term of an acquisition does.
func (w *world) lasts(acq int8) int8 {
	if w.db.acq == acq {
		return w.db.expires
	}
	return w.db.claims[acq].expires
}

// passes reports that somebody waits who came before.
func (w *world) passes(before *tables, acq int8, alive uint8) bool {
	was := &before.claims[acq]
	for other := range int8(acqs) {
		c := &w.db.claims[other]
		first := !was.there || was.state != claim.Waiting || c.seq < was.seq
		if c.there && c.state == claim.Waiting && alive>>lockerOf(other)&1 == 1 && first {
			return true
		}
	}
	return false
}

// doubled reports that another holder who does not share the term has its token.
func (w *world) doubled(o *options, acq, token int8) bool {
	for other := range int8(acqs) {
		c := &w.db.claims[other]
		both := o.kind(acq) == claim.Shared && o.kind(other) == claim.Shared
		if other != acq && c.there && c.state == claim.Holding && c.token == token && !both {
			return true
		}
	}
	return false
}

// joins reports that others share the term of a reader.
func (w *world) joins(o *options, acq int8) bool {
	for other := range int8(acqs) {
		c := &w.db.claims[other]
		if other != acq && o.kind(acq) == claim.Shared && c.there && c.state == claim.Holding && c.token == w.db.claims[acq].token {
			return true
		}
	}
	return false
}

// hear gives a client the reply to a packet.
func (w *world) hear(o *options, i int) {
	p := w.packets[i]
	w.packets[i] = packet{}
	n := p.acq / requests
	c := &w.clients[n]
	if w.dead[lockerOf(p.acq)] || w.acq(n) != p.acq || c.phase == idle {
		return
	}
	switch p.reply {
	case granted:
		if c.phase == trying || c.phase == entering || c.phase == adopting {
			w.becomeHolder(n, p.sent, p.remaining, p.replyToken, p.slot)
		}
	case refused:
		switch c.phase {
		case trying:
			c.phase = wanting
		case adopting:
			w.finish(n)
		}
	case queued:
		if c.phase == entering {
			c.phase = waiting
		}
	case done, over:
		w.heardEnd(o, n, &p)
	}
}

// heardEnd is hear for what is not an acquisition.
func (w *world) heardEnd(o *options, n int8, p *packet) {
	c := &w.clients[n]
	switch {
	case p.op == opRenew && c.phase == holding && p.reply == over:
		w.finish(n)
	case p.op == opRenew && c.phase == holding && w.now < c.trust: // loss is sticky
		c.trust = max(c.trust, p.sent+o.ttl[n])
	case p.op == opRelease && c.phase == releasing, p.op == opDetach && c.phase == detaching:
		if p.op == opDetach && p.reply == done && w.crashes > 0 && w.durable.acq == p.acq {
			w.wrong = notDurable
		}
		w.finish(n)
	case p.op == opWithdraw && c.phase == cleaning && p.sent >= c.until:
		c.unknown = false
		w.finish(n)
	}
}

// becomeHolder makes a client a holder, if it is not too late.
func (w *world) becomeHolder(n, sent, remaining, token, slot int8) {
	c := &w.clients[n]
	c.trust, c.token, c.slot, c.phase = sent+remaining, token, slot, holding
	if c.trust <= w.now {
		c.phase, c.unknown = cleaning, true
	}
}

// finish ends a call as far as its caller sees.
func (w *world) finish(n int8) {
	c := &w.clients[n]
	c.trust, c.slot = 0, 0
	if c.unknown {
		c.phase = cleaning
		return
	}
	c.phase, c.until, c.renews = idle, 0, 0
}

// waits reports whether a Locker has to keep its waiter row alive.
func (w *world) waits(locker int8) bool {
	for i := range int8(clients) {
		if lockerOfClient(i) == locker && w.clients[i].phase >= wanting && w.clients[i].phase <= waiting {
			return true
		}
	}
	return false
}

func (w *world) sendBeat(locker int8) {
	b := beat{stage: 1, sent: w.now}
	for i := range int8(clients) {
		if lockerOfClient(i) == locker && w.clients[i].phase == waiting {
			b.requested |= 1 << i
		}
	}
	w.beats[locker] = b
}

// runBeat keeps a waiter row alive and reads the Locker's claims with it.
func (w *world) runBeat(o *options, locker int8) {
	b := &w.beats[locker]
	w.db.beats[locker] = max(w.db.beats[locker], w.now+o.beat)
	b.stage = 2
	for acq := range int8(acqs) {
		c := &w.db.claims[acq]
		switch {
		case lockerOf(acq) != locker:
		case c.there && c.state == claim.Waiting:
			b.found[acq] = foundWaiting
		case c.there && c.expires > w.now:
			b.found[acq], b.tokens[acq], b.slots[acq] = foundHeld+c.expires-w.now-o.delay[acq/requests], c.token, c.slot
		case w.db.acq == acq && w.db.expires > w.now:
			b.found[acq], b.tokens[acq] = foundHeld+w.db.expires-w.now-o.delay[acq/requests], w.db.version
		}
	}
	b.stalled = w.db.waiting > 0 && (w.db.acq == nobody || w.db.expires <= w.now) && w.db.notBefore <= w.now
}

// hearBeat compares what the database has with what the Locker knows.
func (w *world) hearBeat(locker int8) {
	b := w.beats[locker]
	w.beats[locker] = beat{}
	w.lives[locker] = b.sent + 1 // when it was sent, from 1 on
	if w.dead[locker] {
		return
	}
	for acq := range int8(acqs) {
		if lockerOf(acq) != locker {
			continue
		}
		n := acq / requests
		c := &w.clients[n]
		mine := c.phase != idle && w.acq(n) == acq
		requested := mine && c.phase == waiting && b.requested>>n&1 == 1
		switch found := b.found[acq]; {
		case requested && found >= foundHeld:
			w.becomeHolder(n, b.sent, found-foundHeld, b.tokens[acq], b.slots[acq])
		case requested && found == foundNothing:
			c.phase = wanting
		case !mine && found == foundWaiting && !w.awaits(opWithdraw, acq):
			w.send(packet{op: opWithdraw, acq: acq})
		}
	}
	if b.stalled && w.waits(locker) && !w.underWay(opMove) {
		w.send(packet{op: opMove, acq: locker * 2 * requests})
	}
}

// knowsToLive reports that a Locker's waiter row lives for certain.
func (w *world) knowsToLive(o *options, locker int8) bool {
	return w.lives[locker] > 0 && w.lives[locker]-1+o.beat > w.now
}

// unheard makes a client stop waiting for a reply.
func (w *world) unheard(o *options, p *packet) {
	p.heard = false
	n := p.acq / requests
	c := &w.clients[n]
	if p.op == opMove || p.op == opSweep || p.op == opRevoke || w.acq(n) != p.acq {
		return
	}
	if p.op == opTry || p.op == opEnter || p.op == opAdopt {
		c.unknown = true
		c.until = max(c.until, p.sent+o.ttl[n]+o.delay[n])
	}
}

// crash undoes what was not flushed and breaks all connections.
func (w *world) crash(o *options) {
	w.db = w.durable
	for i := range w.packets {
		if p := &w.packets[i]; p.op != opNone && p.reply <= pending {
			w.unheard(o, p)
			*p = packet{}
		}
	}
	if w.visit.stage > 0 {
		w.unheard(o, &w.visit.p)
	}
	w.visit = visit{}
	w.renewing = [acqs]int8{}
	for l := range w.beats {
		if w.beats[l].stage == 1 {
			w.beats[l] = beat{}
		}
	}
}

// steps calls yield with each world that may come next.
func (w *world) steps(o *options, yield func(label func() string, next world)) {
	w.networkSteps(o, yield)
	for i := range int8(clients) {
		if !w.dead[lockerOfClient(i)] {
			w.clientSteps(o, i, yield)
		}
	}
	for l := range int8(lockers) {
		w.beatSteps(o, l, yield)
	}
	if w.now < o.end {
		x := *w
		x.now++
		yield(func() string { return "tick" }, x)
	}
	if w.revokes > 0 && (w.db.acq != nobody || w.db.holding > 0) {
		x := *w
		x.revokes--
		if x.send(packet{op: opRevoke, acq: 0}) {
			yield(func() string { return "somebody revokes" }, x)
		}
	}
	if w.crashes > 0 {
		x := *w
		x.crashes--
		x.crash(o)
		yield(func() string { return "the database crashes" }, x)
	}
	for l := range int8(lockers) {
		if w.deaths > 0 && !w.dead[l] {
			x := *w
			x.deaths--
			x.die(l)
			yield(func() string { return fmt.Sprintf("Locker %d dies", l) }, x)
		}
	}
}

func (w *world) die(locker int8) {
	w.dead[locker] = true
	for i := range int8(clients) {
		if lockerOfClient(i) == locker {
			w.clients[i] = client{n: w.clients[i].n}
		}
	}
	for i := range w.packets {
		if p := &w.packets[i]; p.op != opNone && lockerOf(p.acq) == locker {
			p.heard = false
			if p.reply > pending {
				*p = packet{}
			}
		}
	}
	if w.visit.stage > 0 && lockerOf(w.visit.p.acq) == locker {
		w.visit.p.heard = false
	}
}

func (w *world) networkSteps(o *options, yield func(func() string, world)) {
	for i := range w.packets {
		p := w.packets[i]
		switch {
		case p.op == opNone:
			continue
		case p.reply == unsent:
			if x := *w; x.arrive(o, i) {
				yield(func() string { return fmt.Sprintf("%v of %d arrives", p.op, p.acq) }, x)
			}
		case p.reply != pending:
			x := *w
			x.hear(o, i)
			yield(func() string { return fmt.Sprintf("reply to %v of %d", p.op, p.acq) }, x)
		}
		if w.faults > 0 && p.heard {
			x := *w
			x.faults--
			x.unheard(o, &x.packets[i])
			if x.packets[i].reply > pending {
				x.packets[i] = packet{}
			}
			yield(func() string { return fmt.Sprintf("%v of %d is given up", p.op, p.acq) }, x)
		}
	}
	switch w.visit.stage {
	case 1:
		if x := *w; x.read(o) {
			yield(func() string { return fmt.Sprintf("visit: %v of %d reads", w.visit.p.op, w.visit.p.acq) }, x)
		}
	case 2:
		x := *w
		x.commit(o)
		yield(func() string { return fmt.Sprintf("visit: %v of %d commits", w.visit.p.op, w.visit.p.acq) }, x)
	}
	for acq := range int8(acqs) {
		if w.renewing[acq] != 0 {
			x := *w
			x.commitRenewal(acq)
			yield(func() string { return fmt.Sprintf("renewal of %d commits", acq) }, x)
		}
	}
}

func (w *world) beatSteps(o *options, l int8, yield func(func() string, world)) {
	x := *w
	switch b := &w.beats[l]; {
	case b.stage == 0 && !w.dead[l] && w.waits(l):
		x.sendBeat(l)
		yield(func() string { return fmt.Sprintf("Locker %d beats", l) }, x)
	case b.stage == 1:
		x.runBeat(o, l)
		yield(func() string { return fmt.Sprintf("beat of %d arrives", l) }, x)
	case b.stage == 2:
		x.hearBeat(l)
		yield(func() string { return fmt.Sprintf("Locker %d hears its beat", l) }, x)
	}
}

// clientSteps are those that a client takes by itself.
func (w *world) clientSteps(o *options, i int8, yield func(func() string, world)) {
	l, c, acq := lockerOfClient(i), &w.clients[i], w.acq(i)
	step := func(label string, p phase, q packet) {
		x := *w
		x.clients[i].phase = p
		if q.op != opNone {
			q.heard = true
			if !x.send(q) {
				return
			}
		} else if p == idle {
			x.finish(i)
		}
		yield(func() string { return fmt.Sprintf("client %d %s", i, label) }, x)
	}
	giveUp := func() {
		if c.unknown {
			step("gives up", cleaning, packet{})
		} else {
			step("gives up", idle, packet{})
		}
	}
	switch c.phase {
	case idle:
		if c.n >= o.again {
			return
		}
		y := *w
		y.clients[i].n++
		if o.detach && i == 2 {
			if w.keyKnown {
				y.clients[i].phase = adopting
				y.send(packet{op: opAdopt, acq: y.acq(i), heard: true})
				yield(func() string { return "client 2 adopts" }, y)
			}
			return
		}
		y.clients[i].phase = wanting
		yield(func() string { return fmt.Sprintf("client %d wants the name", i) }, y)
		y.clients[i].phase = trying
		if y.send(packet{op: opTry, acq: y.acq(i), heard: true}) {
			yield(func() string { return fmt.Sprintf("client %d tries", i) }, y)
		}
	case trying:
		if !w.awaits(opTry, acq) {
			step("tries again", trying, packet{op: opTry, acq: acq})
			giveUp()
		}
	case adopting:
		if !w.awaits(opAdopt, acq) {
			step("adopts again", adopting, packet{op: opAdopt, acq: acq})
			giveUp()
		}
	case wanting:
		if w.knowsToLive(o, l) {
			step("enters the queue", entering, packet{op: opEnter, acq: acq})
		}
		giveUp()
	case entering:
		if !w.awaits(opEnter, acq) {
			step("enters again", entering, packet{op: opEnter, acq: acq})
			giveUp()
		}
	case waiting:
		x := *w
		x.clients[i].unknown = true // whether it was granted meanwhile
		x.clients[i].phase = cleaning
		yield(func() string { return fmt.Sprintf("client %d stops waiting", i) }, x)
	case holding:
		w.holderSteps(o, i, step, yield)
	case releasing:
		if !w.awaits(opRelease, acq) {
			step("unlocks again", releasing, packet{op: opRelease, acq: acq, token: c.token})
		}
	case detaching:
		if !w.awaits(opDetach, acq) {
			step("detaches again", detaching, packet{op: opDetach, acq: acq, token: c.token})
		}
	case cleaning:
		if !w.awaits(opWithdraw, acq) {
			step("cleans up", cleaning, packet{op: opWithdraw, acq: acq})
		}
	}
}

func (w *world) holderSteps(o *options, i int8, step func(string, phase, packet), yield func(func() string, world)) {
	c, acq := &w.clients[i], w.acq(i)
	if o.detach && i == 0 {
		x := *w
		x.keyKnown = true
		x.clients[i].phase = detaching
		if x.send(packet{op: opDetach, acq: acq, token: c.token, heard: true}) {
			yield(func() string { return "client 0 detaches" }, x)
		}
	}
	step("unlocks", releasing, packet{op: opRelease, acq: acq, token: c.token})
	if w.now >= c.trust {
		x := *w
		x.finish(i)
		yield(func() string { return fmt.Sprintf("client %d has lost the name", i) }, x)
		return
	}
	if c.renews < o.renews && !w.awaits(opRenew, acq) && w.now+o.ttl[i] > c.trust {
		x := *w
		x.clients[i].renews++
		if x.send(packet{op: opRenew, acq: acq, token: c.token, heard: true}) {
			yield(func() string { return fmt.Sprintf("client %d renews", i) }, x)
		}
	}
}

func (o op) String() string {
	return [...]string{"none", "try", "entry", "release", "withdrawal", "renewal", "move", "sweep", "revocation", "detachment", "adoption"}[o]
}
