package session

import (
	"context"

	"github.com/sqllock/sqllock/driver"
)

// Acquire implements the method of [driver.Store]. If a request resumes, it asks the holder to
// release the name, and grants nothing: the server decides who gets the lock next.
func (b *Backend) Acquire(ctx context.Context, reqs []driver.AcquireRequest) ([]driver.AcquireResult, error) {
	if len(reqs) == 0 || reqs[0].Resumes == 0 {
		return b.grant(ctx, reqs)
	}
	names := make([]driver.RevokeRequest, len(reqs))
	for i := range reqs {
		names[i] = driver.RevokeRequest{Name: reqs[i].Name, Version: reqs[i].Resumes}
	}
	_, err := b.store.Revoke(ctx, names)
	return make([]driver.AcquireResult, len(reqs)), err
}

func (b *Backend) grant(ctx context.Context, reqs []driver.AcquireRequest) ([]driver.AcquireResult, error) {
	r := &batchRequest{b: b, reqs: reqs, res: make([]driver.AcquireResult, len(reqs))}
	if err := r.reserve(); err != nil {
		return nil, err
	}
	if len(r.locks) == 0 {
		return r.res, nil
	}
	c, err := b.connFor(ctx, len(r.locks))
	if err != nil {
		r.forget()
		return nil, err
	}
	waited := r.limitWait()
	err = b.do(ctx, c, func(ctx context.Context) error {
		defer waited()
		return r.send(ctx, c)
	}, func() {
		waited()
		r.forget()
		b.unuse(c, len(r.locks))
	})
	if err != nil {
		return nil, err // the results may still be written to
	}
	return r.res, nil
}

// batchRequest is a batch of grant requests on its way to a session.
type batchRequest struct {
	b    *Backend
	reqs []driver.AcquireRequest
	res  []driver.AcquireResult

	// What has to be sent. The Backend answers the other requests by itself.
	sent  []driver.AcquireRequest
	locks []*sessionLock
	at    []int // the indexes in reqs
}

// reserve finds out which requests have to be sent. If one fails, none is.
func (r *batchRequest) reserve() error {
	n := len(r.reqs)
	r.sent, r.locks, r.at = make([]driver.AcquireRequest, 0, n), make([]*sessionLock, 0, n), make([]int, 0, n)
	for i := range r.reqs {
		l, res, err := r.b.reserve(&r.reqs[i])
		if err != nil {
			r.forget()
			return err
		}
		r.res[i] = res
		if l != nil {
			r.sent, r.locks, r.at = append(r.sent, r.reqs[i]), append(r.locks, l), append(r.at, i)
		}
	}
	return nil
}

func (r *batchRequest) forget() {
	for _, l := range r.locks {
		r.b.forget(l)
	}
}

// limitWait lets the request wait in the database if its session takes only this one
// lock, and if not too many sessions wait. The caller calls waited after the request.
func (r *batchRequest) limitWait() (waited func()) {
	limit := r.b.limit
	if limit != nil && r.sent[0].Wait > 0 && limit.tryWaitInDB() {
		return limit.leaveDB
	}
	for i := range r.sent {
		r.sent[i].Wait = 0
	}
	return func() {}
}

// send sends the requests to a session, which the caller has to itself.
func (r *batchRequest) send(ctx context.Context, c *sessionConn) error {
	all, err := c.session.Grant(ctx, r.sent)
	if err != nil {
		r.forget()
		r.b.unuse(c, len(r.locks))
		return err
	}
	var ended error
	for k, l := range r.locks {
		if !all[k].Granted {
			r.b.forget(l)
			r.b.unuse(c, 1)
		} else if err := r.granted(ctx, c, l, &all[k]); err != nil {
			ended = err
		}
		r.res[r.at[k]] = all[k]
	}
	return ended
}

// granted notes that a lock was granted, and releases it if nobody wants it any more.
func (r *batchRequest) granted(ctx context.Context, c *sessionConn, l *sessionLock, res *driver.AcquireResult) error {
	held, needed := r.b.setHeld(c, l, res)
	if !held || !needed { // if this fails, whoever abandoned the lock asks again
		_ = r.b.releaseOne(ctx, c, l, driver.ReleaseRequest{})
	}
	if !held {
		r.b.forget(l)
		return ErrUnanswered
	}
	return nil
}
