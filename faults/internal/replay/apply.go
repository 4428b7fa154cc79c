package replay

import (
	"slices"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/faults/internal/history"
	"github.com/sqllock/sqllock/internal/claim"
)

// result is what a step may lead to.
type result struct {
	*world
	durable bool
}

// doubts are the ways in which a step at a time may have gone, the most likely first.
func (s *searcher) doubts(at int64) []doubt {
	all := []doubt{{}, {revived: true}}
	if slices.ContainsFunc(s.n.guards, func(g span) bool { return g.from <= at && at <= g.to }) || s.renewing(at) {
		all = append(all, doubt{guarded: true}, doubt{true, true})
	}
	return all
}

// renewing reports that a renewal of a claim may be under way, which locks it.
func (s *searcher) renewing(at int64) bool {
	return slices.ContainsFunc(s.renewals, func(g span) bool { return g.from <= at && at <= g.to })
}

// apply does a call at a time, if it can have answered what it has. It returns nothing if it cannot,
// or if the world that it leads to is not accepted.
func (s *searcher) apply(w *world, c *call, at int64, accept func(*world) bool) *result {
	if c.what == history.Renew {
		if c.when != 0 {
			at = c.when
		}
		if to := c.renew(w, at); to != nil && accept(to) {
			return &result{to, true}
		}
		return nil
	}
	for _, d := range s.doubts(at) {
		to, done := s.visit(w, c.locker, at, d, func(v *claim.Visit) bool { return c.do(v) })
		if to != nil && c.what == history.Acquire && c.known && c.Granted {
			to = c.lasts(to)
		}
		if to != nil && accept(to) {
			return &result{to, done.Durable}
		}
	}
	return nil
}

// do does a call in a visit, and reports whether it answered what is known.
func (c *call) do(v *claim.Visit) bool {
	switch c.what {
	case history.Acquire:
		a := v.Acquire(c.request())
		return !c.known || c.answers(&a)
	case history.Release:
		freed, _ := v.Release(c.acq, c.Token, c.MinHold, c.Guarded)
		return !c.known || freed == c.Freed && v.HandedOver() == c.Answer.Handed && c.tells(v.HandOvers())
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
		return c.Granted && c.Found == a.Found && c.Got == a.Token && c.Slot == a.Slot
	case claim.Queued:
		return !c.Granted && c.Waits && !(c.Ahead && a.First) // a claim of the same moment may be overlooked
	}
	return !c.Granted && !c.Waits
}

// tells reports whether a release has told of these hand-overs.
func (c *call) tells(all []claim.HandOver) bool {
	if len(all) != len(c.Next) {
		return false
	}
	for _, h := range all {
		if !slices.ContainsFunc(c.Next, func(n history.Next) bool { return id(n.Acq) == h.Acq && n.Token == h.Token && n.Slot == h.Slot }) {
			return false
		}
	}
	return true
}

// lasts gives the term of a grant the end that its answer tells: a statement may read the clock
// twice, for the token and for the end.
func (c *call) lasts(w *world) *world {
	to := &world{row: w.row, claims: slices.Clone(w.claims)}
	end := &to.row.Expires
	if held := to.find(c.acq); held != nil {
		end = &held.Expires
	}
	if c.Expires < *end || c.Expires > max(*end, c.Now+c.TTL) {
		return nil
	}
	*end = c.Expires
	return to
}

// renew does a renewal.
func (c *call) renew(w *world, at int64) *world {
	to := &world{row: w.row, claims: slices.Clone(w.claims)}
	renewed := false
	if held := to.find(c.acq); c.Shared && held != nil {
		renewed = held.Renew(c.Token, c.TTL, c.Holds, at)
	} else if !c.Shared {
		renewed = to.row.Renew(c.acq, c.Token, c.TTL, c.Holds, at)
	}
	if !renewed {
		return nil
	}
	return to
}

// advance serves the queue of a name on behalf of a Locker, or of one that nobody waits for.
func (s *searcher) advance(w *world, by driver.ID, at int64, accept func(*world) bool) *result {
	for _, d := range s.doubts(at) {
		to, done := s.visit(w, by, at, d, func(v *claim.Visit) bool { v.Advance(); return true })
		if to != nil && to != w && accept(to) {
			return &result{to, done.Durable}
		}
	}
	return nil
}

// sweep does what the reaper does.
func (s *searcher) sweep(w *world, at int64, accept func(*world) bool) *result {
	gone := func(locker driver.ID) bool { return !s.alive(locker, at-60e6, true) }
	for _, d := range s.doubts(at) {
		to, done := s.visit(w, driver.ID{}, at, d, func(v *claim.Visit) bool { v.Sweep(gone); return true })
		if to != nil && to != w && accept(to) {
			return &result{to, done.Durable}
		}
	}
	return nil
}
