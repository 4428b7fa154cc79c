// Package judge counts what went wrong under the locks of a cell. It ignores tokens. From
// a library it uses only the answers that users would ask for, so that all libraries are
// measured in the same way.
package judge

import (
	"cmp"
	"slices"
	"time"

	"github.com/sqllock/sqllock/faults/internal/history"
	"github.com/sqllock/sqllock/faults/peers/internal/ledger"
)

// Stale counts the accepted writes to a register that came too late: another write had
// replaced the value that they were computed from, or a client with a later term had
// written before. A term is later for certain if its Lock was called after the other Lock
// had returned.
func Stale(writes []ledger.Accepted, register string) int {
	n := 0
	called := make(map[string]int64) // the latest Lock of the writers, by name
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

// Counts are the counts of the histories.
type Counts struct {
	Acquisitions int
	Errors       int // of Lock
	Faults       int
	// Late is the number of holders whose lock still reported that it was held, after
	// another client had been granted the name and had seen that. Worst is the longest
	// time from the first such report to the report of the loss, or to the end of Unlock.
	// Times in which the process was paused do not count.
	Late  int
	Worst time.Duration
}

// A term is a lock in the history.
type term struct {
	granted int64
	looks   []look // in the order of T
}

// A look is a report to the holder. The end of Unlock reports that it does not hold.
type look struct {
	t  int64
	ok bool
}

// until returns the time of the last report that the holder holds.
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

// wrong returns how long, from an answer on, the lock reported that it was held.
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

// late counts among the terms of a name. A term counts as held while a look reports so.
// It does not count at all if the first look does not.
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
