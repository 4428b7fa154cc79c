package rowstore

import (
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/claim"
)

// view is what was read of a name.
type view struct {
	name     string
	exists   bool
	now      int64
	row      claim.Row
	claims   []claim.Claim
	known    map[driver.ID]bool // claims, by acq
	alive    map[driver.ID]bool // Lockers
	gone     map[driver.ID]bool // Lockers that have been dead for long
	locked   map[driver.ID]bool // claims that hold, by acq
	unpinned bool               // the row could be locked against guards

	reported map[driver.ID]bool // terms that have crashed, as a result says

	waiting int   // how many claims that wait are in the window
	readTo  int64 // the place of the last of them

	requested int64 // the version of the term whose holder was asked to end it, if that was read
	readers   int   // who hold the name together, where claims are not read
	permits   int
	readUntil int64

	together []driver.Slot // the first who hold it together, where claims are not read
	waiters  int           // who wait for it
	queue    []driver.Queued
}

// views are views of names, in their order.
type views struct {
	byName map[string]*view
	list   []*view
}

func newViews(names []string) *views {
	v := &views{byName: make(map[string]*view, len(names)), list: make([]*view, len(names))}
	all := make([]view, len(names))
	for i, name := range names {
		all[i].name = name
		v.list[i], v.byName[name] = &all[i], &all[i]
	}
	return v
}

// read is the statement that reads the rows.
func (v *views) read() Statement {
	return Statement{Name: "rows", Batch: []Column{column(len(v.list), func(i int) string { return v.list[i].name })}, Scan: v.addRow}
}

// copyRows takes over the rows of views that have the same names, or more.
func (v *views) copyRows(from *views) {
	for _, w := range v.list {
		f := from.byName[w.name]
		w.exists, w.row, w.now = f.exists, f.row, f.now
	}
}

// scanRow reads a lock row, behind what stands before it.
func scanRow(scan Scanner, r *claim.Row, name *string, now *int64, before ...any) error {
	var ended int64
	err := scan(append(before, name, now, &r.Version, id{&r.Acq}, &r.Owner, &r.Label, id{&r.Locker}, &r.Value, &r.Holds,
		&r.Since, &r.Expires, &r.Limit, &r.Delay, &r.NotBefore, &r.Permits, &r.Waiting, &r.Holding, &r.Seq, &ended, &r.Revoked)...)
	r.Ended = claim.Ended(ended)
	return err
}

// addRow notes a lock row.
func (v *views) addRow(scan Scanner) error {
	var row claim.Row
	var name string
	var now int64
	if err := scanRow(scan, &row, &name, &now); err != nil {
		return err
	}
	w := v.byName[name]
	w.exists, w.row, w.now = true, row, now
	return nil
}

// addClaim notes a claim.
func (v *views) addClaim(scan Scanner) error {
	w, c, err := v.scanClaim(scan)
	if err == nil && c.State == claim.Waiting {
		w.waiting++
		w.readTo = max(w.readTo, c.Seq)
	}
	return err
}

// addClaimOf notes a claim, unless it is known.
func (v *views) addClaimOf(scan Scanner) error {
	_, _, err := v.scanClaim(scan)
	return err
}

func (v *views) scanClaim(scan Scanner) (*view, *claim.Claim, error) {
	var c claim.Claim
	var name string
	var now, state, kind, alive int64
	if err := scan(&name, &now, id{&c.Acq}, &state, &kind, &c.Slot, &c.Seq, &c.Token, &c.Holds, &c.TTL, &c.Handed, &c.MaxHold,
		&c.Since, &c.Expires, &c.Limit, &c.Delay, id{&c.Locker}, &c.Owner, &c.Label, &c.Value, &alive); err != nil {
		return nil, nil, err
	}
	c.State, c.Kind = claim.State(state), claim.Kind(kind)
	w := v.byName[name]
	if w.known[c.Acq] {
		return w, &c, nil
	}
	switch alive {
	case beats:
		mark(&w.alive, c.Locker)
	case forgotten:
		mark(&w.gone, c.Locker)
	}
	mark(&w.known, c.Acq)
	w.now, w.claims = max(w.now, now), append(w.claims, c)
	return w, &c, nil
}

// What a claim says of its Locker; 0 is dead, but not for long.
const (
	beats     = 1
	forgotten = 2
)

func mark(set *map[driver.ID]bool, id driver.ID) {
	if *set == nil {
		*set = make(map[driver.ID]bool, 1)
	}
	(*set)[id] = true
}
