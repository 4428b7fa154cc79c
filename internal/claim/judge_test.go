package claim_test

import (
	"fmt"

	"github.com/sqllock/sqllock/internal/claim"
)

// wrong is a rule that a step has broken.
type wrong uint8

const (
	right wrong = iota
	mixedUp
	badWrite
	badChanged
	badRenewal
	badVersion
	badTerm
	badSlot
	badAnswer
	badToken
	badRow
	fastDiffers
	passedOver
	keptNameGranted
	leftIdle
	leftBehind
	grantedToDead
	grantedUnasked
	endedUnasked
	guardedEnded
	notReported
	reportedWrongly
	notNotified
	notifiedWrongly
	lostPosition
	notDurable
	flushedForNothing
	refusedWrongly
)

func (w wrong) String() string {
	return [...]string{
		"right", "a row or a claim is another's", "a claim is inserted twice or deleted although it is not there",
		"what Changed says is not so", "a renewal does not do what it should", "the version does not rise, or rises for nothing",
		"a term is not as long as it should be", "a permit is not of the name", "an answer does not say what is so",
		"a token is not new, or not that of the term", "the row does not say what happened",
		"a statement on the row alone does not do what a visit does", "a waiter was passed over", "a name that is kept was granted",
		"a name that somebody waits for was left to nobody", "a withdrawal has left something",
		"a name was handed to a Locker that is not heard of", "a name was granted to somebody who has not asked",
		"a term was ended that goes on", "a term ended although a transaction guards it, or the claim is locked",
		"a term that has expired was not reported", "a term was reported that has not expired", "a waiter that was granted was not told",
		"somebody was told what is not so", "a waiter has lost its place", "what was told need not be flushed",
		"what need not be flushed was", "a request was refused although nobody is in its way",
	}[w]
}

// fail notes the first thing that is wrong.
func (w *world) fail(why wrong) {
	if w.wrong == right {
		w.wrong = why
	}
}

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
	if e.crashedAlone() && e.before.acq != key && !(acquires && e.before.acq == p.acq && e.after.acq == p.acq) && !reported(e.before.acq, claim.Exclusive, e.before.version) {
		return notReported
	}
	for acq := range int8(acqs) {
		b := &e.before.claims[acq]
		ends := p.acq == acq && (acquires || p.op == opRelease && e.r.yes || p.op == opWithdraw) || p.op == opRevoke && e.r.yes
		if b.state == hasTerm && !e.sameTogether(acq) && !ends && !reported(acq, e.o.kind(acq), b.token) {
			return notReported
		}
	}
	if own := p.acq; acquires && own != nobody { // nor is it wrong to say so
		if e.before.claims[own].state == hasTerm && !e.sameTogether(own) {
			reported(own, e.o.kind(own), e.before.claims[own].token)
		}
	}
	if n != len(e.r.changes.Crashed) {
		return reportedWrongly
	}
	return right
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
			if !swept && !e.is(opWithdraw, acq) {
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
		return e.after.version != e.before.version, true
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
	if kept := since + e.o.minHold[max(p.acq, 0)/slots]; ends && kept > e.v.now {
		notBefore = max(notBefore, kept)
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
		permits = e.o.permits[q/slots]
	}
	if a.notBefore != notBefore || a.acq == nobody && !a.isShared() && a.ended != ended || (a.acq != nobody || a.isShared()) && a.ended != claim.NotEnded || a.revoked != revoked || a.permits != permits || a.seq < b.seq ||
		a.acq == nobody && !a.isShared() && a.expires != expires {
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
	guarded := p.op == opResume && mine && !held && e.v.pinned
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
	differs := q.Kind == claim.Permit && e.before.permits != 0 && int8(q.Permits) != e.before.permits && !e.hadTerm(p.acq)
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
	return readers == 0 && permitted < e.o.permits[acq/slots]
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
	return e.grants() > 0 || p.op == opRevoke && e.r.yes || p.op == opDetach && e.before.acq != e.after.acq
}

// judgeProgress is about a name that could be granted to somebody who waits.
func (e *effect) judgeProgress() wrong {
	if head := e.head(); e.r.advanced && !e.r.usedUp && head != nobody && e.isFree(head) {
		return leftIdle
	}
	return right
}

// has reports that an acquisition has a term or waits.
func (w *world) has(acq int8) bool { return w.db.acq == acq || w.db.claims[acq].state != none }

// broken returns the invariant that a world breaks, or "".
func (w *world) broken(o *options) string {
	for i := range int8(clients) {
		for j := i + 1; j < clients; j++ {
			if w.counts(i) && w.counts(j) && w.excludes(o, i, j) {
				return fmt.Sprintf("clients %d and %d both hold", i, j)
			}
		}
	}
	if w.wrong != right {
		return w.wrong.String()
	}
	return w.brokenTables(o)
}

// brokenTables is broken for what the database has.
func (w *world) brokenTables(o *options) string {
	d := &w.db
	var waiting, kinds [3]int8
	slots, tokens := uint8(0), [acqs]int8{}
	for acq := range int8(acqs) {
		c := &d.claims[acq]
		waiting[c.state]++
		if w.guards>>acq&1 == 1 && d.acq != acq && c.state != hasTerm {
			return "a term has ended although a transaction guards it"
		}
		if c.state != hasTerm {
			continue
		}
		kind := o.kind(acq)
		kinds[kind]++
		if kind == claim.Permit && (slots>>c.slot&1 == 1 || c.slot >= d.permits) {
			return "two permits share a slot, or there is one too many"
		}
		if kind == claim.Permit {
			slots |= 1 << c.slot
		}
		tokens[acq] = c.token
		for other := range acq {
			if shares := kind == claim.Shared && o.kind(other) == claim.Shared; tokens[other] != 0 && shares != (tokens[other] == c.token) {
				return "readers have two tokens, or others share one"
			}
		}
	}
	counted := waiting[waits] == d.waiting && waiting[hasTerm] == d.holding ||
		d.miscounted && waiting[waits] <= d.waiting && waiting[hasTerm] <= d.holding
	switch {
	case !counted:
		return fmt.Sprintf("the row counts %d waiting and %d holding claims, there are %d and %d", d.waiting, d.holding, waiting[waits], waiting[hasTerm])
	case kinds[claim.Exclusive] > 0 || kinds[claim.Shared] > 0 && kinds[claim.Permit] > 0 || d.acq != nobody && d.isShared():
		return "two hold in the tables who exclude each other"
	}
	return ""
}

// counts reports that a client believes that it holds, or that its open transaction guards
// the name, and that nobody has ended its term by force: that one is not asked.
func (w *world) counts(i int8) bool {
	c := &w.clients[i]
	return c.phase == holding && now < c.trust && c.token > w.revoked
}

func (w *world) excludes(o *options, i, j int8) bool {
	a, b := o.kinds[i], o.kinds[j]
	switch {
	case a == claim.Shared && b == claim.Shared:
		return false
	case a == claim.Permit && b == claim.Permit:
		return w.clients[i].permit == w.clients[j].permit || w.permitted(o) > w.db.permits
	}
	return true
}

func (w *world) permitted(o *options) (n int8) {
	for i := range int8(clients) {
		if o.kinds[i] == claim.Permit && w.counts(i) {
			n++
		}
	}
	return n
}
