package sqllock

import (
	"bytes"
	"context"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// resume takes the name over from an earlier incarnation: from who holds it under the
// same owner. With neither a lease nor an error there is none, or it was asked to let go,
// and the attempt has to wait like others. It reports whether that is decided: it is not
// as long as the database has not answered.
//
// Only the term that was seen first is taken over: of two who are restarted at the same
// time the second must not end the term of the first.
func (a *attempt) resume(ctx context.Context) (lease *Lease, decided bool, err error) {
	l := a.l
	var seen int64
	for pause := newPauses(&l.cfg); ; {
		row, err := l.look(ctx, a.req.Name)
		switch {
		case err == nil && (!a.incarnate(&row) || seen != 0 && seen != row.Holder.Version):
			return nil, true, nil
		case err == nil:
			seen = row.Holder.Version
			var h *hold
			if h, err = a.takeOver(ctx, seen); h != nil {
				lease, err := a.begin(ctx, h)
				return lease, true, err
			}
			if err == nil { // it has ended meanwhile, or will
				return nil, true, nil
			}
		}
		if end := a.unresumed(ctx, err, pause); end != nil {
			return nil, false, end
		}
	}
}

// incarnate reports that the row names a holder of the attempt's owner that is another
// acquisition: of its own an ordinary request finds out.
func (a *attempt) incarnate(row *driver.Row) bool {
	return stateOf(row) == StateHeld && row.Readers == 0 && row.Holder.Owner == a.req.Owner && row.Holder.Acq != a.req.Acq
}

// unresumed waits for a while after an error, or says that this is of no use.
func (a *attempt) unresumed(ctx context.Context, err error, pause *pauses) error {
	l := a.l
	if ctx.Err() == nil && l.mode.Classify(err) != driver.Refused {
		a.err = err
		err = l.sleep(ctx, nil, pause.next())
		if err == nil {
			return nil
		}
	}
	a.giveUp()
	if ctx.Err() != nil {
		return a.waitError(endOf(ctx))
	}
	return lockError(a.req.Name, err)
}

// takeOver sends one request to end a term and have the next. With neither a hold nor an
// error the term was not there any more. Like all requests it is not cancelled when ctx
// ends: what it gets is given back.
func (a *attempt) takeOver(ctx context.Context, version int64) (*hold, error) {
	l := a.l
	a.asked++
	before := l.clock.Now()
	r, err := l.await(ctx, func() reply {
		return l.resume(driver.ResumeRequest{
			Name: a.req.Name, Acq: a.req.Acq, Owner: a.req.Owner, Version: version, TTL: a.req.TTL, Value: bytes.Clone(a.req.Value),
		}, l.cfg.timeout(a.opts.ttl))
	})
	switch {
	case err != nil: // it goes on by itself
		if !a.unclear {
			a.unclear, a.since = true, before
		}
		return nil, err
	case r.Err == nil && !r.Result.Granted:
		l.letGoHere(a.req.Name, version)
		return nil, nil
	}
	h, _, err := a.take(r)
	return h, err
}

// resume runs one statement, and what it takes to get to it.
func (l *Locker) resume(req driver.ResumeRequest, timeout time.Duration) (r reply) {
	ctx, cancel := context.WithTimeout(l.base, timeout)
	defer cancel()
	defer l.keeper.stir()
	r.Before = l.clock.Now()
	r.Result, r.Err = l.mode.Resume(ctx, req)
	r.After = l.clock.Now()
	return r
}

// letGoHere ends a term of this Locker's own that was asked to let go.
func (l *Locker) letGoHere(name string, version int64) {
	if !l.cfg.sessions {
		return
	}
	for _, h := range l.queue.holds(name) {
		if h.token == version {
			h.lose(LostRevoked, nil)
		}
	}
}

func (h *hold) proclamation(value []byte) driver.ProclaimRequest {
	return driver.ProclaimRequest{Name: h.name, Acq: h.acq, Version: h.token, Value: value}
}
