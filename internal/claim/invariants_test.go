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
		if kind == claim.Permit && (slots>>c.slot&1 == 1 || c.slot >= o.mostPermits(d.permits)) {
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
		return fmt.Sprintf("the row counts %d waiting and %d holding claims, there are %d and %d",
			d.waiting, d.holding, waiting[waits], waiting[hasTerm])
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
		return w.clients[i].permit == w.clients[j].permit || w.permitted(o) > o.mostPermits(w.db.permits)
	}
	return true
}

// mostPermits is how many permits may be held if there are so many now: more if there were more.
// That no more are granted is judged when they are.
func (o *options) mostPermits(permits int8) int8 {
	if o.resizes > 0 && permits > 0 {
		return max(permits, resized(permits))
	}
	return permits
}

func (w *world) permitted(o *options) (n int8) {
	for i := range int8(clients) {
		if o.kinds[i] == claim.Permit && w.counts(i) {
			n++
		}
	}
	return n
}
