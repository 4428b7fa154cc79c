package rowstore

import (
	"cmp"
	"context"
	"encoding/hex"
	"slices"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/claim"
)

// state is what is known of a name, as it was read.
func (w *view) state() driver.Row {
	r := &w.row
	state := driver.Row{Name: w.name, Now: w.now, Holds: r.Holds, Gate: r.NotBefore, Ended: driver.Ending(r.Ended), Revoked: r.Revoked,
		Asked: w.requested, Value: r.Value, Permits: r.Permits, Holders: w.together, Waiters: w.waiters, Queue: w.queue, Detached: r.Acq != driver.ID{} && r.Locker == driver.ID{},
		Holder: driver.Holder{Acq: r.Acq, Owner: r.Owner, Label: r.Label,
			Version: r.Version, Since: r.Since, Until: r.Expires}}
	state.Readers, state.PermitsHeld = w.readers, w.permits
	until := w.readUntil
	for i := range w.claims {
		c := &w.claims[i]
		if c.State != claim.Holding || c.Expires <= w.now {
			continue
		}
		if until = max(until, c.Expires); c.Kind == claim.Permit {
			state.PermitsHeld++
		} else {
			state.Readers++
		}
	}
	if state.Together() > 0 {
		state.Holder = driver.Holder{Version: r.Version, Since: r.Since, Until: until, Shared: true, Permit: state.PermitsHeld > 0}
	}
	return state
}

// slots are the permits that are held.
func (w *view) slots() (slots []driver.Slot) {
	for i := range w.claims {
		if c := &w.claims[i]; c.State == claim.Holding && c.Kind == claim.Permit && c.Expires > w.now {
			slots = append(slots, driver.Slot{Slot: c.Slot, Holder: driver.Holder{Acq: c.Acq, Owner: c.Owner, Label: c.Label,
				Version: c.Token, Since: c.Since, Until: c.Expires, Shared: true, Permit: true}})
		}
	}
	slices.SortFunc(slots, func(a, b driver.Slot) int { return cmp.Compare(a.Slot, b.Slot) })
	return slots
}

// read does the work of [driver.Store.Read].
func (s *rows) read(ctx context.Context, req *driver.ReadRequest) (res driver.ReadResult, err error) {
	switch {
	case req.Waiters:
		res.Waiters, err = s.waiters(ctx)
	case req.List.Limit > 0:
		res.Page, err = s.list(ctx, req.List)
	case len(req.Names) > 0:
		res.Rows, err = s.look(ctx, req)
	}
	return res, err
}

// look reads the rows of names. If the request says so, it reads who holds each permit, or the
// first of those who wait, and whose holder was asked to end its term.
func (s *rows) look(ctx context.Context, req *driver.ReadRequest) ([]driver.Row, error) {
	names := req.Names
	v := newViews(names)
	reads := []Statement{v.read()}
	if req.Asked {
		reads = append(reads, v.readRequested(names))
	}
	if req.Slots {
		reads = append(reads, s.claims(&plan{names: names}, v)...)
	}
	if err := s.engine.Run(ctx, reads...); err != nil {
		return nil, err
	}
	if !req.Slots { // apart: most often there are none
		if err := s.parties(ctx, v, req.Holders, req.Queue); err != nil {
			return nil, err
		}
	}
	now := int64(0)
	for _, w := range v.list {
		now = max(now, w.now)
	}
	if now == 0 {
		var err error
		if now, err = s.clock(ctx); err != nil {
			return nil, err
		}
	}
	rows := make([]driver.Row, len(names))
	for i, name := range names {
		w := v.byName[name]
		rows[i] = w.state()
		if req.Slots {
			rows[i].Slots = w.slots()
		}
		rows[i].Now = max(rows[i].Now, now)
	}
	return rows, nil
}

// addReaders notes how many hold a name together.
func (v *views) addReaders(scan Scanner) error {
	var name string
	var kind, until int64
	var n int
	if err := scan(&name, &kind, &n, &until); err != nil {
		return err
	}
	w := v.byName[name]
	if w.readUntil = max(w.readUntil, until); kind == int64(claim.Permit) {
		w.permits += n
	} else {
		w.readers += n
	}
	return nil
}

// holdersOf is the statement that reads the first of those who hold names together.
func (v *views) holdersOf(names []string, first int) Statement {
	return Statement{Name: "together", Batch: []Column{names}, Args: []any{int64(first)}, Scan: func(scan Scanner) error {
		h := driver.Slot{Holder: driver.Holder{Shared: true}}
		var name string
		var kind int64
		if err := scan(&name, id{&h.Acq}, &kind, &h.Slot, &h.Owner, &h.Label, &h.Version, &h.Since, &h.Until); err != nil {
			return err
		}
		h.Permit = kind == int64(claim.Permit)
		w := v.byName[name]
		w.together = append(w.together, h)
		return nil
	}}
}

// queues is the statement that reads how many wait for names, and the first of them.
func (v *views) queues(names []string, first int) Statement {
	return Statement{Name: "queues", Batch: []Column{names}, Args: []any{int64(first)}, Scan: func(scan Scanner) error {
		var name string
		var waiters int
		var kind int64
		var q driver.Queued
		if err := scan(&name, &waiters, &q.Label, &q.Since, &kind); err != nil {
			return err
		}
		q.Kind = driver.Kind(kind)
		w := v.byName[name]
		w.waiters, w.queue = waiters, append(w.queue, q)
		return nil
	}}
}

// list reads a page of the table.
func (s *rows) list(ctx context.Context, req driver.ListRequest) (driver.Page, error) {
	page, v, seen := driver.Page{}, newViews(nil), 0
	free := int64(0)
	if req.Free {
		free = 1
	}
	err := s.engine.Run(ctx,
		Statement{Name: "page", Args: []any{req.After, int64(req.Limit), free}, Scan: func(scan Scanner) error {
			w := &view{exists: true}
			if err := scanRow(scan, &w.row, &w.name, &w.now); err != nil {
				return err
			}
			v.list, v.byName[w.name] = append(v.list, w), w
			return nil
		}},
		Statement{Name: "page_end", Args: []any{req.After, int64(req.Limit)}, Scan: func(scan Scanner) error {
			return scan(&seen, &page.Last)
		}})
	if err != nil {
		return page, err
	}
	first := 0
	if req.Count {
		first = 1 // which tells how many there are
	}
	if err := s.parties(ctx, v, 0, first); err != nil {
		return page, err
	}
	for _, w := range v.list {
		w.row.Value, w.queue = nil, nil
		if r := w.state(); req.Free || r.Held() || r.Gate > r.Now {
			page.Rows = append(page.Rows, r)
		}
	}
	page.More = seen == req.Limit
	return page, nil
}

// parties reads, of the names of which somebody does, how many hold them together and how many
// wait, and the first of both: so many holders, and so many who wait. It counts the latter only if
// it reads some.
func (s *rows) parties(ctx context.Context, v *views, holders, first int) error {
	var held, awaited []string
	for _, w := range v.list {
		if w.row.Holding > 0 {
			held = append(held, w.name)
		}
		if first > 0 && w.row.Waiting > 0 {
			awaited = append(awaited, w.name)
		}
	}
	var statements []Statement
	if len(held) > 0 {
		statements = append(statements, Statement{Name: "readers", Batch: []Column{held}, Scan: v.addReaders})
		if holders > 0 {
			statements = append(statements, v.holdersOf(held, holders))
		}
	}
	if len(awaited) > 0 {
		statements = append(statements, v.queues(awaited, first))
	}
	if len(statements) == 0 {
		return nil
	}
	return s.engine.Run(ctx, statements...)
}

// waiters reads who holds something while it waits.
func (s *rows) waiters(ctx context.Context) ([]driver.Waiter, error) {
	var waits []driver.Waiter
	err := s.engine.Run(ctx, Statement{Name: "waits", Args: []any{s.client.Instance.String()}, Scan: func(scan Scanner) error {
		var w driver.Waiter
		var kind int64
		var carries string
		if err := scan(&w.Name, id{&w.Acq}, &w.Label, &w.Seq, &w.Since, &kind, &carries); err != nil {
			return err
		}
		w.Kind = driver.Kind(kind)
		var err error
		w.Carries, err = splitIDs(carries)
		waits = append(waits, w)
		return err
	}})
	if err != nil || len(waits) == 0 {
		return nil, err
	}
	holders := make(map[string][]driver.ID)
	var names []string
	for i := range waits {
		if _, ok := holders[waits[i].Name]; !ok {
			holders[waits[i].Name], names = nil, append(names, waits[i].Name)
		}
	}
	err = s.engine.Run(ctx, Statement{Name: "holders", Batch: []Column{names}, Scan: func(scan Scanner) error {
		var name string
		var acq driver.ID
		err := scan(&name, id{&acq})
		holders[name] = append(holders[name], acq)
		return err
	}})
	for i := range waits {
		waits[i].Holders = holders[waits[i].Name]
	}
	return waits, err
}

// splitIDs reads IDs that stand one behind the other, in hexadecimal digits.
func splitIDs(digits string) ([]driver.ID, error) {
	b, err := hex.DecodeString(digits)
	ids := make([]driver.ID, len(b)/len(driver.ID{}))
	for i := range ids {
		copy(ids[i][:], b[i*len(driver.ID{}):])
	}
	return ids, err
}
