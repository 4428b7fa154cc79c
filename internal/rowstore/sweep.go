package rowstore

import (
	"context"
	"slices"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/claim"
)

// forgetAfter is for how long the beat of a Locker must have failed before its claims are
// deleted. They are passed over much sooner, but a database that was away for a while must
// not lose every queue.
const forgetAfter = time.Minute

// sweepBatch is how many names one transaction of a sweep locks.
const sweepBatch = 256

// sweep does the work of [driver.Store.Sweep].
func (s *rows) sweep(ctx context.Context, req driver.SweepRequest) (driver.SweepResult, error) {
	if req.Every > 0 {
		due, err := s.sweepDue(ctx, req.Every)
		return driver.SweepResult{Due: due}, err
	}
	if req.Pause > 0 {
		return driver.SweepResult{}, s.engine.Run(ctx, Statement{Name: "sweep_pause", Args: []any{req.Pause.Microseconds()}})
	}
	var res driver.SweepResult
	var expired, idle []string
	gone, retention := forgetAfter.Microseconds(), req.Retention.Microseconds()
	err := s.engine.Run(ctx, Statement{Name: "sweep_window", Args: []any{req.After, int64(req.Limit), gone, retention},
		Scan: func(scan Scanner) error {
			var visit, purge int64
			if err := scan(&res.Last, &visit, &purge, &res.Seen); err != nil {
				return err
			}
			if visit == 1 {
				expired = append(expired, res.Last)
			}
			if purge == 1 {
				idle = append(idle, res.Last)
			}
			return nil
		}})
	if err != nil {
		return driver.SweepResult{}, err
	}
	res.More = res.Seen == req.Limit
	changed := false
	for names := range slices.Chunk(expired, sweepBatch) {
		var crashed []driver.Crash
		if crashed, err = s.sweepNames(ctx, names); err != nil {
			break
		}
		res.Crashed, changed = append(res.Crashed, crashed...), true
	}
	if err == nil && len(idle) > 0 {
		var purged int64
		err = s.engine.Run(ctx, Statement{Name: "purge", Batch: []Column{idle}, Args: []any{retention}, Changed: &purged})
		res.Purged, changed = int(purged), changed || purged > 0
	}
	if err == nil && !res.More {
		err = s.engine.Run(ctx, Statement{Name: "purge_waiters", Args: []any{gone}})
	}
	if err != nil {
		s.report(res.Crashed)
		return driver.SweepResult{}, after(changed, err)
	}
	return res, nil
}

// sweepNames ends what has expired of names, and returns whose terms those were.
func (s *rows) sweepNames(ctx context.Context, names []string) (crashed []driver.Crash, err error) {
	ended := make(map[string][]claim.Term)
	e := &plan{names: names, all: true, pass: true, tellsCrashes: true}
	e.decide = func(w *view, visit *claim.Visit) error {
		visit.Sweep(func(locker driver.ID) bool { return w.gone[locker] })
		ended[w.name] = visit.Crashed()
		return nil
	}
	if err := s.visit(ctx, e); err != nil {
		return nil, err
	}
	for _, name := range names {
		for _, t := range ended[name] {
			crashed = append(crashed, driver.Crash{Name: name, Holder: holderOf(&t)})
		}
	}
	return crashed, nil
}

// sweepDue reports whether a pass is due, and takes it on.
func (s *rows) sweepDue(ctx context.Context, every time.Duration) (bool, error) {
	var changed int64
	err := s.engine.Run(ctx, Statement{Name: "sweep_due", Args: []any{every.Microseconds()}, Changed: &changed})
	return changed > 0 && err == nil, err
}
