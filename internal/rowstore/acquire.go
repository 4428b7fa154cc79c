package rowstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/claim"
)

// acquire does the work of [driver.Store.Acquire]. All requests are of the kind of the first.
func (s *rows) acquire(ctx context.Context, reqs []driver.AcquireRequest) (res []driver.AcquireResult, err error) {
	res = make([]driver.AcquireResult, len(reqs))
	switch {
	case len(reqs) == 0:
	case reqs[0].Resumes != 0 || reqs[0].Adopts != driver.ID{}:
		for i := range reqs {
			if res[i], err = s.takeOver(ctx, &reqs[i]); err != nil {
				return nil, after(i > 0, err)
			}
		}
	case reqs[0].All:
		err = s.grantTogether(ctx, reqs, res)
	case reqs[0].Life > 0:
		err = s.wait(ctx, reqs, res)
	default:
		err = s.grant(ctx, reqs, res)
	}
	if err != nil {
		return nil, err
	}
	return res, nil
}

// grant acquires names for those who do not wait. What is free is granted by one statement.
// Only what might be granted although it is not free is visited.
func (s *rows) grant(ctx context.Context, reqs []driver.AcquireRequest, res []driver.AcquireResult) error {
	looked, permitted, err := s.grantPermits(ctx, reqs, res)
	if err != nil {
		return err
	}
	seen, granted, err := s.grantFree(ctx, reqs, res)
	if err != nil {
		return after(permitted, err)
	}
	if granted = granted || permitted; seen == nil {
		seen = looked
	}
	rest := make([]int, 0, len(reqs))
	for i := range res {
		if !res[i].Granted {
			rest = append(rest, i)
		}
	}
	if len(rest) == 0 {
		return nil
	}
	return inParts(rest, granted, func(part []int) error {
		e := s.acquisition(reqs, part, res)
		e.seen, e.tries = seen, true
		return s.lookAndVisit(ctx, e)
	})
}

// grantFree grants what is free to those who want it alone. It reports whether it granted
// anything, and returns the rows if it has read them and lost nothing to others since.
func (s *rows) grantFree(ctx context.Context, reqs []driver.AcquireRequest, res []driver.AcquireResult) (seen *views, granted bool, err error) {
	var alone []int
	for i := range reqs {
		if !reqs[i].Together() && (len(alone) == 0 || reqs[alone[len(alone)-1]].Name != reqs[i].Name) {
			alone = append(alone, i)
		}
	}
	if len(alone) == 0 {
		return nil, false, nil
	}
	var v *views
	look := func() Statement {
		names, _ := distinct(len(reqs), func(i int) string { return reqs[i].Name })
		v = newViews(names)
		return v.read()
	}
	var tried []int
	all, lost := len(alone), 0
	err = s.engine.Grant(ctx, look, func() []driver.AcquireRequest {
		tried = slices.DeleteFunc(alone, func(i int) bool { return v != nil && !v.mayGrant(s.request(&reqs[i]), reqs[i].Name) })
		lost = len(tried)
		free := make([]driver.AcquireRequest, len(tried))
		for k, i := range tried {
			free[k] = reqs[i]
		}
		return free
	}, func(k int, g Granted) {
		res[tried[k]] = driver.AcquireResult{Granted: true, Version: g.Version, Remaining: micros(g.Expires - g.Now), Now: g.Now}
		lost--
	})
	if lost == 0 && len(tried) < all { // it has looked
		seen = v
	}
	return seen, lost < len(tried), err
}

// mayGrant reports that the row of a name lets a request have it.
func (v *views) mayGrant(r claim.Request, name string) bool {
	w := v.byName[name]
	row := w.row
	return row.Grant(&r, w.now)
}

// request is what the state machine knows of a request.
func (s *rows) request(r *driver.AcquireRequest) claim.Request {
	kind := claim.Exclusive
	switch {
	case r.Shared:
		kind = claim.Shared
	case r.Permits != 0:
		kind = claim.Permit
	}
	handed := r.TTL
	if r.Life > 0 {
		handed = r.Handed
	}
	return claim.Request{
		Party:  claim.Party{Acq: r.Acq, Locker: s.client.Instance, Owner: r.Owner, Label: s.client.Label, Value: r.Value},
		Limits: claim.Limits{TTL: r.TTL.Microseconds(), Handed: handed.Microseconds()},
		Kind:   kind, Permits: r.Permits, Waits: r.Life > 0, Carries: r.Carries, Floor: r.Floor,
	}
}

// acquisition is the plan of the requests at which.
func (s *rows) acquisition(reqs []driver.AcquireRequest, which []int, res []driver.AcquireResult) *plan {
	names, of := distinct(len(which), func(k int) string { return reqs[which[k]].Name })
	e := &plan{names: names, window: smallWindow}
	for _, i := range which {
		if r := &reqs[i]; r.Life > 0 {
			e.ofNames, e.acqs = append(e.ofNames, r.Name), append(e.acqs, r.Acq)
		}
	}
	e.decide = func(w *view, visit *claim.Visit) error {
		for _, k := range of[w.name] {
			i := which[k]
			before := len(visit.Crashed())
			q := s.request(&reqs[i])
			a := visit.Acquire(q)
			res[i] = w.result(&a, visit, q.Kind, before)
		}
		return nil
	}
	return e
}

// result is the answer to a request of a kind, before which so many terms had crashed. Of several
// others it tells of the last.
func (w *view) result(a *claim.Answer, visit *claim.Visit, kind claim.Kind, before int) driver.AcquireResult {
	r := driver.AcquireResult{Now: w.now}
	if crashed := visit.Crashed(); len(crashed) > before {
		t := &crashed[len(crashed)-1]
		r.Crashed = holderOf(t)
		mark(&w.reported, t.Acq)
	}
	if a.Outcome == claim.Queued && !a.First {
		r.Ahead = 1
	}
	if a.Outcome == claim.Mismatch {
		r.Permits = a.Permits
	}
	if a.Outcome != claim.Granted {
		r.Holder = w.holder(visit, kind)
		return r
	}
	r.Granted, r.Found, r.Version, r.Slot, r.Remaining = true, a.Found, a.Token, a.Slot, micros(a.Expires-w.now)
	return r
}

func holderOf(t *claim.Term) driver.Holder {
	return driver.Holder{Acq: t.Acq, Owner: t.Owner, Label: t.Label, Version: t.Token, Since: t.Since, Until: t.Expires,
		Shared: t.Kind != claim.Exclusive, Permit: t.Kind == claim.Permit}
}

// holder tells who keeps a name from those who want it in a way. Whoever wants a permit waits for
// the first that is free.
func (w *view) holder(visit *claim.Visit, want claim.Kind) driver.Holder {
	r := visit.Row()
	kind, first, until := visit.Together()
	if kind == claim.Permit && want == claim.Permit {
		until = first
	}
	switch {
	case r.Acq != driver.ID{} && (r.Expires > w.now || r.NotBefore <= w.now):
		return driver.Holder{Acq: r.Acq, Owner: r.Owner, Label: r.Label, Version: r.Version, Since: r.Since, Until: r.Expires}
	case r.NotBefore > w.now: // from other readers, too, while some hold it
		return driver.Holder{Until: r.NotBefore}
	case until > 0:
		return driver.Holder{Version: r.Version, Since: r.Since, Until: until, Shared: true, Permit: kind == claim.Permit}
	}
	return driver.Holder{}
}

// wait acquires names for those who wait. The claims of this Locker live as long as its beat
// goes on. A claim that waits already is read, unless its name can be moved on. A new one is
// entered without a look.
func (s *rows) wait(ctx context.Context, reqs []driver.AcquireRequest, res []driver.AcquireResult) error {
	life := time.Duration(0)
	for i := range reqs {
		life = max(life, reqs[i].Life)
	}
	fresh, known, err := s.keepAlive(ctx, life, reqs)
	if err != nil {
		return err
	}
	rest, err := s.queueQuickly(ctx, reqs, fresh, res)
	if err != nil {
		return err
	}
	// What is granted now is told with the next call if this one fails.
	err = inParts(rest, len(rest) < len(fresh), func(part []int) error { return s.visit(ctx, s.acquisition(reqs, part, res)) })
	if err != nil {
		return err
	}
	return inParts(known, len(fresh) > 0, func(part []int) error { return s.lookAndVisit(ctx, s.acquisition(reqs, part, res)) })
}

// queueQuickly enters claims of names that are held alone by one statement, which grants those that
// have become free, and claims on permits, all of which are held, by another one. It returns the
// requests that need a visit.
func (s *rows) queueQuickly(ctx context.Context, reqs []driver.AcquireRequest, fresh []int, res []driver.AcquireResult) (rest []int, err error) {
	var others, permits []int
	for k, i := range fresh {
		if k > 0 && reqs[i].Name == reqs[fresh[k-1]].Name { // each name can be there once
			return fresh, nil
		}
		if reqs[i].Permits != 0 {
			permits = append(permits, i)
		} else {
			others = append(others, i)
		}
	}
	if rest = others; s.has("queue_quickly", len(others)) {
		if rest, err = s.queueForHolder(ctx, reqs, others, res); err != nil {
			return nil, err
		}
	}
	more := permits
	if s.has("queue_for_permits", len(permits)) {
		if more, err = s.queueForPermits(ctx, reqs, permits, res); err != nil {
			return nil, after(len(rest) < len(others), err)
		}
	}
	rest = append(rest, more...)
	slices.Sort(rest)
	return rest, nil
}

// queueForHolder enters claims of names that are held alone, and grants names that are free. It
// returns the requests that need a visit.
func (s *rows) queueForHolder(ctx context.Context, reqs []driver.AcquireRequest, fresh []int, res []driver.AcquireResult) (rest []int, err error) {
	queued := make([]bool, len(fresh))
	enter := Statement{Name: "queue_quickly", Batch: queueBatch(reqs, fresh), Args: []any{s.client.Instance.String(), s.client.Label}}
	enter.Scan = func(scan Scanner) error {
		var position, ahead int64
		var h driver.Holder
		var r driver.AcquireResult
		if err := scan(&position, &r.Now, id{&h.Acq}, &h.Owner, &h.Label, &h.Version, &h.Since, &h.Until, &ahead); err != nil {
			return err
		}
		i := fresh[position-1]
		if h.Acq == reqs[i].Acq {
			r.Granted, r.Version, r.Remaining = true, h.Version, micros(h.Until-r.Now)
		} else {
			r.Holder, r.Ahead = h, int(ahead)
		}
		queued[position-1], res[i] = true, r
		return nil
	}
	return s.enter(ctx, enter, fresh, queued)
}

// enter runs a statement that enters claims, which notes those that are queued. It returns the
// requests that need a visit.
func (s *rows) enter(ctx context.Context, enter Statement, fresh []int, queued []bool) (rest []int, err error) {
	if len(fresh) == 0 {
		return nil, nil
	}
	if err := s.engine.Run(ctx, enter); errors.Is(err, ErrOvertaken) {
		return fresh, nil
	} else if err != nil {
		return nil, err
	}
	for k, i := range fresh {
		if !queued[k] {
			rest = append(rest, i)
		}
	}
	return rest, nil
}

// queueBatch is what a claim is entered with, of the requests at which.
func queueBatch(reqs []driver.AcquireRequest, which []int) []Column {
	n := len(which)
	at := func(k int) *driver.AcquireRequest { return &reqs[which[k]] }
	return []Column{
		column(n, func(k int) string { return at(k).Name }),
		column(n, func(k int) driver.ID { return at(k).Acq }),
		column(n, func(k int) int64 { return max(number(at(k).Shared), int64(at(k).Permits)) }), // the kind, 0 or 1, or how many permits there are
		column(n, func(k int) int64 { return at(k).TTL.Microseconds() }),
		column(n, func(k int) int64 { return at(k).Handed.Microseconds() }),
		column(n, func(k int) string { return at(k).Owner }),
		column(n, func(k int) []byte { return at(k).Value }),
		column(n, func(k int) []byte { return joinIDs(at(k).Carries) }),
	}
}

// takeOver ends a term for the next one of the same owner, or a detached term for whoever
// adopts it.
func (s *rows) takeOver(ctx context.Context, req *driver.AcquireRequest) (res driver.AcquireResult, err error) {
	e := &plan{names: []string{req.Name}, window: smallWindow, ends: true}
	e.decide = func(w *view, visit *claim.Visit) error {
		var a claim.Answer
		var guarded bool
		if req.Resumes != 0 {
			a, guarded = visit.Resume(req.Resumes, s.request(req))
		} else {
			a, guarded = visit.Adopt(req.Adopts, s.request(req))
		}
		if guarded {
			return ErrLocked
		}
		res = w.result(&a, visit, claim.Exclusive, 0)
		return nil
	}
	if err := s.lookAndVisit(ctx, e); err != nil {
		return driver.AcquireResult{}, err
	}
	if res.Now == 0 {
		res.Now, err = s.clock(ctx)
	}
	return res, err
}

// setValue does the work of [driver.Store.SetValue].
func (s *rows) setValue(ctx context.Context, req driver.SetValueRequest) (bool, error) {
	var changed, rising int64
	if req.Rising {
		rising = 1
	}
	err := s.engine.Run(ctx, Statement{Name: "set_value", Batch: []Column{
		[]string{req.Name}, []driver.ID{req.Acq}, []int64{req.Version}, [][]byte{req.Value}, []int64{rising},
	}, Changed: &changed})
	return changed > 0, err
}
