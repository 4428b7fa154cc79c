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

// why asks the session itself: it may have ended without a word.
func (m *sessions) why(ctx context.Context, name string, acq driver.ID, token int64) (Reason, error) {
	res, err := m.Renew(ctx, []driver.RenewRequest{{Name: name, Acq: acq, Version: token, TTL: m.ttl, Holds: 1}}, false, 0)
	switch {
	case err != nil:
		if g, _ := m.held(acq); g != nil {
			return 0, err
		}
		return LostSession, nil
	case res.Status[0] == driver.Renewed:
		return 0, nil
	case res.Status[0] == driver.Revoked:
		return LostRevoked, nil
	}
	return LostSession, nil
}
