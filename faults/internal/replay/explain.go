package replay

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/faults/internal/history"
	"github.com/sqllock/sqllock/internal/claim"
)

// searcher explains one name.
type searcher struct {
	h      *gathered
	n      *name
	steps  []*step
	report *Report
	bad    int // findings
}

// search explains all of a name. What it counts, it has explained.
func (s *searcher) search() {
	s.steps = s.n.steps()
	hard := len(s.report.Hard)
	s.chain()
	for _, t := range s.steps {
		s.explain(t)
	}
	reads := s.look()
	of := Report{Changes: len(s.steps)} // this name
	for _, c := range s.n.calls {
		of.count(&of.Calls, c.excused)
	}
	for _, r := range reads {
		switch {
		case r.what.call != nil: // it is counted
		case r.row != nil:
			of.count(&of.Snapshots, r.excused)
		default:
			of.count(&of.Looks, r.excused)
		}
	}
	if s.bad > 0 || len(s.report.Hard) > hard {
		s.report.Unjudged += of.Operations() + of.Excused
		return
	}
	s.report.add(&of)
}

// add adds what was counted of a name.
func (r *Report) add(of *Report) {
	r.Changes += of.Changes
	r.Calls += of.Calls
	r.Looks += of.Looks
	r.Snapshots += of.Snapshots
	r.Excused += of.Excused
}

// count counts what was explained, or excused.
func (r *Report) count(explained *int, excused bool) {
	if excused {
		explained = &r.Excused
	}
	*explained++
}

// resolution is that of the clock of a database, and more.
const resolution = 2000

// around reports that a call may have done something between two times.
func (c *stored) around(from, to int64) bool {
	return c.from-resolution <= to && from <= c.to+resolution
}

// most is how many visits are tried for a step.
const most = 20_000

// trial is a search for what has made a step.
type trial struct {
	*searcher
	*step
	nows   []int64
	visits int
	began  int64 // the earliest time at which its first statement may have begun

	contended bool // another transaction has changed the name since, and may still have let go only a part of its locks
}

// explain looks for what has made a step.
func (s *searcher) explain(t *step) {
	a := &trial{searcher: s, step: t, nows: t.nows()}
	sets := s.sets(t)
	for _, set := range sets {
		if a.made(set) {
			return
		}
	}
	if a.served() {
		return
	}
	if a.visits > most {
		s.report.Hard = append(s.report.Hard, Finding{s.h.clock.raw(t.at), s.n.name, t.String()})
		return
	}
	for _, set := range s.vain(t) {
		if a.made(set) {
			s.finding(t.at, fmt.Sprintf("%s has made a change although its error says that nothing was done: %s", set[0], t))
			return
		}
	}
	s.finding(t.at, "nothing explains the change "+t.String())
}

// sets are the calls that may have made a step, those of one call of a store together, the most
// likely first: those that say that they have done something, then those that may have, then those
// whose answers were lost.
func (s *searcher) sets(t *step) [][]*call {
	return s.gather(t, func(c *call) bool { return !c.used && !c.stored.vain })
}

// vain are those whose errors say that they have done nothing.
func (s *searcher) vain(t *step) [][]*call {
	return s.gather(t, func(c *call) bool { return c.stored.vain })
}

func (s *searcher) gather(t *step, which func(c *call) bool) (sets [][]*call) {
	about := t.about()
	for _, acq := range about {
		for _, c := range s.n.byAcq[acq] {
			if !which(c) || !c.around(t.at, t.to) || (c.what == history.Renew) != t.extends() || c.what == history.Reading {
				continue
			}
			i := slices.IndexFunc(sets, func(set []*call) bool { return set[0].stored == c.stored })
			if i < 0 {
				sets = append(sets, nil)
				i = len(sets) - 1
			}
			sets[i] = append(sets[i], c)
		}
	}
	for _, set := range sets { // in the order in which a visit serves them
		slices.SortFunc(set, func(a, b *call) int { return cmp.Compare(slices.Index(a.calls, a), slices.Index(b.calls, b)) })
	}
	rank := func(set []*call) int {
		r := 2
		for _, c := range set {
			r = min(r, c.rank())
		}
		return r
	}
	slices.SortStableFunc(sets, func(a, b []*call) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a[0].from, b[0].from))
	})
	return sets
}

// extends reports that a step makes terms last longer, and does nothing else.
func (t *step) extends() bool {
	return !slices.ContainsFunc(t.rows, func(c *change) bool {
		if c.Table == history.ClaimTable {
			return !c.renews()
		}
		if c.Old == nil || c.New == nil || c.New.Acq == "" {
			return true
		}
		was := *c.Old
		was.Holds, was.Expires = c.New.Holds, c.New.Expires
		return was != *c.New
	})
}

// rank is 0 of a call that says that it has done something, 1 of one that may have, 2 of one without
// an answer.
func (c *call) rank() int {
	switch {
	case c.done():
		return 0
	case c.known:
		return 1
	}
	return 2
}

// done reports that a call says that it has done something.
func (c *call) done() bool {
	return c.known && (c.Granted && !c.Found || c.Freed || c.Status == "renewed")
}

// most requests of one call of a store that are tried in all combinations.
const mostTogether = 6

// made reports that a call of a store has made the step, and notes it. It may have done so for some
// of its requests, and for the others in another transaction.
func (a *trial) made(set []*call) bool {
	all := [][]*call{set}
	if n := len(set); n > 1 && n <= mostTogether {
		for bits := 1; bits < 1<<n-1; bits++ {
			var some []*call
			for i, c := range set {
				if bits>>i&1 == 1 {
					some = append(some, c)
				}
			}
			all = append(all, some)
		}
	}
	for _, some := range all {
		if a.lead(some[0].locker, some[0].from, func(w *world, now int64, d doubt) *world { return a.apply(w, some, now, d) }) {
			for _, c := range some {
				c.used = true
			}
			return true
		}
	}
	return false
}

// lead reports that do leads to what is after the step, at some time since from, in some of the
// ways in which what is not known may have been.
func (a *trial) lead(locker driver.ID, from int64, do func(w *world, now int64, d doubt) *world) bool {
	a.began = max(from, a.at-slowest)
	nows := a.nows
	if len(nows) == 0 {
		nows = a.expiries()
	}
	for _, d := range a.doubts() {
		for _, now := range nows {
			if now < from-resolution || now > a.to+resolution {
				continue
			}
			if a.visits++; a.visits > most {
				return false
			}
			if to := do(a.before, now, d); to != nil && to != a.before && to.equivalent(a.after) {
				return true
			}
		}
	}
	return false
}

// expiries are times at which a step may have been decided on that does not tell when: those before
// and after which a visit decides otherwise, because something has expired.
func (a *trial) expiries() []int64 {
	all := []int64{a.at}
	add := func(until int64) {
		if until > a.began && until <= a.at {
			all = append(all, until-1)
		}
	}
	add(a.before.row.NotBefore)
	if a.before.row.Acq != (driver.ID{}) {
		add(a.before.row.Expires)
	}
	for i := range a.before.claims {
		if c := &a.before.claims[i]; c.State == claim.Holding {
			add(c.Expires)
		}
	}
	slices.Sort(all)
	slices.Reverse(all) // most often it was just now
	return slices.Compact(all)
}

// nows are the times at which a step may have been decided on, as what it has written tells.
func (t *step) nows() (all []int64) {
	was, is := &t.before.row, &t.after.row
	if is.Since != was.Since {
		all = append(all, is.Since)
	}
	if is.Expires != was.Expires && is.Acq == (driver.ID{}) { // or the term had expired before
		all = append(all, is.Expires, t.at)
	}
	for i := range t.after.claims {
		c := &t.after.claims[i]
		switch old := t.before.find(c.Acq); {
		case old != nil && old.State == c.State && old.Seq == c.Seq:
		case c.State == claim.Holding:
			all = append(all, c.Since)
		default:
			all = append(all, c.Seq, c.Since)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// slowest is how long a statement takes at most, from its begin to what it does.
const slowest = 5_000_000

// doubts are the ways in which what is not known may have been, the most likely first.
func (a *trial) doubts() []doubt {
	all := []doubt{{}}
	more := func(change func(d *doubt)) {
		if len(all) > most {
			return
		}
		for _, d := range all {
			d.dead, d.locked = slices.Clone(d.dead), slices.Clone(d.locked)
			change(&d)
			all = append(all, d)
		}
	}
	guards := a.contended || slices.ContainsFunc(a.n.guards, func(g span) bool { return g.from-resolution <= a.to && a.began <= min(g.to, g.from+longest)+resolution })
	var lockers []driver.ID
	for i := range a.before.claims {
		c := &a.before.claims[i]
		switch {
		case c.State == claim.Waiting && !slices.Contains(lockers, c.Locker) && a.h.alive(c.Locker, a.began, a.to) == perhaps:
			lockers = append(lockers, c.Locker)
			more(func(d *doubt) { d.dead = append(d.dead, c.Locker) })
		case c.State == claim.Holding && c.Expires <= a.to && (guards || c.Expires >= a.began || a.renewing(c.Acq)):
			more(func(d *doubt) { d.locked = append(d.locked, c.Acq) })
		}
	}
	if guards {
		more(func(d *doubt) { d.guarded = true })
	}
	return all
}

// renewing reports that somebody may be renewing a claim.
func (a *trial) renewing(acq driver.ID) bool {
	return slices.ContainsFunc(a.n.byAcq[acq], func(c *call) bool { return c.what == history.Renew && c.around(a.began, a.to) })
}

// apply does requests in one visit, if they can have answered what they have.
func (a *trial) apply(w *world, calls []*call, now int64, d doubt) *world {
	if c := calls[0]; c.what == history.Renew {
		return a.renew(w, calls)
	}
	for _, c := range calls {
		if c.known && c.Now != 0 && now > c.Now+resolution {
			return nil
		}
	}
	stale := calls[0].Ahead && a.stale(calls[0])
	to, _ := a.visit(w, calls[0].locker, now, d, func(v *claim.Visit) bool {
		for _, c := range calls {
			if !c.do(v, stale) {
				return false
			}
		}
		return true
	})
	return to
}

// stale reports that somebody waited for the name when a call began, other than its acquisition: it
// may say so although that has changed meanwhile.
func (a *trial) stale(c *call) bool {
	for i := slices.Index(a.steps, a.step); i >= 0; i-- {
		t := a.steps[i]
		if slices.ContainsFunc(t.before.claims, func(o claim.Claim) bool {
			return o.State == claim.Waiting && o.Acq != c.acq && a.h.alive(o.Locker, c.from, a.to) != dead
		}) {
			return true
		}
		if t.at < c.from-resolution {
			return false
		}
	}
	return false
}

// do does a call in a visit, and reports whether it answered what is known.
func (c *call) do(v *claim.Visit, stale bool) bool {
	switch c.what {
	case history.Acquire:
		got := v.Acquire(c.request())
		got.First = got.First && !stale
		return !c.known || c.answers(&got)
	case history.Release:
		before, handed := len(v.HandOvers()), v.HandedOver()
		freed, _ := v.Release(c.acq, c.Token, c.MinHold, c.Guarded)
		return !c.known || freed == c.Freed && v.HandedOver()-handed == c.Answer.Handed && c.tells(v.HandOvers()[before:])
	}
	return !v.Withdraw(c.acq, c.MinHold, c.Guarded)
}

// request is what the call requests for.
func (c *call) request() claim.Request {
	r := claim.Request{
		Party:  claim.Party{Acq: c.acq, Locker: c.locker, Owner: c.Owner},
		Limits: claim.Limits{TTL: c.TTL, Handed: c.TTL}, Waits: c.Waits,
	}
	if c.Waits {
		r.Handed = c.Request.Handed
	}
	switch {
	case c.Shared:
		r.Kind = claim.Shared
	case c.Permits != 0:
		r.Kind, r.Permits = claim.Permit, c.Permits
	}
	return r
}

// answers reports whether a request was answered like that.
func (c *call) answers(a *claim.Answer) bool {
	switch a.Outcome {
	case claim.Granted:
		return c.Granted && c.Found == a.Found && c.Got == a.Token && c.Slot == a.Slot && c.Expires == a.Expires
	case claim.Queued:
		return !c.Granted && c.Waits && !(c.Ahead && a.First) // a claim of the same moment may be overlooked
	}
	return !c.Granted && !c.Waits
}

// tells reports whether a release has told of these hand-overs.
func (c *call) tells(all []claim.HandOver) bool {
	return len(all) == len(c.Next) && !slices.ContainsFunc(all, func(h claim.HandOver) bool {
		return !slices.ContainsFunc(c.Next, func(n history.Next) bool {
			return id(n.Acq) == h.Acq && n.Token == h.Token && n.Slot == h.Slot && n.Expires == h.Expires
		})
	})
}

// renew does renewals: each of them at the time that the term's new end tells.
func (a *trial) renew(w *world, calls []*call) *world {
	to := &world{row: w.row, claims: slices.Clone(w.claims)}
	for _, c := range calls {
		if c.known && c.Status != "renewed" {
			return nil
		}
		if c.Shared {
			held, is := to.find(c.acq), a.after.find(c.acq)
			if held == nil || is == nil || !held.Renew(c.Token, c.TTL, c.Holds, a.moment(c, held.Expires, is.Expires)) {
				return nil
			}
			held.Expires = a.later(c, held.Expires, is.Expires)
		} else {
			if !to.row.Renew(c.acq, c.Token, c.TTL, c.Holds, a.moment(c, to.row.Expires, a.after.row.Expires)) {
				return nil
			}
			to.row.Expires = a.later(c, to.row.Expires, a.after.row.Expires)
		}
	}
	return to
}

// moment is when a renewal was decided on that has made a term last until is, which lasted until
// was. It locks the row, and looks at the clock twice: whether the term goes on, and until when.
func (a *trial) moment(c *call, was, is int64) int64 {
	switch now := is - c.TTL; {
	case is == was || now < c.from-resolution || now > a.to+resolution || c.known && now > c.Now+resolution:
		return a.at
	case now >= was && c.from < was:
		return was - 1
	default:
		return now
	}
}

// later is the end of a term that a renewal has made last until to, and which lasts until is, if the
// renewal has looked at the clock a second time just then.
func (a *trial) later(c *call, to, is int64) int64 {
	if now := is - c.TTL; is > to && now <= a.to+resolution && (!c.known || now <= c.Now+resolution) {
		return is
	}
	return to
}
