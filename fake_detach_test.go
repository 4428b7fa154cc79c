package sqllock_test

import (
	"context"

	"github.com/sqllock/sqllock/driver"
)

// What the fake database has for terms that are given away.

func (f *fake) detachTerm(ctx context.Context, r driver.ReleaseRequest) ([]driver.ReleaseResult, error) {
	var res driver.ReleaseResult
	err := f.statement(ctx, "detach", func() {
		x, now := f.rows[r.Name], f.now()
		if x == nil || x.version != r.Version || x.until <= now || x.acq != r.Acq && x.acq != r.To {
			return
		}
		res.Freed = true
		if x.acq == r.Acq {
			x.acq, x.key, x.owner, x.until = r.To, r.To, "", now+r.TTL.Microseconds()
		}
	})
	return []driver.ReleaseResult{res}, err
}

func (f *fake) adoptTerm(ctx context.Context, r driver.AcquireRequest) ([]driver.AcquireResult, error) {
	var res driver.AcquireResult
	f.set(func(f *fake) { f.last = r.Acq })
	err := f.statement(ctx, "adopt", func() {
		x, now := f.rows[r.Name], f.now()
		res.Now = now
		switch {
		case x == nil || x.until <= now:
		case x.acq == r.Acq:
			res.Granted, res.Found, res.Version = true, true, x.version
		case x.acq == r.Adopts:
			res.Granted, res.Version = true, max(x.version+1, now)
			x.acq, x.owner, x.version, x.leaseCount, x.value = r.Acq, r.Owner, res.Version, 1, r.Value
			x.since, x.until = now, now+r.TTL.Microseconds()
		}
		if res.Granted {
			res.Remaining = r.TTL
		}
	})
	return []driver.AcquireResult{res}, err
}
