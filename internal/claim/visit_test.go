package claim_test

import (
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/claim"
)

// This is what package rowstore makes of a request: a statement on the row alone where one
// does, else a visit, before which it may have read without locks.

// execute runs a request as one atomic step. It reports false if a lock is in its way.
func (w *world) execute(o *options, p *packet) bool {
	if p.op == opRenew {
		return w.renew(o, p)
	}
	if w.visit.open {
		return false
	}
	if w.fast(o, p) {
		return true
	}
	if k := w.beginPeek(*p); o.peeksFor(p.op) && w.answeredByPeek(o, &k) {
		*p = k.p
		return true
	}
	if w.waitsForRenewal(p) {
		return false
	}
	v := w.look(o, p)
	w.commit(o, &v)
	*p = v.p
	return true
}

// fast runs a request as a statement on the row alone. It reports false, and changes
// nothing, if the name needs a visit.
func (w *world) fast(o *options, p *packet) bool {
	switch {
	case p.acq == nobody || o.kind(p.acq) != claim.Exclusive:
	case p.op == opTry && !w.isPinned():
		return w.fastGrant(o, p)
	case p.op == opRelease && !p.guarded:
		return w.fastFree(o, p)
	}
	return false
}

func (w *world) fastGrant(o *options, p *packet) bool {
	row := w.db.row(o)
	free := w.db.acq == nobody && w.db.waiting == 0 && w.db.holding == 0 && w.db.notBefore <= now
	if row.Grant(o.request(p.acq), int64(now)) != free {
		w.fail(fastDiffers)
	}
	if !free {
		return false
	}
	w.agrees(o, p, &row)
	w.db.set(&row)
	w.flush()
	w.top = max(w.top, w.db.version)
	w.grantReply(o, p, claim.Answer{Token: row.Version, Expires: row.Expires}, now)
	return true
}

func (w *world) fastFree(o *options, p *packet) bool {
	row := w.db.row(o)
	mine := w.db.acq == p.acq && w.db.version == p.token && w.db.waiting == 0
	if row.Free(idOf(p.acq), int64(p.token), int64(o.minHold[p.acq/slots]), int64(now)) != mine {
		w.fail(fastDiffers)
	}
	if !mine {
		return false
	}
	w.agrees(o, p, &row)
	w.db.set(&row)
	p.reply = done
	return true
}

// agrees notes if a visit would not have made the same of the row.
func (w *world) agrees(o *options, p *packet, row *claim.Row) {
	v := w.look(o, p)
	v.pinned = false // a plain release passes the guard of a stranger
	r := v.decide(o, &w.db, 1<<acqs-1, 0)
	x := w.db
	x.set(&r.changes.Row)
	y := w.db
	y.set(row)
	if x != y || r.changes.Row.Locker != row.Locker || r.changes.Row.Owner != row.Owner || r.changes.Row.Holds != row.Holds ||
		len(r.changes.Delete) > 0 || len(r.changes.Insert) > 0 {
		w.fail(fastDiffers)
	}
	e := effect{o: o, v: &v, r: &r, before: &w.db, after: &y}
	w.fail(e.judge(w.top))
}

// isPinned reports that a transaction guards the row.
func (w *world) isPinned() bool {
	return w.otherPin || w.db.acq != nobody && w.guards>>w.db.acq&1 == 1
}

func (w *world) flush() {
	if w.left.crashes > 0 {
		w.durable = w.db
	}
}

// waitsForRenewal reports that a visit would delete a claim, come what may, that an
// uncommitted renewal has locked.
func (w *world) waitsForRenewal(p *packet) bool {
	return (p.op == opRelease || p.op == opWithdraw) && !p.guarded && w.renewing[p.acq] != 0
}

// look begins a visit: the row is locked, then the claims that are to end are, if
// nobody else has locked them; then it is read.
func (w *world) look(o *options, p *packet) visit {
	v := visit{open: true, now: now, alive: w.alive(p.by), pinned: w.isPinned(), p: *p}
	all := p.op == opRevoke || (p.op == opRelease || p.op == opWithdraw) && p.guarded
	for acq := range int8(acqs) {
		c := &w.db.claims[acq]
		if c.state == hasTerm && w.renewing[acq] == 0 && w.guards>>acq&1 == 0 && (c.expires <= now || all) {
			v.locks |= 1 << acq
		}
	}
	return v
}

// alive are the Lockers that the database has heard of in time, and the one that asks.
func (w *world) alive(by int8) (set uint8) {
	for l := range int8(lockers) {
		if w.db.beats[l] > now || l == by {
			set |= 1 << l
		}
	}
	return set
}

func isAlive(set uint8, acq int8) bool { return set>>lockerOf(acq)&1 == 1 }

// visible are the claims that a visit reads: at most k of those that wait, those that hold,
// and those that it is about. More may wait behind
// readTo, unless that is 0.
func (w *world) visible(o *options, v *visit, k int8) (set uint8, readTo int64) {
	from := int8(-1)
	for n := int8(0); k == 0 || n < k; n++ {
		acq := w.nextWaiting(from, v.alive)
		if acq == nobody {
			break
		}
		set, from = set|1<<acq, w.db.claims[acq].seq
		if n+1 == k && v.p.op != opSweep {
			readTo = int64(from)
		}
	}
	for acq := range int8(acqs) {
		switch c := &w.db.claims[acq]; {
		case c.state == hasTerm || v.p.acq == acq || o.batches && v.p.acq != nobody && lockerOf(acq) == v.p.by || v.p.op == opSweep:
			set |= 1 << acq
		}
	}
	return set, readTo
}

// nextWaiting is who waits next after a place in the queue, of those who are alive.
func (w *world) nextWaiting(after int8, alive uint8) (next int8) {
	next = nobody
	for acq := range int8(acqs) {
		c := &w.db.claims[acq]
		if c.state == waits && c.seq > after && isAlive(alive, acq) && (next == nobody || c.seq < w.db.claims[next].seq) {
			next = acq
		}
	}
	return next
}

// result is what a visit has decided.
type result struct {
	answer       claim.Answer
	yes, guarded bool
	advanced     bool // it has served whoever is next
	idle         bool // before, the row could have been deleted, as far as this says
	usedUp       bool // it may have more to do
	kind         claim.Kind
	from, until  int8 // when the first and the last of those who hold together expires
	changes      claim.Changes
}

// resized is the other number of permits.
func resized(permits int8) int8 { return 3 - permits }

// newVisit is the visit of the package.
func (v *visit) newVisit(o *options, row claim.Row, rows []claim.Claim) *claim.Visit {
	c := claim.NewVisit(row, rows)
	c.Now, c.By, c.Pinned = int64(v.now), lockerID(v.p.by), v.pinned
	c.Locked = func(id driver.ID) bool { return v.locks>>acqOf(id)&1 == 1 }
	c.Alive = func(id driver.ID) bool { return v.alive>>lockerAt(id)&1 == 1 }
	return c
}

// decide runs the operation of a visit on what it has read.
func (v *visit) decide(o *options, d *tables, set uint8, readTo int64) (r result) {
	c := v.newVisit(o, d.row(o), d.rows(o, set))
	c.ReadTo = readTo
	idle := c.IsIdle()
	r = v.operate(o, d, c)
	r.idle = idle
	r.changes, r.usedUp = c.Changes(), c.UsedUp()
	kind, from, until := c.Together()
	r.kind, r.from, r.until = kind, int8(from), int8(until)
	return r
}

// operate runs the operation of a visit.
func (v *visit) operate(o *options, d *tables, c *claim.Visit) (r result) {
	p := &v.p
	r.advanced = true
	switch p.op {
	case opTry, opEnter:
		q := *o.request(p.acq)
		q.Waits = p.op == opEnter
		r.answer = c.Acquire(q)
		r.advanced = !r.answer.Found && r.answer.Outcome != claim.Mismatch
	case opRelease:
		r.yes, r.guarded = c.Release(idOf(p.acq), int64(p.token), int64(o.minHold[p.acq/slots]), p.guarded)
		r.advanced = !r.guarded
	case opWithdraw:
		r.guarded = c.Withdraw(idOf(p.acq), int64(o.minHold[p.acq/slots]), p.guarded)
		r.advanced = !r.guarded
	case opForget:
		c.Forget(idOf(p.acq))
	case opMove:
		c.Advance()
	case opSweep:
		c.Sweep(func(id driver.ID) bool { return d.beats[lockerAt(id)] <= v.now-gone })
	case opRevoke:
		r.yes, r.guarded = c.Revoke()
		r.advanced = !r.guarded
	case opResize:
		c.Resize(int(resized(d.permits)))
	case opDetach:
		r.yes, r.guarded = c.Detach(idOf(p.acq), int64(p.token), idOf(key), int64(o.ttl[p.acq/slots]+o.delay[p.acq/slots]))
		r.advanced = false
	case opAdopt:
		r.answer, r.guarded = c.Adopt(idOf(key), *o.request(p.acq))
		r.advanced = false
	case opResume:
		r.answer, r.guarded = c.Resume(int64(p.token), *o.request(p.acq))
		r.advanced = false
	}
	return r
}

// commit ends a visit: it decides and writes, and puts the reply into its packet. A visit
// that reads too few of those who wait reads more. If these are too few, too, the Locker
// goes on in another visit.
func (w *world) commit(o *options, v *visit) {
	p := &v.p
	k := o.window
	if p.op == opMove && k > 0 {
		k++
	}
	set, readTo := w.visible(o, v, k)
	r := v.decide(o, &w.db, set, readTo)
	if r.usedUp && k == o.window {
		set, readTo = w.visible(o, v, k+1)
		r = v.decide(o, &w.db, set, readTo)
	}
	before := w.db
	w.fail(w.db.write(o, &r.changes))
	if p.op == opSweep {
		w.db.miscounted, before.miscounted = false, false
	}
	if p.op == opRevoke && r.yes {
		w.revoked = before.version
	}
	e := effect{o: o, v: v, r: &r, before: &before, after: &w.db}
	kind, from, until := w.together(o, v)
	if r.kind != kind || r.from != from || r.until != until || r.idle != (before.acq == nobody && before.has(set) == 0 && before.notBefore <= v.now) {
		w.fail(badAnswer)
	}
	w.fail(e.judge(w.top))
	w.top = max(w.top, w.db.version)
	if r.usedUp {
		w.moves[p.by] = true
	}
	if r.changes.Durable {
		w.flush()
	}
	w.replyTo(o, p, &r, v.now)
	w.tellHandOvers(o, p, &r, v.now)
}

// together is how those hold who hold together, and when the first and the last of them expires.
func (w *world) together(o *options, v *visit) (kind claim.Kind, from, until int8) {
	for acq := range int8(acqs) {
		if c := &w.db.claims[acq]; c.state == hasTerm && (c.expires > v.now || v.locks>>acq&1 == 0) {
			if from == 0 || c.expires < from {
				from = c.expires
			}
			kind, until = o.kind(acq), max(until, c.expires)
		}
	}
	return kind, from, until
}

// replyTo puts the reply into a packet.
func (w *world) replyTo(o *options, p *packet, r *result, at int8) {
	switch p.op {
	case opTry, opEnter, opAdopt, opResume:
		switch {
		case r.answer.Outcome == claim.Granted:
			w.grantReply(o, p, r.answer, at)
		case r.answer.Outcome == claim.Queued:
			p.reply = queued
		case r.answer.Outcome == claim.Mismatch:
			p.reply = mismatch
		case r.guarded:
			p.reply = busy
		default:
			p.reply = refused
		}
	default:
		switch {
		case r.guarded:
			p.reply = busy
		case p.op == opRelease && !r.yes, p.op == opDetach && !r.yes:
			p.reply = over
		default:
			p.reply = done
		}
	}
}

// grantReply says what a term is worth to its holder.
func (w *world) grantReply(o *options, p *packet, a claim.Answer, at int8) {
	p.reply, p.replyToken, p.slot = granted, int8(a.Token), int8(a.Slot)
	p.remaining, p.limit = o.worth(p.acq, int8(a.Expires)-at), 0
	if l := w.limitOf(p.acq); l != 0 {
		p.limit = max(o.worth(p.acq, l-at), 1)
	}
}

// worth is what a holder may trust of what remains.
func (o *options) worth(acq, remaining int8) int8 { return remaining - o.delay[acq/slots] }

func (w *world) limitOf(acq int8) int8 {
	if w.db.acq == acq {
		return w.db.limit
	}
	return w.db.claims[acq].limit
}

// tellHandOvers tells the clients of the Locker that has made a visit what was handed over.
func (w *world) tellHandOvers(o *options, p *packet, r *result, at int8) {
	if w.dead[p.by] || p.acq != nobody && !p.heard {
		return
	}
	for _, t := range r.changes.HandOvers {
		acq := acqOf(t.Acq)
		c := &w.clients[acq/slots]
		if acq == p.acq || c.phase != waiting || w.acq(acq/slots) != acq {
			continue
		}
		g := packet{acq: acq, sent: p.sent}
		w.grantReply(o, &g, claim.Answer{Token: t.Token, Slot: t.Slot, Expires: t.Expires}, at)
		w.becomeHolder(&g)
	}
}

// beginPeek reads the first part.
func (w *world) beginPeek(p packet) peek {
	return peek{open: true, now: now, seen: w.db, p: p, had: p.acq != nobody && w.has(p.acq)}
}

// answeredByPeek answers a request from what was read without locks: a part at one time, the
// rest now. It reports false if the request would change something.
func (w *world) answeredByPeek(o *options, k *peek) bool {
	p, seen, at := &k.p, &k.seen, k.now
	x := world{db: w.db}
	v := visit{now: now, alive: w.alive(p.by), locks: 1<<acqs - 1, p: *p}
	if o.peeks == claimsFirst {
		x.db.claims, x.db.beats = seen.claims, seen.beats
		v.alive = x.alive(p.by)
	} else {
		x.db.lockRow = seen.lockRow
	}
	set, readTo := x.visible(o, &v, o.window)
	if o.peeks != claimsFirst && set == 0 {
		v.now = at
	}
	r := v.decide(o, &x.db, set, readTo)
	if r.changes.Changed {
		return false
	}
	if p.op == opWithdraw && !r.guarded && k.had && w.has(p.acq) {
		w.fail(leftBehind)
	}
	w.replyTo(o, p, &r, v.now)
	return true
}

// renew extends a term.
func (w *world) renew(o *options, p *packet) bool {
	if o.kind(p.acq) != claim.Exclusive {
		return w.beginRenewal(o, p) && w.commitRenewal(p)
	}
	if w.visit.open {
		return false
	}
	row := w.db.row(o)
	was := w.db
	p.reply = over
	alive := was.acq == p.acq && was.version == p.token && was.expires > now
	if row.Renew(idOf(p.acq), int64(p.token), o.request(p.acq).TTL, 1, int64(now)) != alive {
		w.fail(badRenewal)
	}
	w.db.set(&row)
	if alive {
		p.reply, p.remaining = done, o.worth(p.acq, w.db.expires-now)
		w.flush()
		was.expires = o.renewed(p.acq, was.expires, was.limit)
	}
	if w.db != was {
		w.fail(badRenewal)
	}
	return true
}

// renewed is when a term ends that is renewed now.
func (o *options) renewed(acq, expires, limit int8) int8 {
	to := now + int8(o.request(acq).TTL)
	if limit != 0 && limit < to {
		to = limit
	}
	return max(expires, to)
}

// beginRenewal is the first half of a renewal of a claim: its row is written and locked.
func (w *world) beginRenewal(o *options, p *packet) bool {
	if w.renewing[p.acq] != 0 || w.visit.open && w.visit.locks>>p.acq&1 == 1 {
		return false
	}
	p.reply = over
	was := &w.db.claims[p.acq]
	for _, c := range w.db.rows(o, 1<<p.acq) {
		before := c
		alive := was.state == hasTerm && was.token == p.token && was.expires > now
		if c.Renew(int64(p.token), o.request(p.acq).TTL, 1, int64(now)) != alive {
			w.fail(badRenewal)
		}
		if !alive {
			continue
		}
		if int8(c.Expires) != o.renewed(p.acq, was.expires, was.limit) || c.Seq != before.Seq || c.Token != before.Token {
			w.fail(badRenewal)
		}
		w.renewing[p.acq] = int8(c.Expires)
		p.reply, p.remaining = pending, o.worth(p.acq, int8(c.Expires)-now)
	}
	return true
}

// commitRenewal is the second half.
func (w *world) commitRenewal(p *packet) bool {
	if p.reply == pending {
		c := &w.db.claims[p.acq]
		if c.state == hasTerm {
			c.expires = max(c.expires, w.renewing[p.acq])
		}
		w.renewing[p.acq] = 0
		w.flush()
		p.reply = done // what it was told is what it wrote
	}
	return true
}
