package replay

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/faults/internal/history"
	"github.com/sqllock/sqllock/internal/claim"
)

// step is what one transaction has done to a name.
type step struct {
	number int // of the last change
	at, to int64
	tx     int64
	rows   []*change

	before, after *world
}

// renews reports that it changes claims alone: it has not locked the row of the name.
func (t *step) renews() bool {
	return !slices.ContainsFunc(t.rows, func(c *change) bool { return !c.renews() })
}

// renews reports that a change makes a claim last longer.
func (c *change) renews() bool {
	if c.Table != history.ClaimTable || c.Old == nil || c.New == nil {
		return false
	}
	was := *c.Old
	was.Holds, was.Expires = c.New.Holds, c.New.Expires
	return was == *c.New
}

// makes reports that a change makes the row of a name that nobody holds.
func (c *change) makes() bool {
	return c.Table == history.LockTable && c.Old == nil && c.New.Acq == "" && c.New.Waiting == 0 && c.New.Holding == 0
}

// steps groups the changes of a name by transactions, in the order in which these were done. Whoever
// changes a name has locked its row, but for those who renew claims. Each of these is a step.
func (n *name) steps() (all []*step) {
	var open *step
	for _, c := range n.changes {
		switch {
		case c.Old != nil && c.New != nil && *c.Old == *c.New: // of what no rule decides on
			continue
		case c.renews():
			all = append(all, &step{number: c.number, at: c.At, to: c.At, tx: c.Tx, rows: []*change{c}})
			continue
		case open == nil, open.tx != c.Tx, c.Table == history.LockTable && open.hasRow() && !(len(open.rows) == 1 && open.rows[0].makes()):
			open = &step{tx: c.Tx, at: c.At}
			all = append(all, open)
		}
		open.rows, open.number, open.to = append(open.rows, c), c.number, c.At
	}
	slices.SortStableFunc(all, func(a, b *step) int { return cmp.Compare(a.number, b.number) })
	return all
}

// hasRow reports that the row of the name was changed.
func (t *step) hasRow() bool {
	return slices.ContainsFunc(t.rows, func(c *change) bool { return c.Table == history.LockTable })
}

// chain sets the worlds before and after each step. What a change says was before must be what
// those before it have left.
func (s *searcher) chain() {
	w := &world{}
	for _, t := range s.steps {
		t.before = w
		for _, c := range t.rows {
			to, what := w.write(c)
			if what != "" {
				s.finding(c.At, what)
			}
			if w = to; c.makes() {
				t.before = w
			}
		}
		t.after = w
	}
}

// write does a change. It tells if that is not possible.
func (w *world) write(c *change) (to *world, what string) {
	if c.Table == history.LockTable {
		if was := rowOf(c.Old); !reflect.DeepEqual(&was, &w.row) {
			what = fmt.Sprintf("a row was %+v, and is changed from %+v", w.row, was)
		}
		return &world{rowOf(c.New), w.claims}, what
	}
	to = &world{row: w.row, claims: slices.Clone(w.claims)}
	if c.Old != nil {
		was := claimOf(c.Old)
		i := slices.IndexFunc(to.claims, func(o claim.Claim) bool { return o.Acq == was.Acq })
		if i < 0 || !reflect.DeepEqual(&to.claims[i], &was) {
			what = fmt.Sprintf("no claim is %+v, and it is changed", was)
		}
		if i >= 0 {
			to.claims = slices.Delete(to.claims, i, i+1)
		}
	}
	if c.New != nil {
		becomes := claimOf(c.New)
		if to.find(becomes.Acq) != nil {
			what = fmt.Sprintf("a claim %+v is there already", becomes)
		}
		i, _ := slices.BinarySearchFunc(to.claims, becomes.Seq, func(o claim.Claim, seq int64) int { return cmp.Compare(o.Seq, seq) })
		to.claims = slices.Insert(to.claims, i, becomes)
	}
	return to, what
}

// about returns the acquisitions whose terms or claims a step changes.
func (t *step) about() (acqs []driver.ID) {
	add := func(acq driver.ID) {
		if acq != (driver.ID{}) && !slices.Contains(acqs, acq) {
			acqs = append(acqs, acq)
		}
	}
	for _, c := range t.rows {
		switch {
		case c.Table == history.ClaimTable:
			add(id(cmp.Or(c.New, c.Old).Acq))
		case c.Old == nil || c.New == nil || c.Old.Acq != c.New.Acq || c.Old.Version != c.New.Version:
			for _, r := range []*history.Record{c.Old, c.New} {
				if r != nil {
					add(id(r.Acq))
				}
			}
		default: // a renewal
			add(id(c.New.Acq))
		}
	}
	return acqs
}

func (t *step) String() string {
	text := fmt.Sprintf("at %d, in %d:", t.at, t.tx)
	for _, c := range t.rows {
		text += fmt.Sprintf(" %s %+v → %+v;", c.Table, deref(c.Old), deref(c.New))
	}
	return text
}

func deref(r *history.Record) any {
	if r == nil {
		return "none"
	}
	return *r
}
