package rowstore

import (
	"context"
	"slices"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/claim"
)

// release frees terms. What nobody waits for is freed by one statement; the rest is visited.
func (s *rows) release(ctx context.Context, reqs []driver.ReleaseRequest) ([]driver.ReleaseResult, error) {
	res := make([]driver.ReleaseResult, len(reqs))
	freed, err := s.freePlain(ctx, reqs, res)
	if err != nil {
		return nil, err
	}
	var rest []int
	for i := range reqs {
		if !res[i].Freed {
			rest = append(rest, i)
		}
	}
	if len(rest) == 0 {
		return res, nil
	}
	return res, inParts(rest, freed, func(part []int) error { return s.visit(ctx, s.releases(reqs, part, res)) })
}

// freePlain frees the requests that do not share and for which nobody is known to wait. It
// reports whether it has freed any.
func (s *rows) freePlain(ctx context.Context, reqs []driver.ReleaseRequest, res []driver.ReleaseResult) (freed bool, err error) {
	plain := make([]driver.ReleaseRequest, 0, len(reqs))
	index := make([]int, 0, len(reqs))
	for i := range reqs {
		r := &reqs[i]
		if !r.Shared && !r.Awaited && (len(plain) == 0 || plain[len(plain)-1].Name != r.Name) {
			plain, index = append(plain, *r), append(index, i)
		}
	}
	if len(plain) == 0 {
		return false, nil
	}
	err = s.engine.Free(ctx, plain, func(k int) {
		res[index[k]].Freed, freed = true, true
	})
	return freed, err
}

// releases is the plan of the requests at which.
func (s *rows) releases(reqs []driver.ReleaseRequest, which []int, res []driver.ReleaseResult) *plan {
	names, of := distinct(len(which), func(k int) string { return reqs[which[k]].Name })
	e := &plan{names: names, window: smallWindow, tellsHandOvers: true}
	e.ends = slices.ContainsFunc(which, func(i int) bool { return !reqs[i].Shared && reqs[i].Guarded })
	e.lockAll = slices.ContainsFunc(which, func(i int) bool { return reqs[i].Shared && reqs[i].Guarded })
	e.decide = func(w *view, visit *claim.Visit) error {
		for _, k := range of[w.name] {
			i := which[k]
			r := &reqs[i]
			before := len(visit.HandOvers())
			res[i].Freed, _ = visit.Release(r.Acq, r.Version, r.MinHold.Microseconds(), r.Guarded)
			res[i].Next = nil
			for _, t := range visit.HandOvers()[before:] {
				res[i].Next = append(res[i].Next, driver.HandOver{Acq: t.Acq, Version: t.Token, Remaining: micros(t.Expires - w.now), Now: w.now})
			}
		}
		return nil
	}
	return e
}

// withdraw frees what acquisitions have. It is called again and again for what is long gone:
// then it only reads, unless a request is to be settled.
func (s *rows) withdraw(ctx context.Context, reqs []driver.ReleaseRequest) error {
	names, of := distinct(len(reqs), func(i int) string { return reqs[i].Name })
	e := &plan{names: names, window: smallWindow}
	for i := range reqs {
		e.ofNames, e.acqs = append(e.ofNames, reqs[i].Name), append(e.acqs, reqs[i].Acq)
		e.ends = e.ends || !reqs[i].Shared && reqs[i].Guarded
		e.lockAll = e.lockAll || reqs[i].Shared && reqs[i].Guarded
	}
	e.decide = func(w *view, visit *claim.Visit) error {
		for _, i := range of[w.name] {
			if visit.Withdraw(reqs[i].Acq, reqs[i].MinHold.Microseconds(), reqs[i].Guarded) {
				return ErrLocked
			}
		}
		return nil
	}
	if slices.ContainsFunc(reqs, func(r driver.ReleaseRequest) bool { return r.Settle }) {
		return s.settle(ctx, e)
	}
	return s.lookAndVisit(ctx, e)
}

// settle does a plan after whoever is writing its rows now. A row that is just being made cannot
// be waited for but by making it, too. If the plan has nothing to do then, the row is not left.
func (s *rows) settle(ctx context.Context, e *plan) error {
	missing := make(map[string]bool)
	decide := e.decide
	e.decide = func(w *view, visit *claim.Visit) error {
		missing[w.name] = !w.exists && !s.sole
		return decide(w, visit)
	}
	if err := s.visit(ctx, e); err != nil {
		return err
	}
	for _, name := range e.names {
		if !missing[name] {
			continue
		}
		one := *e
		one.names, one.make, one.decide = []string{name}, true, decide
		one.keep(one.names)
		if err := s.visit(ctx, &one); err != nil {
			return err
		}
	}
	return nil
}

// revoke does the work of [driver.Store.Revoke].
func (s *rows) revoke(ctx context.Context, reqs []driver.RevokeRequest) ([]driver.RevokeResult, error) {
	if len(reqs) == 0 {
		return nil, nil
	}
	res := make([]driver.RevokeResult, len(reqs))
	names, of := distinct(len(reqs), func(i int) string { return reqs[i].Name })
	e := &plan{names: names, window: smallWindow, ends: true, lockAll: true}
	e.decide = func(w *view, visit *claim.Visit) error {
		i := of[w.name][0]
		res[i] = driver.RevokeResult{Row: w.state()}
		if reqs[i].Version != 0 && reqs[i].Version != w.row.Version {
			return nil
		}
		revoked, guarded := visit.Revoke()
		if guarded {
			return ErrLocked
		}
		res[i].Revoked = revoked
		return nil
	}
	if err := s.lookAndVisit(ctx, e); err != nil {
		return nil, err
	}
	return res, nil
}
