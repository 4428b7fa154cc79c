//go:build linux

package client

import (
	"context"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/faults/internal/history"
)

// recorded is a database whose stores write down what is asked of them, and what they answer.
type recorded struct {
	driver.UniqueDatabase
	c *client
}

func (d recorded) OpenUnique(ctx context.Context, locker driver.Client) (driver.Store, error) {
	s, err := d.UniqueDatabase.OpenUnique(ctx, locker)
	if err != nil {
		return nil, err
	}
	r := &recorder{Store: s, c: d.c, locker: locker.Instance.String(), classify: d.Classify}
	r.OnceStore, _ = s.(driver.OnceStore)
	r.PermitStore, _ = s.(driver.PermitStore)
	if l, ok := s.(driver.Listener); ok {
		return pushes{r, l}, nil
	}
	return r, nil
}

// recorder is such a store.
type recorder struct {
	driver.Store
	driver.OnceStore
	driver.PermitStore
	c        *client
	locker   string
	classify func(error) driver.Fault
}

type pushes struct {
	*recorder
	driver.Listener
}

// write writes a call down, makes it, and writes down what it answers.
func (r *recorder) write(what string, requests []history.Request, do func(answers []history.Request) error) {
	e := history.Event{Op: history.Requested, ID: r.c.id(), Reason: what, Locker: r.locker, Requests: requests}
	e.T, e.Wall = history.Now(), time.Now().UnixMicro()
	r.c.say(e)
	e.Requests = make([]history.Request, len(requests))
	if err := do(e.Requests); err != nil {
		e.Err, e.Requests = err.Error(), nil
		e.Refuse = r.classify(err) != driver.Unclear
	}
	e.T, e.Wall, e.Ret = history.Now(), time.Now().UnixMicro(), true
	r.c.say(e)
}

func (r *recorder) Acquire(ctx context.Context, reqs []driver.AcquireRequest) (res []driver.AcquireResult, err error) {
	requests := make([]history.Request, len(reqs))
	for i := range reqs {
		q := &reqs[i]
		requests[i] = history.Request{
			Name: q.Name, Acq: q.Acq.String(), Owner: q.Owner, Shared: q.Shared, Permits: q.Permits, TTL: q.TTL.Microseconds(),
			Handed: q.Handed.Microseconds(), Waits: q.Life > 0, All: q.All,
		}
	}
	r.write(history.Acquire, requests, func(answers []history.Request) error {
		res, err = r.Store.Acquire(ctx, reqs)
		for i := range res {
			a := &res[i]
			answers[i].Answer = history.Answer{Granted: a.Granted, Found: a.Found, Got: a.Version, Slot: a.Slot, Now: a.Now, Ahead: a.Ahead > 0, Refused: a.Refused}
			if a.Granted {
				answers[i].Expires = a.Now + a.Remaining.Microseconds()
			}
		}
		return err
	})
	return res, err
}

// statuses name what may become of a renewal.
var statuses = map[driver.RenewStatus]string{driver.Gone: "gone", driver.Renewed: "renewed", driver.Busy: "busy", driver.Revoked: "revoked", driver.Ended: "ended"}

func (r *recorder) Renew(ctx context.Context, reqs []driver.RenewRequest, wait bool) (res driver.RenewResults, err error) {
	requests := make([]history.Request, len(reqs))
	for i := range reqs {
		q := &reqs[i]
		requests[i] = history.Request{Name: q.Name, Acq: q.Acq.String(), Shared: q.Shared, Token: q.Version, TTL: q.TTL.Microseconds(), Holds: q.Holds}
	}
	r.write(history.Renew, requests, func(answers []history.Request) error {
		res, err = r.Store.Renew(ctx, reqs, wait)
		for i := range res.Status {
			answers[i].Status, answers[i].Now = statuses[res.Status[i]], res.Now
		}
		return err
	})
	return res, err
}

func (r *recorder) Release(ctx context.Context, reqs []driver.ReleaseRequest) (res []driver.ReleaseResult, err error) {
	requests := make([]history.Request, len(reqs))
	what := history.Release
	for i := range reqs {
		q := &reqs[i]
		requests[i] = history.Request{Name: q.Name, Acq: q.Acq.String(), Shared: q.Shared, Token: q.Version, MinHold: q.MinHold.Microseconds(), Guarded: q.Guarded}
		if q.Version == 0 {
			what = history.Withdraw
		}
	}
	r.write(what, requests, func(answers []history.Request) error {
		res, err = r.Store.Release(ctx, reqs)
		for i := range res {
			a := history.Answer{Freed: res[i].Freed, Handed: res[i].HandedOver}
			for _, n := range res[i].Next {
				a.Next = append(a.Next, history.Next{Acq: n.Acq.String(), Token: n.Version, Slot: n.Slot, Now: n.Now, Expires: n.Now + n.Remaining.Microseconds()})
			}
			answers[i].Answer = a
		}
		return err
	})
	return res, err
}

func (r *recorder) Sweep(ctx context.Context, req driver.SweepRequest) (res driver.SweepResult, err error) {
	if req.Every > 0 || req.Pause > 0 { // it only asks whether to, or says when
		return r.Store.Sweep(ctx, req)
	}
	r.write(history.Sweep, nil, func([]history.Request) error {
		res, err = r.Store.Sweep(ctx, req)
		return err
	})
	return res, err
}

func (r *recorder) Read(ctx context.Context, req driver.ReadRequest) (res driver.ReadResult, err error) {
	if len(req.Names) == 0 {
		return r.Store.Read(ctx, req)
	}
	requests := make([]history.Request, len(req.Names))
	for i, name := range req.Names {
		requests[i].Name = name
	}
	r.write(history.Reading, requests, func(answers []history.Request) error {
		res, err = r.Store.Read(ctx, req)
		for i := range res.Rows {
			row := &res.Rows[i]
			answers[i].Now = row.Now
			if h := &row.Holder; h.Acq != (driver.ID{}) && !h.Shared && !row.Detached {
				answers[i].Answer = history.Answer{Holder: h.Acq.String(), Got: h.Version, Expires: h.Until, Now: row.Now}
			}
		}
		return err
	})
	return res, err
}
