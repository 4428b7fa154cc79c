package sqllock

import (
	"context"
	"errors"

	"github.com/sqllock/sqllock/driver"
)

// stand waits in line.
func (l *Locker) stand(ctx context.Context, w *waiter, a *attempt) (*Lease, error) {
	for {
		lease, err := l.standOnce(ctx, w, a)
		if lease != nil || err != nil {
			return lease, err
		}
	}
}

// standOnce is stand. Without a lease and without an error the wait goes on.
func (l *Locker) standOnce(ctx context.Context, w *waiter, a *attempt) (*Lease, error) {
	x := l.tickets.enter(a, carriedBy(ctx))
	for {
		if mine, _ := l.queue.look(w); mine != nil {
			lease, err := mine.enter(ctx, a.opts.shared)
			if lease != nil || errors.Is(err, ErrUpgrade) {
				if !l.tickets.leave(x) {
					r := <-x.got
					a.learn(x)
					a.giveUp()
					l.disown(&a.req, r)
				}
				return lease, err
			}
		}
		select {
		case r := <-x.got:
			return a.served(ctx, x, r)
		case <-w.wake:
			continue
		case <-ctx.Done():
		case <-l.gate.ending:
		}
		if !l.tickets.leave(x) {
			lease, err := a.served(ctx, x, <-x.got)
			if lease != nil || err != nil {
				return lease, err
			}
			a.giveUp()
		}
		a.learn(x)
		if ctx.Err() != nil {
			return nil, a.waitError(endOf(ctx))
		}
		return nil, ErrClosed
	}
}

// served ends a wait in line with what came of it. If the name has expired before it
// could be used, there is neither a lease nor an error.
func (a *attempt) served(ctx context.Context, x *ticket, r reply) (*Lease, error) {
	a.learn(x)
	if r.Err == nil && a.stale(x, &r) {
		var err error
		r, err = a.l.await(ctx, func() reply { return a.l.confirm(a.req, r.Result.Version, x.timeout) })
		switch {
		case err != nil:
			a.l.giveBack(a.req, a.unclear)
			return nil, a.waitError(err)
		case r.Err != nil && a.l.mode.Classify(r.Err) != driver.Refused, r.Err == nil && !r.Result.Granted:
			return nil, nil
		}
	}
	h, _, err := a.take(r)
	if h == nil {
		return nil, lockError(a.req.Name, err)
	}
	return a.begin(ctx, h)
}

// stale reports that of a name that was handed over not much is left to be trusted: its
// waiter has learnt of it late, while the row still keeps it, for a lock delay or a
// minimum hold. It has to be renewed before it is used.
func (a *attempt) stale(x *ticket, r *reply) bool {
	left := r.Result.Remaining - (a.req.TTL - a.opts.trusted())
	return r.Result.Found && r.Before+left-a.l.clock.Now() < min(a.opts.trusted(), x.req.Life)/5
}

// learn takes over what the database has said to a ticket that is over.
func (a *attempt) learn(x *ticket) {
	a.l.tickets.mu.Lock() // an answer may come late
	defer a.l.tickets.mu.Unlock()
	a.asked += x.asked
	if x.told || x.err != nil {
		a.told, a.holder, a.left, a.err = a.told || x.told, x.holder, x.until, x.err
	}
	if x.unclear {
		a.unclear, a.since = true, x.since
	}
}
