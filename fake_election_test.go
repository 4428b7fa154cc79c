package sqllock_test

import (
	"context"

	"github.com/sqllock/sqllock/driver"
)

// What the fake databases have for elections.

func (f *fake) resumeTerm(ctx context.Context, r driver.AcquireRequest) ([]driver.AcquireResult, error) {
	var res driver.AcquireResult
	f.set(func(f *fake) { f.last = r.Acq })
	err := f.statement(ctx, "resume", func() {
		x, now := f.rows[r.Name], f.now()
		res.Now = now
		if x == nil || x.acq == (driver.ID{}) || x.until <= now || x.owner != r.Owner || x.version != r.Resumes {
			return
		}
		res.Granted, res.Version, res.Remaining = true, max(x.version+1, now), r.TTL
		x.acq, x.version, x.leaseCount, x.value = r.Acq, res.Version, 1, r.Value
		x.since, x.until = now, now+r.TTL.Microseconds()
	})
	return []driver.AcquireResult{res}, err
}

func (f *fake) SetValue(ctx context.Context, r driver.SetValueRequest) (done bool, err error) {
	err = f.statement(ctx, "proclaim", func() {
		x := f.rows[r.Name]
		if done = x != nil && x.acq == r.Acq && x.version == r.Version && x.until > f.now(); done {
			x.value = r.Value
		}
	})
	return done, err
}

func (f *fakeSessions) Look(_ context.Context, names []string) ([]driver.Row, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	rows := make([]driver.Row, len(names))
	for i, name := range names {
		rows[i] = f.rows[name]
	}
	return rows, nil
}

func (f *fakeSessions) Revoke(_ context.Context, reqs []driver.RevokeRequest) ([]driver.RevokeResult, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	res := make([]driver.RevokeResult, len(reqs))
	for i, req := range reqs {
		f.requested[req.Name] = append(f.requested[req.Name], req.Version)
		res[i] = driver.RevokeResult{Row: f.rows[req.Name], Revoked: true}
	}
	return res, nil
}

func (f *fakeSessions) SetValue(context.Context, driver.SetValueRequest) (bool, error) {
	return false, nil
}
