package lockmysql

import (
	"context"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/access"
)

// Renew implements [driver.LeaseStore].
func (s *store) Renew(ctx context.Context, reqs []driver.RenewRequest, wait bool) (driver.RenewResults, error) {
	var res driver.RenewResults
	by := func(once renewOnce) func([]driver.RenewRequest) ([]driver.RenewStatus, error) {
		return func(reqs []driver.RenewRequest) ([]driver.RenewStatus, error) {
			part, err := s.renew(ctx, reqs, wait, once)
			res.Now = part.Now
			return part.Status, err
		}
	}
	status, err := access.Each(reqs, func(r *driver.RenewRequest) bool { return r.Shared },
		by((*renewing).once), by((*renewing).onceShared), partly)
	if err != nil {
		return driver.RenewResults{}, err
	}
	res.Status = status
	return res, nil
}

// renew renews what does not share, or what does, as once says. As long as every
// lease that is not shared is still held and no row is locked, it is one statement
// for all of them. Otherwise a look tells which were not renewed, and why.
func (s *store) renew(ctx context.Context, reqs []driver.RenewRequest, wait bool, once renewOnce) (driver.RenewResults, error) {
	res := driver.RenewResults{Status: make([]driver.RenewStatus, 0, len(reqs))}
	for len(reqs) > 0 {
		n := s.fitting(len(reqs), func(i int) int { return len(reqs[i].Name) })
		part, err := s.renewPart(ctx, reqs[:n], wait, once)
		if err != nil {
			return driver.RenewResults{}, err
		}
		res.Now, res.Status = part.Now, append(res.Status, part.Status...)
		reqs = reqs[n:]
	}
	return res, nil
}

func (s *store) renewPart(ctx context.Context, reqs []driver.RenewRequest, wait bool, once renewOnce) (res driver.RenewResults, err error) {
	err = s.do(ctx, func(ctx context.Context, c session) error {
		r := renewing{s: s, c: c, reqs: reqs, try: once}
		r.res.Status = make([]driver.RenewStatus, len(reqs))
		err := r.run(ctx, wait)
		res = r.res
		return err
	})
	return res, err
}

// renewOnce tries to renew the requests at todo and returns those whose rows are
// locked.
type renewOnce func(r *renewing, ctx context.Context, todo []int) (busy []int, err error)

// renewing is one statement's share of a call of Renew.
type renewing struct {
	s    *store
	c    session
	reqs []driver.RenewRequest
	res  driver.RenewResults
	try  renewOnce
}

func (r *renewing) run(ctx context.Context, wait bool) error {
	todo := every(len(r.reqs))
	patience := newPatience(long)
	for {
		busy, err := r.try(r, ctx, todo)
		if err != nil || len(busy) == 0 || !wait {
			return err
		}
		if err := patience.wait(ctx); err != nil {
			return err
		}
		todo = busy
	}
}

// once is renewOnce for those who do not share.
func (r *renewing) once(ctx context.Context, todo []int) (busy []int, err error) {
	b := r.batch(todo)
	n, now, err := r.c.exec(ctx, r.s.queries.renew, b.String())
	if err != nil {
		return nil, err
	}
	if n == int64(len(todo)) {
		r.res.Now = now
		for _, i := range todo {
			r.res.Status[i] = driver.Renewed
		}
		return nil, nil
	}
	states, err := r.s.look(ctx, r.c, b, len(todo))
	if err != nil {
		return nil, err
	}
	for k, i := range todo {
		r.res.Status[i] = states[k].renewed(&r.reqs[i], now)
		if r.res.Status[i] == driver.Busy {
			busy = append(busy, i)
		}
		r.res.Now = states[k].now
	}
	return busy, nil
}

func (r *renewing) batch(todo []int) *batch {
	b := newBatch(len(todo))
	for _, i := range todo {
		q := &r.reqs[i]
		b.row(q.Name, q.Acq).int(q.Version).int(q.TTL.Microseconds()).int(int64(q.Holds)).end()
	}
	return b
}

// renewed tells what became of a renewal that was tried at the time now, which is
// 0 if it found no row at all. A row that reaches far enough was renewed, or did
// so before: then a connection that counts changed rows has not counted it.
func (st *state) renewed(q *driver.RenewRequest, now int64) driver.RenewStatus {
	switch {
	case !st.heldBy(q.Acq) || st.holder.Version != q.Version:
		if st.revoked == q.Version {
			return driver.Revoked
		}
		return driver.Gone
	case st.expired():
		return driver.Gone
	case now != 0 && st.holder.Until >= now+q.TTL.Microseconds():
		return driver.Renewed
	}
	return driver.Busy
}
