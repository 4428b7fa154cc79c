package rowstore

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/sqllock/sqllock/driver"
)

// The statements here do what a visit would do with names that are held together, where nothing is
// unusual. Each name can be there once: names with several requests are visited.

// once returns which of n requests, sorted by name, are the only ones of their names, of those
// that count, and are picked.
func once(n int, name func(i int) string, counts, pick func(i int) bool) []int {
	var which []int
	last, repeated := -1, false
	keep := func() {
		if last >= 0 && !repeated && pick(last) {
			which = append(which, last)
		}
	}
	for i := range n {
		if !counts(i) {
			continue
		}
		if same := last >= 0 && name(i) == name(last); same {
			repeated = true
		} else {
			keep()
			repeated = false
		}
		last = i
	}
	keep()
	return which
}

// PermitGranter is an [Engine] that has statements for what is most usual with permits: they are
// free, and so is the name.
type PermitGranter interface {
	Engine
	// GrantPermits grants permits of names that have a row with that many permits, and that nobody
	// holds, waits for, guards, or is kept from. It calls look and free as [Engine.Grant] does: a
	// losing attempt locks nothing. What a database cannot do in this way it leaves to a visit. A
	// request that is not granted leaves no trace. It calls granted with the index of each that is.
	GrantPermits(ctx context.Context, look func() Statement, free func() []driver.AcquireRequest, granted func(i int, g Granted)) error
	// FreeClaims ends terms of claims that were never guarded, for whose names nobody waits.
	// Requests are distinct by name and sorted by name, and have no MinHold. It calls freed with
	// the index of each whose term it has ended. It need not be flushed.
	FreeClaims(ctx context.Context, reqs []driver.ReleaseRequest, freed func(i int)) error
}

// grantPermits grants permits that are free. It reports whether it granted any, and returns the
// rows if it has read them and lost nothing to others since.
func (s *rows) grantPermits(ctx context.Context, reqs []driver.AcquireRequest, res []driver.AcquireResult) (seen *views, granted bool, err error) {
	which := once(len(reqs), func(i int) string { return reqs[i].Name }, func(int) bool { return true },
		func(i int) bool { return reqs[i].Permits != 0 })
	if len(which) == 0 {
		return nil, false, nil
	}
	if engine, ok := s.engine.(PermitGranter); ok {
		return s.grantFirst(ctx, engine, reqs, which, res)
	}
	if s.has("grant_permits", len(which)) {
		granted, err = s.grantQuickly(ctx, reqs, which, res)
	}
	return nil, granted, err
}

// grantFirst is grantPermits of names that nobody holds.
func (s *rows) grantFirst(
	ctx context.Context, engine PermitGranter, reqs []driver.AcquireRequest, which []int, res []driver.AcquireResult,
) (seen *views, granted bool, err error) {
	var v *views
	look := func() Statement {
		names, _ := distinct(len(reqs), func(i int) string { return reqs[i].Name })
		v = newViews(names)
		return v.read()
	}
	var free []int
	n := 0
	err = engine.GrantPermits(ctx, look, func() []driver.AcquireRequest {
		free = slices.DeleteFunc(which, func(i int) bool { return v != nil && !v.byName[reqs[i].Name].isUnheld(reqs[i].Permits) })
		return column(len(free), func(k int) driver.AcquireRequest { return reqs[free[k]] })
	}, func(k int, g Granted) {
		res[free[k]] = driver.AcquireResult{Granted: true, Version: g.Version, Remaining: micros(g.Expires - g.Now), Now: g.Now}
		n++
	})
	if n < len(free) {
		v = nil
	}
	return v, n > 0, err
}

// isUnheld reports that the row says that a name has so many permits, and that nobody has it.
func (w *view) isUnheld(permits int) bool {
	r := &w.row
	return w.exists && r.Acq == driver.ID{} && r.Waiting == 0 && r.Holding == 0 && r.Permits == permits && r.NotBefore <= w.now &&
		r.Version < math.MaxInt64 && r.Seq < math.MaxInt64
}

// grantQuickly is grantPermits by one statement.
func (s *rows) grantQuickly(ctx context.Context, reqs []driver.AcquireRequest, which []int, res []driver.AcquireResult) (granted bool, err error) {
	n := len(which)
	at := func(k int) *driver.AcquireRequest { return &reqs[which[k]] }
	grants := make(map[int]driver.AcquireResult, n)
	err = s.engine.Run(ctx, Statement{Name: "grant_permits", Args: []any{s.client.Instance.String(), s.client.Label}, Batch: []Column{
		column(n, func(k int) string { return at(k).Name }),
		column(n, func(k int) driver.ID { return at(k).Acq }),
		column(n, func(k int) string { return at(k).Owner }),
		column(n, func(k int) int64 { return at(k).TTL.Microseconds() }),
		column(n, func(k int) []byte { return at(k).Value }),
		column(n, func(k int) int64 { return int64(at(k).Permits) }),
	}, Scan: func(scan Scanner) error {
		var position, expires int64
		r := driver.AcquireResult{Granted: true}
		if err := scan(&position, &r.Version, &r.Slot, &r.Now, &expires); err != nil {
			return err
		}
		r.Remaining = micros(expires - r.Now)
		grants[which[position-1]] = r
		return nil
	}})
	switch {
	case errors.Is(err, ErrOvertaken):
		return false, nil
	case err != nil:
		return false, err
	}
	for i := range grants {
		res[i] = grants[i]
	}
	return len(grants) > 0, nil
}

// queueForPermits enters claims on permits, all of which are held. It returns the requests that
// need a visit.
func (s *rows) queueForPermits(ctx context.Context, reqs []driver.AcquireRequest, fresh []int, res []driver.AcquireResult) (rest []int, err error) {
	queued := make([]bool, len(fresh))
	enter := Statement{Name: "queue_for_permits", Batch: queueBatch(reqs, fresh), Args: []any{s.client.Instance.String(), s.client.Label}}
	enter.Scan = func(scan Scanner) error {
		var position, ahead int64
		h := driver.Holder{Shared: true, Permit: true}
		var r driver.AcquireResult
		if err := scan(&position, &r.Now, &h.Version, &h.Since, &h.Until, &ahead); err != nil {
			return err
		}
		if h.Until > 0 { // else those who hold it have come since the statement began
			r.Holder = h
		}
		r.Ahead = int(ahead)
		queued[position-1], res[fresh[position-1]] = true, r
		return nil
	}
	return s.enter(ctx, enter, fresh, queued)
}

// releaseTogether ends terms that are held together with others, if the engine has a way that is
// quicker than a visit.
func (s *rows) releaseTogether(ctx context.Context, reqs []driver.ReleaseRequest, res []driver.ReleaseResult) error {
	if engine, ok := s.engine.(PermitGranter); ok {
		return s.freeLast(ctx, engine, reqs, res)
	}
	if s.has("free_claims", len(reqs)) {
		return s.releaseQuickly(ctx, reqs, res)
	}
	return nil
}

// releaseQuickly ends terms that are held together with others: by one statement what nobody
// waits for, and permits that somebody waits for by another one. The rest is left to a visit.
func (s *rows) releaseQuickly(ctx context.Context, reqs []driver.ReleaseRequest, res []driver.ReleaseResult) error {
	pick := func(which func(r *driver.ReleaseRequest) bool) []int {
		return once(len(reqs), func(i int) string { return reqs[i].Name }, func(i int) bool { return !res[i].Freed },
			func(i int) bool { return reqs[i].Shared && !reqs[i].Guarded && which(&reqs[i]) })
	}
	freed, err := s.freeClaims(ctx, reqs, pick(func(r *driver.ReleaseRequest) bool { return !r.Awaited }), res)
	if err != nil {
		return err
	}
	permits := pick(func(r *driver.ReleaseRequest) bool { return r.Permit })
	if len(permits) == 0 {
		return nil
	}
	unawaited, err := s.handOver(ctx, "hand_over_permits", "wake_permits", reqs, permits, res)
	if err != nil {
		return after(freed, err)
	}
	for i := range res {
		freed = freed || res[i].Freed
	}
	_, err = s.freeClaims(ctx, reqs, unawaited, res)
	return after(freed, err)
}

// freeLast is releaseQuickly for a [PermitGranter]: it frees what nobody waits for.
func (s *rows) freeLast(ctx context.Context, engine PermitGranter, reqs []driver.ReleaseRequest, res []driver.ReleaseResult) error {
	which := once(len(reqs), func(i int) string { return reqs[i].Name }, func(i int) bool { return !res[i].Freed }, func(i int) bool {
		r := &reqs[i]
		return r.Shared && !r.Guarded && !r.Awaited && r.MinHold <= 0
	})
	if len(which) == 0 {
		return nil
	}
	some := column(len(which), func(k int) driver.ReleaseRequest { return reqs[which[k]] })
	return engine.FreeClaims(ctx, some, func(k int) { res[which[k]].Freed = true })
}

// freeClaims ends those of the terms of the requests at which for whose names nobody waits. It
// reports whether it ended any.
func (s *rows) freeClaims(ctx context.Context, reqs []driver.ReleaseRequest, which []int, res []driver.ReleaseResult) (freed bool, err error) {
	if len(which) == 0 {
		return false, nil
	}
	var ended []int
	err = s.engine.Run(ctx, Statement{Name: "free_claims", Batch: releaseBatch(reqs, which), Scan: func(scan Scanner) error {
		var position, one int64
		if err := scan(&position, &one); err != nil {
			return err
		}
		ended = append(ended, which[position-1])
		return nil
	}})
	switch {
	case errors.Is(err, ErrOvertaken):
		return false, nil
	case err != nil:
		return false, err
	}
	for _, i := range ended {
		res[i].Freed = true
	}
	return len(ended) > 0, nil
}
