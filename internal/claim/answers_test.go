package claim_test

import (
	"cmp"

	"github.com/sqllock/sqllock/internal/claim"
)

// judgeAnswer is about what the caller is told.
func (e *effect) judgeAnswer() wrong {
	p, b := &e.v.p, e.before
	switch p.op {
	case opTry, opEnter:
		return e.judgeAcquire()
	case opAdopt, opResume:
		return e.judgeTakes()
	case opRelease:
		held := b.acq == p.acq && b.version == p.token
		shared := b.claims[p.acq].state == hasTerm && b.claims[p.acq].token == p.token
		guarded := held && e.v.pinned || !held && shared && p.guarded && e.v.locks>>p.acq&1 == 0
		if e.r.yes != ((held || shared) && !guarded) || e.r.guarded != guarded {
			return badAnswer
		}
	case opWithdraw:
		guarded := b.acq == p.acq && e.v.pinned || b.claims[p.acq].state == hasTerm && p.guarded && e.v.locks>>p.acq&1 == 0
		if e.r.guarded != guarded {
			return badAnswer
		}
		if !guarded && (e.after.acq == p.acq || e.after.claims[p.acq].state != none) {
			return leftBehind
		}
	case opForget:
		if e.after.claims[p.acq].state == waits {
			return leftBehind
		}
	case opRevoke:
		return e.judgeRevoke()
	case opDetach:
		mine := b.version == p.token && e.heldAlone(b)
		guarded := mine && b.acq == p.acq && e.v.pinned
		if e.r.yes != (mine && (b.acq == key || b.acq == p.acq && !guarded)) || e.r.guarded != guarded {
			return badAnswer
		}
	}
	return right
}

// judgeRevoke is judgeAnswer for a revocation.
func (e *effect) judgeRevoke() wrong {
	b, a := e.before, e.after
	any := b.acq != nobody || b.isShared() || b.notBefore > e.v.now
	guarded := e.v.pinned && any
	for acq := range int8(acqs) {
		if b.claims[acq].state == hasTerm && e.v.locks>>acq&1 == 0 {
			guarded = true
		}
		if e.r.yes && e.sameTogether(acq) {
			return leftBehind
		}
	}
	if e.r.yes != (any && !guarded) || e.r.guarded != guarded {
		return badAnswer
	}
	if e.r.yes && (e.sameAlone() && b.acq != nobody || a.version == b.version) {
		return leftBehind
	}
	return right
}

// hadTerm reports that an acquisition held the name when the visit began.
func (e *effect) hadTerm(acq int8) bool {
	c := &e.before.claims[acq]
	return e.before.acq == acq && e.heldAlone(e.before) ||
		c.state == hasTerm && c.expires > e.v.now
}

// judgeGrantAnswer is about the answer to a request that was granted.
func (e *effect) judgeGrantAnswer() wrong {
	acq, a := e.v.p.acq, &e.r.answer
	c := e.after.claims[acq]
	if e.after.acq == acq {
		c = claimRow{state: hasTerm, token: e.after.version, expires: e.after.expires}
	}
	switch {
	case c.state != hasTerm || int8(a.Token) != c.token || int8(a.Expires) != c.expires || int8(a.Slot) != c.slot:
		return badAnswer
	case a.Found != e.hadTerm(acq):
		return badAnswer
	}
	return right
}

// judgeTakes is judgeAnswer for requests that take a term over.
func (e *effect) judgeTakes() wrong {
	p, b := &e.v.p, e.before
	mine := e.heldAlone(b) && b.acq == key
	if p.op == opResume {
		mine = e.heldAlone(b) && b.acq != key && b.version == p.token && e.o.owner(max(b.acq, 0)/slots) == e.o.owner(p.acq/slots)
	}
	held := e.hadTerm(p.acq)
	guarded := mine && !held && e.v.pinned
	if e.wasGranted() != (held || mine && !e.v.pinned) || e.r.guarded != guarded {
		return badAnswer
	}
	if e.wasGranted() {
		return e.judgeGrantAnswer()
	}
	return right
}

// judgeAcquire is judgeAnswer for requests that ask for the name.
func (e *effect) judgeAcquire() wrong {
	p, a, r := &e.v.p, e.after, &e.r.answer
	q := e.o.request(p.acq)
	differs := q.Kind == claim.Permit && e.before.permits != 0 && int8(q.Permits) != e.before.permits && !e.hadTerm(p.acq) &&
		e.before.claims[p.acq].state != waits
	own := &a.claims[p.acq]
	has := a.acq == p.acq && e.heldAlone(a) || own.state == hasTerm && own.expires > e.v.now
	want := claim.Refused
	switch {
	case differs:
		want = claim.Mismatch
	case has:
		want = claim.Granted
	case p.op == opEnter:
		want = claim.Queued
	}
	switch {
	case r.Outcome != want || int8(r.Permits) != a.permits && (q.Kind == claim.Permit || want != claim.Granted):
		return badAnswer
	case want == claim.Granted:
		return e.judgeGrantAnswer()
	case differs:
		return right
	case r.First && (want != claim.Queued || e.isBehind(p.acq)):
		return badAnswer
	case !r.First && want == claim.Queued && !e.isBehind(p.acq) && !e.r.usedUp:
		return badAnswer
	case want == claim.Queued && a.claims[p.acq].state == none:
		return badAnswer
	case own.state == hasTerm: // it has expired, but cannot be locked
		return right
	case !e.r.usedUp && !e.isBehind(p.acq) && e.isFree(p.acq):
		return refusedWrongly
	}
	return right
}

// isBehind reports that somebody waits before an acquisition.
func (e *effect) isBehind(acq int8) bool {
	c := &e.after.claims[acq]
	for other := range int8(acqs) {
		d := &e.after.claims[other]
		if other != acq && d.state == waits && isAlive(e.v.alive, other) && (c.state != waits || d.seq < c.seq) {
			return true
		}
	}
	return false
}

// isFree reports that nobody who holds the name after a visit keeps an acquisition from it.
func (e *effect) isFree(acq int8) bool {
	a := e.after
	if e.v.pinned || e.heldAlone(a) || a.notBefore > e.v.now {
		return false
	}
	readers, permitted := int8(0), int8(0)
	for other := range int8(acqs) {
		c := &a.claims[other]
		switch {
		case c.state != hasTerm || c.expires <= e.v.now && e.v.locks>>other&1 == 1:
		case e.o.kind(other) == claim.Shared:
			readers++
		default:
			permitted++
		}
	}
	switch e.o.kind(acq) {
	case claim.Exclusive:
		return readers+permitted == 0
	case claim.Shared:
		return permitted == 0
	}
	return readers == 0 && permitted < cmp.Or(a.permits, e.o.permits[acq/slots])
}
