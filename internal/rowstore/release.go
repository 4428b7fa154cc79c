package rowstore

import (
	"context"
	"slices"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/claim"
)

// release frees terms. What nobody waits for is freed by one statement, and what somebody
// waits for is handed over by another one, where there is one. The rest is visited.
func (s *rows) release(ctx context.Context, reqs []driver.ReleaseRequest) ([]driver.ReleaseResult, error) {
	if len(reqs) > 0 && reqs[0].To != (driver.ID{}) {
		return s.detach(ctx, reqs)
	}
	res := make([]driver.ReleaseResult, len(reqs))
	freed := func() bool { return slices.ContainsFunc(res, func(r driver.ReleaseResult) bool { return r.Freed }) }
	plain := namesOnce(reqs, func(i int) bool { return !reqs[i].Shared && !reqs[i].Awaited })
	if err := s.freePlain(ctx, reqs, plain, res); err != nil {
		return nil, err
	}
	before := freed()
	if err := s.handOverQuickly(ctx, reqs, res); err != nil {
		return nil, after(before, err)
	}
	before = freed()
	if err := s.releaseTogether(ctx, reqs, res); err != nil {
		return nil, after(before, err)
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
	return res, inParts(rest, freed(), func(part []int) error { return s.visit(ctx, s.releases(reqs, part, res)) })
}

// namesOnce picks requests, which are sorted by name, one of each name.
func namesOnce(reqs []driver.ReleaseRequest, pick func(i int) bool) []int {
	which := make([]int, 0, len(reqs))
	for i := range reqs {
		if pick(i) && (len(which) == 0 || reqs[which[len(which)-1]].Name != reqs[i].Name) {
			which = append(which, i)
		}
	}
	return which
}

// freePlain frees those of the requests at which that nobody waits for.
func (s *rows) freePlain(ctx context.Context, reqs []driver.ReleaseRequest, which []int, res []driver.ReleaseResult) error {
	if len(which) == 0 {
		return nil
	}
	plain := column(len(which), func(k int) driver.ReleaseRequest { return reqs[which[k]] })
	return s.engine.Free(ctx, plain, func(k int) { res[which[k]].Freed = true })
}

// handOverQuickly hands over what somebody waits for, by one statement, which frees what nobody
// waits for. Which requests need more is found out by the statement.
func (s *rows) handOverQuickly(ctx context.Context, reqs []driver.ReleaseRequest, res []driver.ReleaseResult) error {
	which := namesOnce(reqs, func(i int) bool { return !reqs[i].Shared && !reqs[i].Guarded && !res[i].Freed })
	if !s.has("hand_over_quickly", len(which)) {
		return nil
	}
	unawaited, err := s.handOver(ctx, "hand_over_quickly", "wake_holders", reqs, which, res)
	for _, i := range unawaited {
		res[i].Freed = err == nil
	}
	return err
}

// handOver hands over the names of the requests at which, or their permits, by one statement. A
// second one wakes the new holders. It returns those that nobody waits for.
func (s *rows) handOver(ctx context.Context, statement, wake string, reqs []driver.ReleaseRequest, which []int, res []driver.ReleaseResult,
) (unawaited []int, err error) {
	me, nobody := s.client.Instance, make([]bool, len(reqs))
	hand := Statement{Name: statement, Args: []any{me.String()}, Batch: releaseBatch(reqs, which)}
	hand.Scan = func(scan Scanner) error {
		var position, waiting, expires int64
		var next driver.HandOver
		var locker driver.ID
		if err := scan(&position, &next.Now, &waiting, id{&next.Acq}, id{&locker}, &next.Version, &expires, &next.Slot); err != nil {
			return err
		}
		i := which[position-1]
		switch {
		case locker == me:
			next.Remaining = micros(expires - next.Now)
			res[i] = driver.ReleaseResult{Freed: true, HandedOver: 1, Next: []driver.HandOver{next}}
		case locker != driver.ID{}:
			res[i].Freed, res[i].HandedOver = true, 1
		}
		nobody[i] = waiting == 0
		return nil
	}
	then := Statement{Name: wake, Batch: hand.Batch[:1], Args: []any{me.String()}, Scan: func(Scanner) error { return nil }}
	err = s.engine.(Quick).RunThen(ctx, hand, then)
	return namesOnce(reqs, func(i int) bool { return nobody[i] }), err
}

// releaseBatch tells the terms that the requests at which end.
func releaseBatch(reqs []driver.ReleaseRequest, which []int) []Column {
	n := len(which)
	at := func(k int) *driver.ReleaseRequest { return &reqs[which[k]] }
	return []Column{
		column(n, func(k int) string { return at(k).Name }),
		column(n, func(k int) driver.ID { return at(k).Acq }),
		column(n, func(k int) int64 { return at(k).Version }),
		column(n, func(k int) int64 { return at(k).MinHold.Microseconds() }),
	}
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
			before, handed := len(visit.HandOvers()), visit.HandedOver()
			res[i].Freed, _ = visit.Release(r.Acq, r.Version, r.MinHold.Microseconds(), r.Guarded)
			res[i].Next, res[i].HandedOver = nil, visit.HandedOver()-handed
			for _, t := range visit.HandOvers()[before:] {
				res[i].Next = append(res[i].Next, driver.HandOver{Acq: t.Acq, Version: t.Token, Slot: t.Slot, Remaining: micros(t.Expires - w.now), Now: w.now})
			}
		}
		return nil
	}
	return e
}

// ending is the plan of requests that end what acquisitions have, and which requests are of each
// name. The caller sets how it decides.
func ending(reqs []driver.ReleaseRequest) (e *plan, of map[string][]int) {
	names, of := distinct(len(reqs), func(i int) string { return reqs[i].Name })
	e = &plan{names: names, window: smallWindow}
	for i := range reqs {
		e.ofNames, e.acqs = append(e.ofNames, reqs[i].Name), append(e.acqs, reqs[i].Acq)
		e.ends = e.ends || !reqs[i].Shared && reqs[i].Guarded
		e.lockAll = e.lockAll || reqs[i].Shared && reqs[i].Guarded
	}
	return e, of
}

// withdraw frees what acquisitions have. It is called again and again for what is long gone:
// then it only reads, unless a request is to be settled.
func (s *rows) withdraw(ctx context.Context, reqs []driver.ReleaseRequest) error {
	e, of := ending(reqs)
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
			return after(true, err)
		}
	}
	return nil
}

// resize does the work of [driver.PermitStore.Resize].
func (s *rows) resize(ctx context.Context, name string, permits int) error {
	e := &plan{names: []string{name}, window: smallWindow}
	e.decide = func(_ *view, visit *claim.Visit) error {
		visit.Resize(permits)
		return nil
	}
	return s.lookAndVisit(ctx, e)
}

// revoke does the work of [driver.Store.Revoke].
func (s *rows) revoke(ctx context.Context, reqs []driver.RevokeRequest) ([]driver.RevokeResult, error) {
	switch {
	case len(reqs) == 0:
		return nil, nil
	case reqs[0].Politely:
		return s.requestEnd(ctx, reqs)
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
