package sqllock

import (
	"context"
	"errors"
)

// stand waits in line.
func (l *Locker) stand(ctx context.Context, w *waiter, a *attempt) (*Lease, error) {
	x := l.tickets.enter(a, carriedBy(ctx))
	for {
		if mine, _ := l.queue.look(w); mine != nil {
			lease, err := mine.enter(ctx, a.opts.shared)
			if lease != nil || errors.Is(err, ErrUpgrade) {
				if !l.tickets.leave(x) {
					l.disown(&a.req, <-x.got)
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
			return a.served(ctx, x, <-x.got)
		}
		a.learn(x)
		if ctx.Err() != nil {
			return nil, a.waitError(endOf(ctx))
		}
		return nil, ErrClosed
	}
}

// served ends a wait in line with what came of it.
func (a *attempt) served(ctx context.Context, x *ticket, r reply) (*Lease, error) {
	a.learn(x)
	h, _, err := a.take(r)
	if h == nil {
		return nil, lockError(a.req.Name, err)
	}
	return a.begin(ctx, h)
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
