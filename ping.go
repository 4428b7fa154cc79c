package sqllock

import (
	"context"
	"sync"
	"time"

	"github.com/sqllock/sqllock/driver"
)

func (m *sessions) Renew(ctx context.Context, reqs []driver.RenewRequest, _ bool, _ time.Duration) (driver.RenewResults, error) {
	res := driver.RenewResults{Status: make([]driver.RenewStatus, len(reqs))}
	groups := make(map[*seat][]int)
	m.mu.Lock()
	for i := range reqs {
		res.Status[i] = driver.Ended
		if g := m.grips[reqs[i].Acq]; g != nil && g.seat != nil {
			groups[g.seat] = append(groups[g.seat], i)
		}
	}
	m.mu.Unlock()
	if len(groups) == 1 {
		for st, which := range groups {
			part, err := m.ping(ctx, st, reqs, which)
			if err != nil {
				return res, err
			}
			m.put(&res, which, part)
		}
		return res, nil
	}
	m.pingAll(ctx, groups, reqs, &res)
	return res, nil
}

// pingAll pings many sessions at a time. One that does not answer is no reason to
// doubt the others: it is asked again, by itself.
func (m *sessions) pingAll(ctx context.Context, groups map[*seat][]int, reqs []driver.RenewRequest, res *driver.RenewResults) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for st, which := range groups {
		wg.Go(func() {
			part, err := m.ping(ctx, st, reqs, which)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				m.put(res, which, part)
				return
			}
			if res.Errs == nil {
				res.Errs = make([]error, len(reqs))
			}
			for _, i := range which {
				res.Errs[i] = err
			}
		})
	}
	wg.Wait()
}

func (m *sessions) put(res *driver.RenewResults, which []int, part driver.RenewResults) {
	res.Now = part.Now
	for k, i := range which {
		res.Status[i] = part.Status[k]
	}
}

// ping renews the locks of one session.
func (m *sessions) ping(ctx context.Context, st *seat, reqs []driver.RenewRequest, which []int) (driver.RenewResults, error) {
	sent := make([]driver.RenewRequest, len(which))
	for k, i := range which {
		sent[k] = reqs[i]
	}
	var res driver.RenewResults
	err := m.on(ctx, st, func(ctx context.Context) error {
		r, err := st.session.Renew(ctx, sent)
		if err == nil {
			res = r
		}
		return err
	}, func() {})
	if err != nil {
		return driver.RenewResults{}, err
	}
	return res, nil
}
