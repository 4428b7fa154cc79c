package rowstore

import (
	"context"
	"slices"

	"github.com/sqllock/sqllock/driver"
)

// AllGranter is an [Engine] that grants several names by one statement, all of them or none.
type AllGranter interface {
	Engine
	// GrantAll is Grant, but for all of the requests or none: free returns all of them if all
	// look free, and else none.
	GrantAll(ctx context.Context, look func() Statement, free func() []driver.AcquireRequest, granted func(i int, g Granted)) error
}

// grantTogether acquires names for one caller, all of them or none. What is free is granted
// by one statement, where the engine has it. Otherwise the names are visited in one transaction,
// which writes nothing if one of them is refused.
func (s *rows) grantTogether(ctx context.Context, reqs []driver.AcquireRequest, res []driver.AcquireResult) error {
	granted, err := s.grantAllFree(ctx, reqs, res)
	if err != nil || granted {
		return err
	}
	which := column(len(reqs), func(i int) int { return i })
	e := s.acquisition(reqs, which, res)
	e.tries = true
	e.agreed = func() bool { return !slices.ContainsFunc(res, func(r driver.AcquireResult) bool { return !r.Granted }) }
	if err := s.lookAndVisit(ctx, e); err != nil || e.agreed() {
		return err
	}
	for i := range res {
		r := &res[i]
		*r = driver.AcquireResult{Now: r.Now, Refused: !r.Granted, Holder: r.Holder}
	}
	return nil
}

// grantAllFree grants names that are all free to a caller who wants them alone. It reports
// whether it did.
func (s *rows) grantAllFree(ctx context.Context, reqs []driver.AcquireRequest, res []driver.AcquireResult) (granted bool, err error) {
	engine, ok := s.engine.(AllGranter)
	if !ok || reqs[0].Together() {
		return false, nil
	}
	var v *views
	look := func() Statement {
		v = newViews(column(len(reqs), func(i int) string { return reqs[i].Name }))
		return v.read()
	}
	n := 0
	err = engine.GrantAll(ctx, look, func() []driver.AcquireRequest {
		if v != nil && slices.ContainsFunc(reqs, func(r driver.AcquireRequest) bool { return !v.mayGrant(s.request(&r), r.Name) }) {
			return nil
		}
		return reqs
	}, func(i int, g Granted) {
		res[i] = driver.AcquireResult{Granted: true, Version: g.Version, Remaining: micros(g.Expires - g.Now), Now: g.Now}
		n++
	})
	return n == len(reqs), err
}
