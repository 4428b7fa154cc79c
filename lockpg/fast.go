package lockpg

import (
	"context"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
)

// Grant implements [rowstore.Engine]. An attempt that loses locks nothing: there is no need to
// look before. Of many names most have a row.
func (e *engine) Grant(
	ctx context.Context, _ func() rowstore.Statement, free func() []driver.AcquireRequest, granted func(i int, g rowstore.Granted),
) error {
	reqs := free()
	rest := make([]int, len(reqs))
	for i := range rest {
		rest[i] = i
	}
	if len(reqs) == 1 || !e.quick {
		return e.commit(ctx, e.grant(reqs, rest, granted))
	}
	had := make([]bool, len(reqs))
	if err := e.commit(ctx, e.grantQuickly(reqs, func(i int, g rowstore.Granted) {
		had[i] = true
		granted(i, g)
	})); err != nil {
		return err
	}
	rest = rest[:0]
	for i := range had {
		if !had[i] {
			rest = append(rest, i)
		}
	}
	if len(rest) == 0 {
		return nil
	}
	err := e.commit(ctx, e.grant(reqs, rest, granted))
	if err != nil && len(rest) < len(reqs) {
		return &rowstore.PartlyError{Err: err}
	}
	return err
}

// grant is the step that grants the requests at which.
func (e *engine) grant(reqs []driver.AcquireRequest, which []int, granted func(i int, g rowstore.Granted)) step {
	var s step
	if len(which) == 1 {
		r := &reqs[which[0]]
		s = e.step("grant_one", r.Name, r.Acq, r.Owner, r.TTL.Microseconds(), r.Value, e.locker, e.label, r.Floor)
	} else {
		s = e.grantBatch("grant", reqs, which)
	}
	find := finder(len(which), func(i int) string { return reqs[which[i]].Name })
	var name []byte
	var g rowstore.Granted
	targets := []any{&name, &g.Version, &g.Now, &g.Expires}
	s.scan = func(scan rowstore.Scanner) error {
		err := scan(targets...)
		if err == nil {
			granted(which[find(name)], g)
		}
		return err
	}
	return s
}

// grantQuickly is the step that grants those of the requests whose names have a row.
func (e *engine) grantQuickly(reqs []driver.AcquireRequest, granted func(i int, g rowstore.Granted)) step {
	s := e.grantBatch("grant_quickly", reqs, nil)
	var place int64
	var g rowstore.Granted
	targets := []any{&place, &g.Version, &g.Now, &g.Expires}
	s.scan = func(scan rowstore.Scanner) error {
		err := scan(targets...)
		if err == nil {
			granted(int(place)-1, g)
		}
		return err
	}
	return s
}

// divisionByZero is the code of the error with which grant_all says that it has lost a name, and
// free_claims that a term has ended.
const divisionByZero = "22012"

// GrantAll implements [rowstore.AllGranter]. An attempt that loses locks nothing, as in Grant.
func (e *engine) GrantAll(
	ctx context.Context, _ func() rowstore.Statement, free func() []driver.AcquireRequest, granted func(i int, g rowstore.Granted),
) error {
	reqs := free()
	var all []rowstore.Granted
	var which []int
	s := e.grantBatch("grant_all", reqs, nil)
	find := finder(len(reqs), func(i int) string { return reqs[i].Name })
	var name []byte
	var g rowstore.Granted
	var one int64
	targets := []any{&name, &g.Version, &g.Now, &g.Expires, &one}
	s.scan = func(scan rowstore.Scanner) error {
		err := scan(targets...)
		if err == nil {
			all, which = append(all, g), append(which, find(name))
		}
		return err
	}
	err := e.commit(ctx, s)
	if state, _ := stateOf(err); state == divisionByZero {
		return nil
	}
	if err != nil {
		return err
	}
	for k, i := range which {
		granted(i, all[k])
	}
	return nil
}

// grantBatch is a statement about the requests at which, or all if that is nil.
func (e *engine) grantBatch(name string, reqs []driver.AcquireRequest, which []int) step {
	n, at := len(reqs), func(i int) *driver.AcquireRequest { return &reqs[i] }
	if which != nil {
		n, at = len(which), func(i int) *driver.AcquireRequest { return &reqs[which[i]] }
	}
	return e.step(name,
		column(n, func(i int) string { return at(i).Name }),
		column(n, func(i int) driver.ID { return at(i).Acq }),
		column(n, func(i int) string { return at(i).Owner }),
		column(n, func(i int) int64 { return at(i).TTL.Microseconds() }),
		column(n, func(i int) []byte { return at(i).Value }),
		e.locker, e.label,
		column(n, func(i int) int64 { return at(i).Floor }))
}

// Free implements [rowstore.Engine]. Those that were guarded take another lock.
func (e *engine) Free(ctx context.Context, reqs []driver.ReleaseRequest, freed func(i int)) error {
	var plain, guarded []int
	for i := range reqs {
		if reqs[i].Guarded {
			guarded = append(guarded, i)
		} else {
			plain = append(plain, i)
		}
	}
	if len(plain) > 0 {
		if err := e.commit(ctx, e.free(reqs, plain, freed)); err != nil {
			return err
		}
	}
	if len(guarded) == 0 {
		return nil
	}
	err := e.commit(ctx, e.freeByName("free_guarded", reqs, guarded, freed))
	if err != nil && len(plain) > 0 {
		return &rowstore.PartlyError{Err: err}
	}
	return err
}

// free is the step that frees the requests at which, none of which is guarded.
func (e *engine) free(reqs []driver.ReleaseRequest, which []int, freed func(i int)) step {
	switch {
	case len(which) == 1:
		r := &reqs[which[0]]
		s := e.step("free_one", r.Name, r.Acq, r.Version, r.MinHold.Microseconds())
		s.scan = func(rowstore.Scanner) error {
			freed(which[0])
			return nil
		}
		return s
	case !e.quick:
		return e.freeByName("free", reqs, which, freed)
	}
	s := e.freeBatch("free_quickly", reqs, which)
	var place int64
	targets := []any{&place}
	s.scan = func(scan rowstore.Scanner) error {
		err := scan(targets...)
		if err == nil {
			freed(which[place-1])
		}
		return err
	}
	return s
}

// freeByName is a step whose result has the names of what it has freed.
func (e *engine) freeByName(name string, reqs []driver.ReleaseRequest, which []int, freed func(i int)) step {
	s := e.freeBatch(name, reqs, which)
	find := finder(len(which), func(i int) string { return reqs[which[i]].Name })
	var row []byte
	targets := []any{&row}
	s.scan = func(scan rowstore.Scanner) error {
		err := scan(targets...)
		if err == nil {
			freed(which[find(row)])
		}
		return err
	}
	return s
}

// freeBatch is a statement about the requests at which.
func (e *engine) freeBatch(name string, reqs []driver.ReleaseRequest, which []int) step {
	n := len(which)
	return e.step(name,
		column(n, func(i int) string { return reqs[which[i]].Name }),
		column(n, func(i int) driver.ID { return reqs[which[i]].Acq }),
		column(n, func(i int) int64 { return reqs[which[i]].Version }),
		column(n, func(i int) int64 { return reqs[which[i]].MinHold.Microseconds() }))
}
