package replay

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/sqllock/sqllock/faults/internal/history"
	"github.com/sqllock/sqllock/internal/claim"
)

// read is something that somebody has seen of a name: a snapshot of the tables, a lease that is
// held, an answer that needed no change. What was seen is some world of the time between from and
// to.
type read struct {
	from, to int64
	what     what
	row      *world // a snapshot, or
	ok       func(w *world) bool
	excused  bool // it is not explained, and a crash may have undone it
}

// what names a read for people.
type what struct {
	event *history.Event
	call  *call
	row   *history.Row
}

func (w what) String() string {
	switch {
	case w.call != nil:
		return w.call.String()
	case w.row != nil:
		return fmt.Sprintf("the snapshot at %d: %+v", w.event.Wall, *w.row)
	}
	return fmt.Sprintf("the %s of %s with token %d at %d", w.event.Op, w.event.Lease, w.event.Token, w.event.T)
}

func (c *call) String() string {
	if !c.known {
		return fmt.Sprintf("the %s of %s between %d and %d, whose answer is not known", c.what, c.acq, c.from, c.to)
	}
	return fmt.Sprintf("the %s of %s between %d and %d, answered with %+v", c.what, c.acq, c.from, c.to, c.Answer)
}

// look looks for worlds that explain what was seen. It returns all reads. Of answers and snapshots a
// crash may have undone what they say. What a client holds is flushed.
func (s *searcher) look() []*read {
	for _, c := range s.n.calls {
		switch {
		case !c.known:
			c.excused = !c.used
		case c.Now != 0 && (c.Now < c.from-resolution || c.Now > c.to+resolution):
			s.finding(c.from, "the clock of the database is that of the machine, but "+c.String())
		case !c.used:
			c.excused = !s.unused(c)
		}
	}
	v := s.views()
	for _, r := range s.n.reads {
		isLease := r.row == nil && r.what.call == nil
		switch {
		case v.explains(r):
		case isLease || !s.h.crashed(r.from, r.to):
			s.finding(r.from, "nothing explains "+r.what.String())
		default:
			r.excused = true
			if r.what.call != nil {
				r.what.call.excused = true
			}
		}
	}
	return s.n.reads
}

// unused adds what a call has seen that has made no change. If it says that it has made one, a crash
// may have undone that, unless it is flushed. It returns false if the call says nothing that can be
// judged.
func (s *searcher) unused(c *call) (judged bool) {
	if c.done() && !(c.what == history.Release && c.Answer.Handed == 0 && s.h.crashed(c.from, c.to)) && c.Status != "renewed" {
		s.finding(c.from, "no change is "+c.String())
		return true
	}
	saw := func(ok func(w *world) bool) {
		judged = true
		s.n.reads = append(s.n.reads, &read{from: c.from - resolution, to: c.to + resolution, what: what{call: c}, ok: ok})
	}
	nothing := func(w *world) bool { return w.find(c.acq) == nil && w.row.Acq != c.acq }
	switch c.what {
	case history.Acquire:
		switch {
		case c.Granted:
			saw(func(w *world) bool { return w.hasTerm(c.acq, c.Got) })
		case c.Waits:
			saw(func(w *world) bool {
				held := w.find(c.acq)
				waits := held != nil && held.State == claim.Waiting && (!c.Ahead || w.claims[0].Seq < held.Seq)
				return waits || s.leaves(w, c)
			})
		case c.All && !c.Refused: // another name was in the way
		default:
			saw(func(w *world) bool { return s.refuses(w, c) })
		}
	case history.Renew:
		switch c.Status {
		case "gone":
			saw(func(w *world) bool { return !w.renews(c, c.to) })
		case "renewed": // it would have ended earlier
			saw(func(w *world) bool { return w.renews(c, c.from+c.TTL-resolution) })
		}
	case history.Withdraw:
		saw(nothing)
	case history.Release:
		if !c.Freed && !c.Guarded {
			saw(func(w *world) bool { return !w.hasTerm(c.acq, c.Token) })
		}
	case history.Reading:
		if c.Holder != "" {
			saw(func(w *world) bool {
				return w.row.Acq == id(c.Holder) && w.row.Version == c.Got && w.row.Expires == c.Expires
			})
		}
	}
	return judged
}

// refuses reports that a world refuses a call that does not wait.
func (s *searcher) refuses(w *world, c *call) bool {
	return s.could(w, c, func(a *claim.Answer, _ bool) bool { return a.Outcome == claim.Refused })
}

// leaves reports that a call that waits leaves a world as it is. It does so even if its acquisition
// has a term that has expired, and that somebody is renewing.
func (s *searcher) leaves(w *world, c *call) bool {
	return s.could(w, c, func(a *claim.Answer, changed bool) bool { return !changed && c.answers(a) })
}

// could reports that the answer to an acquisition could be as accept says.
func (s *searcher) could(w *world, c *call, accept func(a *claim.Answer, changed bool) bool) bool {
	a := &trial{searcher: s, step: &step{at: c.Now, to: c.Now, before: w, after: w}, began: max(c.from, c.Now-slowest)}
	a.contended = slices.ContainsFunc(s.steps, func(t *step) bool { return !t.renews() && c.around(t.at, t.to) })
	for _, d := range a.doubts() {
		var answer claim.Answer
		to, _ := a.visit(w, c.locker, c.Now, d, func(v *claim.Visit) bool {
			answer = v.Acquire(c.request())
			return true
		})
		if accept(&answer, to != w) {
			return true
		}
	}
	return false
}

// renews reports that a renewal at a time would be done.
func (w *world) renews(c *call, now int64) bool {
	if c.Shared {
		held := w.find(c.acq)
		return held != nil && held.State == claim.Holding && held.Token == c.Token && held.Expires > now
	}
	return w.row.Acq == c.acq && w.row.Version == c.Token && w.row.Expires > now
}

// views are the worlds of a name, and when they could be seen.
type views struct {
	steps    []*step
	rows     []int   // those of them that have locked the row
	earliest []int64 // when the earliest of each step and those after it was done
}

func (s *searcher) views() *views {
	v := &views{steps: s.steps, earliest: make([]int64, len(s.steps))}
	for i, t := range s.steps {
		if !t.renews() {
			v.rows = append(v.rows, i)
		}
	}
	earliest := int64(math.MaxInt64)
	for i := len(s.steps) - 1; i >= 0; i-- {
		earliest = min(earliest, s.steps[i].at)
		v.earliest[i] = earliest
	}
	return v
}

// between returns the first and the last step after which somebody may have seen the name between
// two times; -1 is before all. A step may have been seen from its change on, and was before the next
// but one began: that one has locked the row after the commit of the next. A renewal may be written
// down before a step that was done earlier, because it locks another row.
func (v *views) between(from, to int64) (first, last int) {
	n := sort.Search(len(v.rows), func(i int) bool { return v.steps[v.rows[i]].at >= from })
	first = -1
	if n > 0 {
		first = v.rows[n-1] - 1
	}
	last = max(first, sort.Search(len(v.steps), func(i int) bool { return v.earliest[i] > to })-1)
	return first, last
}

// explains reports that a world explains a read.
func (v *views) explains(r *read) bool {
	first, last := v.between(r.from, r.to)
	for i := first; i <= last; i++ {
		w := v.world(i)
		if r.row == nil && r.ok(w) || r.row != nil && v.shows(w, r.row, first, last) {
			return true
		}
	}
	return false
}

func (v *views) world(i int) *world {
	switch {
	case i >= 0:
		return v.steps[i].after
	case len(v.steps) > 0:
		return v.steps[0].before
	}
	return &world{}
}

// recent is how many steps a renewal of a claim, which does not lock the row, may be committed late.
const recent = 50

// shows reports that a snapshot may be one of a world. Claims are renewed without the row, so each
// may be one of another moment.
func (v *views) shows(w, snapshot *world, first, last int) bool {
	to := &world{row: w.row, claims: slices.Clone(w.claims)}
	if len(to.claims) != len(snapshot.claims) {
		return false
	}
	for i := range to.claims {
		c, is := &to.claims[i], &snapshot.claims[i]
		if c.Acq != is.Acq || c.State != claim.Holding || c.Expires == is.Expires && c.Holds == is.Holds {
			continue
		}
		for k := max(-1, first-recent); k <= last; k++ {
			if old := v.world(k).find(c.Acq); old != nil && old.Token == c.Token && old.Expires == is.Expires && old.Holds == is.Holds {
				c.Expires, c.Holds = is.Expires, is.Holds
				break
			}
		}
	}
	return to.same(snapshot)
}
