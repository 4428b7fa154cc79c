package rowstore

import (
	"context"
	"errors"

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

// grantPermits grants permits that are free. It reports whether it granted any.
func (s *rows) grantPermits(ctx context.Context, reqs []driver.AcquireRequest, res []driver.AcquireResult) (granted bool, err error) {
	if !s.quick {
		return false, nil
	}
	which := once(len(reqs), func(i int) string { return reqs[i].Name }, func(int) bool { return true },
		func(i int) bool { return reqs[i].Permits != 0 })
	if len(which) == 0 {
		return false, nil
	}
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
