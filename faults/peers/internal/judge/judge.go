// Package judge says what the locks of a cell have let happen. It looks neither at
// tokens nor at what a library says of itself but for what its users would ask it, so
// that all are measured alike.
package judge

import (
	"cmp"
	"slices"
	"time"

	"github.com/sqllock/sqllock/faults/internal/history"
	"github.com/sqllock/sqllock/faults/peers/internal/ledger"
)

// Stale counts the accepted writes to a register that came too late: what they were
// computed from was not there any more, or somebody had written there before whose term
// is certainly later, because his Lock was called after this one had returned.
func Stale(writes []ledger.Accepted, register string) int {
	n := 0
	called := make(map[string]int64) // the latest Lock of those who have written, by name
	for _, w := range writes {
		if w.Register != register {
			continue
		}
		if w.N != w.Before+1 || called[w.Name] >= w.Term.Granted {
			n++
		}
		called[w.Name] = max(called[w.Name], w.Term.Called)
	}
	return n
}

// Counts are what is in the histories.
type Counts struct {
	Acquisitions int
	Errors       int // of Lock
	Faults       int
	// Late is how many holders were still told that they held when somebody else held,
	// and had been told so: they have heard of their loss too late. Worst is the longest
	// time from the first answer of that kind to one that told them of the loss, or to the
	// end of Unlock; without the times in which the process was paused and asked nothing.
	Late  int
	Worst time.Duration
}

// term is what a history says of one lock.
type term struct {
	granted int64
	looks   []look // in the order of T
}

// look is what a holder was told; the end of Unlock tells him that he does not hold.
type look struct {
	t  int64
	ok bool
}

// until returns when the holder was last told that he held.
func (t *term) until() int64 {
	until := t.granted
	for _, l := range t.looks {
		if l.ok {
			until = max(until, l.t)
		}
	}
	return until
}

// asleep is for how long a process asks nothing only if it is paused.
const asleep = time.Second

// wrong returns for how long the holder was told that he held, from an answer on.
func (t *term) wrong(from int64) (d time.Duration) {
	last := int64(0)
	for _, l := range t.looks {
		if last > 0 {
			if gap := time.Duration(l.t - last); gap < asleep {
				d += gap
			}
			if !l.ok {
				break
			}
		}
		if last > 0 || l.ok && l.t >= from {
			last = l.t
		}
	}
	return d
}

// Count counts.
func Count(events []history.Event) Counts {
	var c Counts
	terms := make(map[string]*term)
	names := make(map[string][]*term)
	for _, e := range events {
		switch {
		case e.Op == history.Fault && !e.Ret:
			c.Faults++
		case e.Op == history.Lock && e.Err != "":
			c.Errors++
		case e.Op == history.Lock:
			c.Acquisitions++
			t := &term{granted: e.T}
			terms[e.Lease] = t
			names[e.Name] = append(names[e.Name], t)
		}
	}
	for _, e := range events {
		t := terms[e.Lease]
		if t != nil && (e.Op == history.Look || e.Op == history.Unlock) {
			t.looks = append(t.looks, look{e.T, e.Op == history.Look && e.OK})
		}
	}
	for _, t := range terms {
		slices.SortStableFunc(t.looks, func(a, b look) int { return cmp.Compare(a.t, b.t) })
	}
	for _, all := range names {
		c.late(all)
	}
	return c
}

// late counts among the terms of a name. A term counts as held as long as a look says
// so, and so not at all if the first one does not.
func (c *Counts) late(all []*term) {
	slices.SortFunc(all, func(a, b *term) int { return cmp.Compare(a.granted, b.granted) })
	for i, t := range all {
		for _, next := range all[i+1:] {
			if next.granted >= t.until() {
				break
			}
			if next.until() > next.granted {
				c.Late++
				c.Worst = max(c.Worst, t.wrong(next.granted))
				break
			}
		}
	}
}
