package sqllock_test

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// What the fake database has for looking inside and for cleaning up.

func (x *row) holder() driver.Holder {
	return driver.Holder{Acq: x.acq, Owner: x.owner, Label: "fake", Version: x.version, Since: x.since, Until: x.until}
}

func (x *row) release(now int64, minHold time.Duration) {
	x.acq, x.until, x.ended, x.value = driver.ID{}, now, driver.EndedReleased, nil
	if minHold > 0 {
		x.notBefore = max(x.notBefore, x.since+minHold.Microseconds())
	}
}

func (f *fake) look(name string) driver.Row {
	r := driver.Row{Name: name, Now: f.now()}
	if x := f.rows[name]; x != nil {
		r.Holder, r.Holds, r.Gate, r.Ended, r.Revoked, r.Value = x.holder(), x.leaseCount, x.notBefore, x.ended, x.revoked, x.value
		r.Asked = x.requested
		r.Detached = x.acq == x.key && x.acq != driver.ID{}
		if r.Readers = x.sharing(r.Now); r.Readers > 0 {
			r.Holder = x.together()
		}
	}
	return r
}

func (f *fake) Read(ctx context.Context, req driver.ReadRequest) (res driver.ReadResult, err error) {
	switch {
	case req.Waiters:
		res.Waiters, err = f.claimsThatCarry(ctx)
	case req.List.Limit > 0:
		res.Page, err = f.list(ctx, req.List)
	default:
		res.Rows, err = f.lookAll(ctx, req.Names)
	}
	return res, err
}

func (f *fake) lookAll(ctx context.Context, names []string) (rows []driver.Row, err error) {
	err = f.statement(ctx, "look", func() {
		for _, name := range names {
			rows = append(rows, f.look(name))
		}
	})
	return rows, err
}

// namesAfter returns the names that follow a name, limit at most.
func (f *fake) namesAfter(name string, limit int) (names []string, more bool) {
	for _, n := range slices.Sorted(maps.Keys(f.rows)) {
		if n > name {
			names = append(names, n)
		}
	}
	if len(names) >= limit {
		return names[:limit], true
	}
	return names, false
}

func (f *fake) list(ctx context.Context, req driver.ListRequest) (page driver.Page, err error) {
	err = f.statement(ctx, "list", func() {
		names, more := f.namesAfter(req.After, req.Limit)
		for _, name := range names {
			r := f.look(name)
			r.Value = nil
			if req.Free || r.Held() || r.Gate > r.Now {
				page.Rows = append(page.Rows, r)
			}
			page.Last = name
		}
		page.More = more
	})
	return page, err
}

func (f *fake) Revoke(ctx context.Context, reqs []driver.RevokeRequest) (res []driver.RevokeResult, err error) {
	kind := "revoke"
	if reqs[0].Politely {
		kind = "ask"
	}
	err = f.statement(ctx, kind, func() {
		for _, req := range reqs {
			r := driver.RevokeResult{Row: f.look(req.Name)}
			if req.Politely {
				if x := f.rows[req.Name]; x != nil && x.version == req.Version && !f.locked[req.Name] {
					x.requested = x.version
				}
				res = append(res, r)
				continue
			}
			meant := req.Version == 0 || req.Version == r.Row.Holder.Version
			if meant && (r.Row.Held() || r.Row.Gate > r.Row.Now) {
				x := f.rows[req.Name]
				if r.Revoked = true; r.Row.Held() {
					x.revoked = x.version
				}
				x.acq, x.until, x.ended, x.value, x.notBefore = driver.ID{}, f.now(), driver.EndedRevoked, nil, 0
				x.version = max(x.version+1, f.now())
			}
			res = append(res, r)
		}
	})
	return res, err
}

func (f *fake) Sweep(ctx context.Context, req driver.SweepRequest) (res driver.SweepResult, err error) {
	if req.Every > 0 {
		res.Due, err = f.sweepDue(ctx, req.Every)
		return res, err
	}
	if req.Pause > 0 {
		return res, f.statement(ctx, "pause", func() { f.sweepPause = req.Pause.Microseconds() })
	}
	err = f.statement(ctx, "sweep", func() {
		names, more := f.namesAfter(req.After, req.Limit)
		for _, name := range names {
			x, now := f.rows[name], f.now()
			old := now - req.Retention.Microseconds()
			switch {
			case x.acq != driver.ID{} && x.until <= now:
				res.Crashed = append(res.Crashed, driver.Crash{Name: name, Holder: x.holder()})
				x.acq, x.ended, x.value = driver.ID{}, driver.EndedExpired, nil
			case x.acq == driver.ID{} && x.until <= old && x.version < old && x.notBefore <= now && x.sharing(now) == 0:
				delete(f.rows, name)
				res.Purged++
			}
			res.Last = name
		}
		res.Seen, res.More = len(names), more
	})
	return res, err
}

func (f *fake) sweepDue(ctx context.Context, every time.Duration) (mine bool, err error) {
	err = f.statement(ctx, "turn", func() {
		if now := f.now(); f.swept <= now-max(every.Microseconds(), f.sweepPause) {
			f.swept, mine = now, true
		}
	})
	return mine, err
}

// The fake knows no transactions.

func (f *fake) Guard(context.Context, *sql.Tx, driver.GuardRequest) (driver.GuardStatus, error) {
	return 0, errDenied
}

func (f *fake) Begin(context.Context, *sql.TxOptions) (*sql.Tx, error) { return nil, errDenied }

// after makes a statement of the given kind take d.
func after(kind string, d time.Duration) func(context.Context, string) error {
	return func(ctx context.Context, k string) error {
		if k != kind {
			return nil
		}
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// failing makes statements of the given kind fail.
func failing(kind string, err error) func(context.Context, string) error {
	return func(_ context.Context, k string) error {
		if k == kind {
			return err
		}
		return nil
	}
}
