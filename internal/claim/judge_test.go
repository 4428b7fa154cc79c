package claim_test

import (
	"cmp"

	"github.com/sqllock/sqllock/internal/claim"
)

// effect is what a visit has done.
type effect struct {
	o             *options
	v             *visit
	r             *result
	before, after *tables
}

// judge compares what a visit has done with the rules. top is the highest token so far.
func (e *effect) judge(top int8) wrong {
	for _, why := range [...]wrong{
		e.judgeAlone(), e.judgeTogether(), e.judgeReports(), e.judgeQueue(), e.judgeGrants(top), e.judgeVersion(),
		e.judgeNotices(), e.judgeWakes(), e.judgeRow(), e.judgeAnswer(), e.judgeChanges(), e.judgeProgress(),
	} {
		if why != right {
			return why
		}
	}
	return right
}

func (e *effect) is(o op, acq int8) bool { return e.v.p.op == o && e.v.p.acq == acq }

func (e *effect) wasGranted() bool { return e.r.answer.Outcome == claim.Granted }

// sameAlone reports that the exclusive term goes on.
func (e *effect) sameAlone() bool {
	return e.after.acq == e.before.acq && (e.after.acq == nobody || e.after.version == e.before.version)
}

// sameTogether reports that a claim that holds does so still.
func (e *effect) sameTogether(acq int8) bool {
	b, a := &e.before.claims[acq], &e.after.claims[acq]
	return b.state == hasTerm && a.state == hasTerm && a.seq == b.seq
}

// crashedAlone reports that the exclusive term has ended because it has expired.
func (e *effect) crashedAlone() bool {
	b := e.before
	return b.acq != nobody && !e.sameAlone() && b.expires <= e.v.now && !e.endsAlone()
}

// endsAlone reports that the visit is to end the exclusive term, expired or not.
func (e *effect) endsAlone() bool {
	p, b := &e.v.p, e.before
	switch p.op {
	case opRelease:
		return b.acq == p.acq && b.version == p.token && e.r.yes
	case opWithdraw:
		return b.acq == p.acq && !e.r.guarded
	case opRevoke:
		return e.r.yes
	case opDetach:
		return b.acq == p.acq && b.version == p.token && e.r.yes && b.expires > e.v.now
	case opAdopt:
		return b.acq == key && e.wasGranted() && b.expires > e.v.now
	case opResume:
		return b.acq != key && b.version == p.token && e.o.owner(b.acq/slots) == e.o.owner(p.acq/slots) && e.wasGranted() && b.expires > e.v.now
	}
	return false
}

// judgeAlone is about the end of the exclusive term.
func (e *effect) judgeAlone() wrong {
	b, a := e.before, e.after
	switch {
	case b.acq == nobody:
		return right
	case e.sameAlone():
		if b.expires != a.expires || b.since != a.since || b.limit != a.limit || b.delay != a.delay {
			return badTerm
		}
		return right
	case e.v.pinned:
		return guardedEnded
	case e.v.p.op == opDetach:
		if !e.endsAlone() || a.acq != key || a.version != b.version || a.expires != e.v.now+int8(e.o.request(b.acq).TTL) || a.since != b.since {
			return badTerm
		}
		return right
	case e.endsAlone():
		return right
	case b.expires <= e.v.now && (e.v.p.op == opSweep || e.grants() > 0):
		return right
	}
	return endedUnasked
}

// judgeTogether is about the end of terms that are held with others.
func (e *effect) judgeTogether() wrong {
	p := &e.v.p
	for acq := range int8(acqs) {
		b, a := &e.before.claims[acq], &e.after.claims[acq]
		own := p.acq == acq && (p.op == opRelease && b.token == p.token && e.r.yes || p.op == opWithdraw && !e.r.guarded)
		locked := e.v.locks>>acq&1 == 1
		switch {
		case b.state != hasTerm:
		case e.sameTogether(acq):
			if *a != *b {
				return badTerm
			}
		case own:
			if p.guarded && !locked {
				return guardedEnded
			}
		case !locked:
			return guardedEnded
		case p.op == opRevoke && e.r.yes:
		case b.expires <= e.v.now && (e.grants() > 0 || p.op == opSweep || e.is(opEnter, acq)):
		default:
			return endedUnasked
		}
	}
	return right
}

// judgeReports is about the terms that are reported as crashed.
func (e *effect) judgeReports() wrong {
	n, p := 0, &e.v.p
	reported := func(acq int8, kind claim.Kind, token int8) bool {
		for _, t := range e.r.changes.Crashed {
			if acqOf(t.Acq) == acq && t.Kind == kind && int8(t.Token) == token {
				n++
				return true
			}
		}
		return false
	}
	acquires := p.op == opTry || p.op == opEnter // what is left of the same request is no crash
	mine := acquires && e.before.acq == p.acq && e.after.acq == p.acq
	if e.crashedAlone() && e.before.acq != key && !mine && !reported(e.before.acq, claim.Exclusive, e.before.version) {
		return notReported
	}
	for acq := range int8(acqs) {
		b := &e.before.claims[acq]
		ends := p.acq == acq && (acquires || p.op == opRelease && e.r.yes || p.op == opWithdraw) || p.op == opRevoke && e.r.yes
		if b.state == hasTerm && !e.sameTogether(acq) && !ends && !reported(acq, e.o.kind(acq), b.token) {
			return notReported
		}
	}
	if own := max(p.acq, 0); acquires && e.before.claims[own].state == hasTerm && !e.sameTogether(own) && e.grantsOthers() {
		reported(own, e.o.kind(own), e.before.claims[own].token) // whoever is served buries all
	}
	if n != len(e.r.changes.Crashed) {
		return reportedWrongly
	}
	return right
}

// grantsOthers reports that somebody else was granted the name than whoever makes the visit.
func (e *effect) grantsOthers() bool {
	ok, _ := e.granted(max(e.v.p.acq, 0))
	return e.grants() > 1 || e.grants() == 1 && !ok
}

// judgeQueue is about those who wait and are not granted the name.
func (e *effect) judgeQueue() wrong {
	p := &e.v.p
	for acq := range int8(acqs) {
		b, a := &e.before.claims[acq], &e.after.claims[acq]
		switch {
		case b.state == waits && a.state == waits:
			if *b != *a {
				return lostPosition
			}
		case b.state == waits && a.state == none && e.after.acq != acq:
			swept := p.op == opSweep && e.before.beats[lockerOf(acq)] <= e.v.now-gone
			if !swept && !e.is(opWithdraw, acq) && !e.is(opForget, acq) {
				return lostPosition
			}
		case a.state == waits:
			if !e.is(opEnter, acq) {
				return badWrite
			}
			for other := range int8(acqs) {
				if c := &e.before.claims[other]; c.state != none && c.seq >= a.seq || a.seq <= e.before.seq || a.seq < e.v.now {
					return lostPosition
				}
			}
		}
	}
	return right
}

// granted reports that a term of an acquisition has begun, and whether it is held alone.
func (e *effect) granted(acq int8) (ok, alone bool) {
	if e.after.acq == acq {
		return e.before.acq != acq || e.after.version != e.before.version, true
	}
	return e.after.claims[acq].state == hasTerm && !e.sameTogether(acq), false
}

func (e *effect) grants() (n int) {
	for acq := range int8(acqs) {
		if ok, _ := e.granted(acq); ok {
			n++
		}
	}
	return n
}

// judgeGrants is about the terms that have begun.
func (e *effect) judgeGrants(top int8) wrong {
	p := &e.v.p
	takes := p.op == opAdopt || p.op == opResume
	for acq := range int8(acqs) {
		ok, alone := e.granted(acq)
		if !ok {
			continue
		}
		waited := e.before.claims[acq].state == waits && e.r.advanced
		requested := p.acq == acq && (takes || p.op == opTry || p.op == opEnter)
		switch {
		case !waited && !requested || alone != (e.o.kind(acq) == claim.Exclusive):
			return grantedUnasked
		case e.v.pinned:
			return guardedEnded
		case !takes && e.after.notBefore > e.v.now:
			return keptNameGranted
		case !takes && e.passes(acq):
			return passedOver
		case p.acq != acq && !isAlive(e.v.alive, acq):
			return grantedToDead
		}
		if why := e.judgeTerm(acq, alone, top); why != right {
			return why
		}
	}
	return right
}

// passes reports that somebody waits who came before.
func (e *effect) passes(acq int8) bool {
	was := &e.before.claims[acq]
	for other := range int8(acqs) {
		b, a := &e.before.claims[other], &e.after.claims[other]
		first := was.state != waits || b.seq < was.seq
		if b.state == waits && a.state == waits && isAlive(e.v.alive, other) && first {
			return true
		}
	}
	return false
}

// judgeTerm is about one term that has begun.
func (e *effect) judgeTerm(acq int8, alone bool, top int8) wrong {
	q := e.o.request(acq)
	ttl, limit := q.TTL, int8(0)
	if e.before.claims[acq].state == waits && lockerOf(acq) != e.v.p.by {
		ttl = q.Handed
	}
	if q.MaxHold > 0 {
		ttl, limit = min(ttl, q.MaxHold+q.Delay), e.v.now+int8(q.MaxHold+q.Delay)
	}
	c := e.after.claims[acq]
	if e.o.kind(acq) == claim.Permit && (c.slot >= e.after.permits || e.after.permitted(e.o) > e.after.permits) {
		return badSlot
	}
	if alone {
		r := &e.after.lockRow
		c = claimRow{token: r.version, since: r.since, expires: r.expires, limit: r.limit}
		if r.delay != int8(q.Delay) {
			return badTerm
		}
	}
	if !alone && (c.seq <= e.before.seq || c.seq < e.v.now) {
		return badRow
	}
	if c.since != e.v.now || c.expires != e.v.now+int8(ttl) || c.limit != limit {
		return badTerm
	}
	if c.token <= top && !e.joins(acq) {
		return badToken
	}
	return right
}

// permitted is how many permits are held.
func (d *tables) permitted(o *options) (n int8) {
	for acq := range int8(acqs) {
		if d.claims[acq].state == hasTerm && o.kind(acq) == claim.Permit {
			n++
		}
	}
	return n
}

// joins reports that a reader has the token of a reader who held the name before.
func (e *effect) joins(acq int8) bool {
	for other := range int8(acqs) {
		if other != acq && e.o.kind(acq) == claim.Shared && e.o.kind(other) == claim.Shared && e.sameTogether(other) {
			return e.after.claims[other].token == e.after.claims[acq].token
		}
	}
	return false
}

// judgeVersion is about the version of the row.
func (e *effect) judgeVersion() wrong {
	rises := e.v.p.op == opRevoke && e.r.yes
	for acq := range int8(acqs) {
		if ok, _ := e.granted(acq); ok && !e.joins(acq) {
			rises = true
		}
	}
	if rises != (e.after.version > e.before.version) || rises && e.after.version < e.v.now || e.after.version < e.before.version {
		return badVersion
	}
	return right
}

// judgeNotices is about whom a visit tells that its claim was granted.
func (e *effect) judgeNotices() wrong {
	handOvers, wakes := 0, 0
	for acq := range int8(acqs) {
		ok, alone := e.granted(acq)
		if !ok || e.before.claims[acq].state != waits {
			continue
		}
		c := e.after.claims[acq]
		if alone {
			c = claimRow{token: e.after.version, expires: e.after.expires}
		}
		inReply, inWakes := 0, 0
		for _, t := range e.r.changes.HandOvers {
			if acqOf(t.Acq) == acq && int8(t.Token) == c.token && int8(t.Expires) == c.expires && int8(t.Slot) == c.slot {
				inReply++
			}
		}
		for _, t := range e.r.changes.Wakes {
			if acqOf(t.Acq) == acq && lockerAt(t.Locker) == lockerOf(acq) && t.At == 0 {
				inWakes++
			}
		}
		mine := lockerOf(acq) == e.v.p.by
		if mine && inReply+inWakes != 1 || mine && inReply != 1 && e.v.p.acq != acq || !mine && (inWakes != 1 || inReply != 0) {
			return notNotified
		}
		handOvers, wakes = handOvers+inReply, wakes+inWakes
	}
	for _, t := range e.r.changes.Wakes {
		if t.At != 0 {
			wakes++
		}
	}
	if handOvers != len(e.r.changes.HandOvers) || wakes != len(e.r.changes.Wakes) {
		return notifiedWrongly
	}
	return right
}

// judgeWakes is about the head of the queue of a name that is kept: it is told until when.
func (e *effect) judgeWakes() wrong {
	a := e.after
	head := e.head()
	keeps := e.r.advanced && head != nobody && e.before.claims[head].state == waits && !e.heldAlone(a) && a.notBefore > e.v.now
	n := 0
	for _, t := range e.r.changes.Wakes {
		if t.At == 0 {
			continue
		}
		if !keeps || acqOf(t.Acq) != head || lockerAt(t.Locker) != lockerOf(head) || int8(t.At) != a.notBefore {
			return notifiedWrongly
		}
		n++
	}
	if keeps && n != 1 {
		return notNotified
	}
	return right
}

// head is the first of those who wait after a visit whose Lockers live.
func (e *effect) head() int8 {
	x := world{db: *e.after}
	return x.nextWaiting(-1, e.v.alive)
}

// heldAlone reports that an exclusive term goes on.
func (e *effect) heldAlone(d *tables) bool {
	return d.acq != nobody && (d.expires > e.v.now || e.v.pinned)
}

// isShared reports that somebody holds the name together with others.
func (d *tables) isShared() bool {
	for acq := range d.claims {
		if d.claims[acq].state == hasTerm {
			return true
		}
	}
	return false
}

// judgeRow is about what the row says besides.
func (e *effect) judgeRow() wrong {
	b, a, p := e.before, e.after, &e.v.p
	notBefore, revoked, permits := b.notBefore, b.revoked, b.permits
	revokes := p.op == opRevoke && e.r.yes
	since, ends := b.since, false
	switch {
	case p.acq == nobody || p.op != opRelease && p.op != opWithdraw || e.r.guarded:
	case b.acq == p.acq && (p.op == opWithdraw || b.version == p.token):
		ends = true
	case b.claims[p.acq].state == hasTerm && (p.op == opWithdraw || b.claims[p.acq].token == p.token):
		since, ends = b.claims[p.acq].since, true
	}
	if minHold := e.o.minHold[max(p.acq, 0)/slots]; ends && minHold > 0 && since+minHold > e.v.now {
		notBefore = max(notBefore, since+minHold)
	}
	if revokes {
		notBefore = 0
	}
	if revokes && (b.acq != nobody || b.isShared()) {
		revoked = b.version
	}
	ended, expires := e.ending()
	if q := max(p.acq, 0); p.acq != nobody && e.o.kind(q) == claim.Permit && (p.op == opEnter || p.op == opTry && e.wasGranted()) &&
		e.r.answer.Outcome != claim.Mismatch {
		permits = cmp.Or(permits, e.o.permits[q/slots])
	}
	if p.op == opResize {
		permits = resized(permits)
	}
	if a.acq != nobody || a.isShared() {
		ended, expires = claim.NotEnded, a.expires
	}
	if a.notBefore != notBefore || a.ended != ended || a.expires != expires || a.revoked != revoked || a.permits != permits || a.seq < b.seq {
		return badRow
	}
	return right
}

// ending is what the row should say of the last term: how it ended, and when.
func (e *effect) ending() (how claim.Ended, at int8) {
	b, p := e.before, &e.v.p
	how, at = b.ended, b.expires
	end := func(expires int8, by claim.Ended) { how, at = by, min(expires, e.v.now) }
	reason := func(own bool) claim.Ended {
		switch {
		case p.op == opRevoke:
			return claim.Revoked
		case own && (p.op == opRelease || p.op == opWithdraw):
			return claim.Released
		}
		return claim.Expired
	}
	if b.acq != nobody && !e.sameAlone() && p.op != opDetach {
		end(b.expires, reason(b.acq == p.acq))
	}
	last, others := int8(nobody), false // the one who has left last: whoever makes the visit leaves before the dead
	for acq := range int8(acqs) {
		switch {
		case b.claims[acq].state != hasTerm:
		case e.sameTogether(acq):
			others = true
		case last == nobody || last == p.acq && p.op != opRevoke || acq != p.acq && b.claims[acq].seq > b.claims[last].seq:
			last = acq
		}
	}
	if last != nobody && !others {
		end(b.claims[last].expires, reason(last == p.acq))
	}
	for acq := range int8(acqs) {
		if ok, _ := e.granted(acq); ok && !e.joins(acq) {
			how = claim.NotEnded
		}
	}
	return how, at
}

// judgeChanges is about what a visit writes.
func (e *effect) judgeChanges() wrong {
	if e.r.changes.Changed != (*e.before != *e.after) {
		return badChanged
	}
	tells := e.tells()
	switch {
	case tells && !e.r.changes.Durable:
		return notDurable
	case !tells && e.r.changes.Durable:
		return flushedForNothing
	}
	return right
}

// tells reports that somebody relies on what a visit has done.
func (e *effect) tells() bool {
	p := &e.v.p
	return e.grants() > 0 || p.op == opRevoke && e.r.yes || e.before.permits != e.after.permits && p.op == opResize || p.op == opDetach && e.before.acq != e.after.acq
}

// judgeProgress is about a name that could be granted to somebody who waits.
func (e *effect) judgeProgress() wrong {
	if head := e.head(); e.r.advanced && !e.r.usedUp && head != nobody && e.isFree(head) {
		return leftIdle
	}
	return right
}
