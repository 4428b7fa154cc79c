package session

import (
	"context"

	"github.com/sqllock/sqllock/driver"
)

// Renew proves that the session of the leases lives. Ask for those of one session in one call, see
// [Backend.Session]: else the news of all waits for the slowest.
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
	for c, indexes := range at {
		part, err := b.renewConn(ctx, c, reqs, indexes)
		if err != nil {
			return res, err
		}
		merge(&res, indexes, part)
	}
	return res, nil
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
