package session

import (
	"context"
	"sync"

	"github.com/sqllock/sqllock/driver"
)

// Renew proves that the sessions of the leases live. It asks all of them at one time.
func (b *Backend) Renew(ctx context.Context, reqs []driver.RenewRequest, _ bool) (driver.RenewResults, error) {
	res := driver.RenewResults{Status: make([]driver.RenewStatus, len(reqs))}
	at := make(map[*sessionConn][]int)
	b.mu.Lock()
	for i := range reqs {
		res.Status[i] = driver.Ended
		if l := b.locks[reqs[i].Acq]; l != nil && l.conn != nil {
			at[l.conn] = append(at[l.conn], i)
		}
	}
	b.mu.Unlock()
	if len(at) == 1 {
		for c, indexes := range at {
			part, err := b.renewConn(ctx, c, reqs, indexes)
			if err != nil {
				return res, err
			}
			merge(&res, indexes, part)
		}
		return res, nil
	}
	b.renewConns(ctx, at, reqs, &res)
	return res, nil
}

// renewConns renews the locks of many sessions. A session that does not answer says
// nothing about the others, so each request gets the error of its own session.
func (b *Backend) renewConns(ctx context.Context, at map[*sessionConn][]int, reqs []driver.RenewRequest, res *driver.RenewResults) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for c, indexes := range at {
		wg.Go(func() {
			part, err := b.renewConn(ctx, c, reqs, indexes)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				merge(res, indexes, part)
				return
			}
			if res.Errs == nil {
				res.Errs = make([]error, len(reqs))
			}
			for _, i := range indexes {
				res.Errs[i] = err
			}
		})
	}
	wg.Wait()
}

func merge(res *driver.RenewResults, indexes []int, part driver.RenewResults) {
	res.Now = part.Now
	for k, i := range indexes {
		res.Status[i] = part.Status[k]
	}
}

// renewConn renews the locks of one session.
func (b *Backend) renewConn(ctx context.Context, c *sessionConn, reqs []driver.RenewRequest, indexes []int) (driver.RenewResults, error) {
	sent := make([]driver.RenewRequest, len(indexes))
	for k, i := range indexes {
		sent[k] = reqs[i]
	}
	var res driver.RenewResults
	err := b.do(ctx, c, func(ctx context.Context) error {
		r, err := c.session.Renew(ctx, sent)
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
