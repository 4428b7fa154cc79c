package sqllock_test

import (
	"context"
	"slices"

	"github.com/sqllock/sqllock/driver"
)

// What the fake database has for those who stand in line. It does not know its
// clients apart: whoever hands a name over is told all of the new holders.

type fakeClaim struct {
	driver.AcquireRequest
	seq   int64
	since int64
	until int64
}

// waiting returns the tickets that are alive; the others are forgotten.
func (x *row) waiting(now int64) []*fakeClaim {
	x.claims = slices.DeleteFunc(x.claims, func(p *fakeClaim) bool { return p.until <= now })
	return x.claims
}

// takeAway removes the ticket of an acquisition.
func (x *row) takeAway(acq driver.ID) {
	x.claims = slices.DeleteFunc(x.claims, func(p *fakeClaim) bool { return p.Acq == acq })
}

func (f *fake) enqueue(ctx context.Context, reqs []driver.AcquireRequest) (res []driver.AcquireResult, err error) {
	err = f.statement(ctx, "line", func() {
		for _, r := range reqs {
			res = append(res, f.queue(r))
		}
	})
	return res, err
}

func (f *fake) queue(r driver.AcquireRequest) (res driver.AcquireResult) {
	x, now := f.rows[r.Name], f.now()
	if x == nil {
		x = &row{}
		f.rows[r.Name] = x
	}
	var mine *fakeClaim
	first := true
	for _, p := range x.waiting(now) {
		if p.Acq == r.Acq {
			mine = p
			break
		}
		first = first && p.Shared && r.Shared
		res.Ahead++
	}
	held := x.acq != (driver.ID{}) && x.until > now
	if first || held && x.acq == r.Acq || x.readers[r.Acq] != nil {
		ahead := res.Ahead
		res = f.take(r)
		if res.Ahead = ahead; res.Granted {
			x.takeAway(r.Acq)
			return res
		}
	} else if held {
		res.Holder = x.holder()
	}
	res.Now = now
	if mine == nil {
		x.seq++
		mine = &fakeClaim{AcquireRequest: r, seq: x.seq, since: now}
		x.claims = append(x.claims, mine)
	}
	mine.until = max(mine.until, now+r.Life.Microseconds())
	return res
}

// handOver gives a name that has become free to the head of its line.
func (f *fake) handOver(name string) (next []driver.HandOver) {
	x, now := f.rows[name], f.now()
	for len(x.waiting(now)) > 0 && x.acq == (driver.ID{}) {
		p := x.claims[0]
		r := p.AcquireRequest
		r.TTL = p.Handed
		res := f.take(r)
		if !res.Granted {
			break
		}
		x.takeAway(p.Acq)
		next = append(next, driver.HandOver{Acq: p.Acq, Version: res.Version, Remaining: res.Remaining, Now: now})
	}
	return next
}

func (f *fake) claimsThatCarry(ctx context.Context) (waits []driver.Waiter, err error) {
	err = f.statement(ctx, "waits", func() {
		for name, x := range f.rows {
			for _, p := range x.waiting(f.now()) {
				if len(p.Carries) == 0 {
					continue
				}
				w := driver.Waiter{Name: name, Acq: p.Acq, Label: "fake", Seq: p.seq, Since: p.since, Carries: p.Carries}
				if p.Shared {
					w.Kind = driver.KindShared
				}
				if x.acq != (driver.ID{}) {
					w.Holders = append(w.Holders, x.acq)
				}
				for acq := range x.readers {
					w.Holders = append(w.Holders, acq)
				}
				waits = append(waits, w)
			}
		}
	})
	return waits, err
}

// waiters is how many stand in line for a name.
func (f *fake) waiters(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if x := f.rows[name]; x != nil {
		return len(x.waiting(f.now()))
	}
	return 0
}
