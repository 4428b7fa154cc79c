package sqllock

import (
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/batch"
)

// run sees to the tickets until there are none.
func (t *tickets) run() {
	nap := time.NewTimer(0)
	defer nap.Stop()
	for {
		select {
		case <-nap.C:
		case <-t.wake:
		case <-t.l.base.Done():
			return
		}
		next, more := t.attend()
		if !more {
			return
		}
		nap.Reset(next)
	}
}

// attend asks for what is due, and returns when to do so again.
func (t *tickets) attend() (next time.Duration, more bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.l.clock.Now()
	if len(t.all) == 0 {
		t.running = t.ears.linger(now)
		return time.Second, t.running
	}
	if t.next <= now {
		t.askDue(now)
	}
	t.ears.listenTo(t, now)
	at := min(t.next, t.poll.look(t, now), t.cycles.look(t, now))
	return max(min(at-now, time.Second), 0), true
}

// askDue asks for what is due, or gives the answer; the caller holds mu.
func (t *tickets) askDue(now time.Duration) {
	due := false
	t.next = never
	for _, x := range t.all {
		due = due || !x.asking && x.due <= now
	}
	for _, x := range t.all {
		switch {
		case x.answer != nil && x.due <= now:
			t.deliver(x)
		case x.answer != nil:
			t.next = min(t.next, x.due)
		case x.asking:
		case due && x.due <= now+x.req.Life/6: // those that would be due soon come along
			t.ask(x)
		default:
			t.next = min(t.next, x.due)
		}
	}
}

// plan says when to ask again; the caller holds mu.
func (t *tickets) plan(x *ticket, due time.Duration) {
	x.due = due
	t.next = min(t.next, due)
}

// ask sends the request of a ticket; the caller holds mu.
func (t *tickets) ask(x *ticket) {
	x.asking = true
	x.asked++
	t.calls.Add(&batch.Pending[driver.TicketRequest, driver.TicketResult]{
		Request: x.req, Kind: x.kind, Timeout: x.timeout,
		Done: func(a batch.Reply[driver.TicketResult]) { t.answered(x, a) },
	})
}

// answered acts on what the database said of one ticket.
func (t *tickets) answered(x *ticket, a batch.Reply[driver.TicketResult]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	x.asking = false
	fault := driver.Fault(0)
	if a.Err != nil {
		fault = t.l.mode.Classify(a.Err)
		if fault == driver.Unclear && !x.unclear {
			x.unclear, x.since = true, a.Before
		}
	}
	r := reply{Before: a.Before, After: a.After, Result: a.Result.GrantResult, Err: a.Err}
	switch {
	case x.left:
		t.cancel(x)
	case x.over: // what this one has done is undone after Unlock
	case x.answer != nil:
		t.finish(x, *x.answer)
	case a.Err == nil && a.Result.Granted && a.Result.Found && x.unclear:
		x.asking = true
		t.l.gate.resume()
		t.wg.Go(func() { t.confirm(x, a.Result.Version) })
	case a.Err == nil && a.Result.Granted:
		t.finish(x, r)
	case fault == driver.Refused:
		t.fail(x, a.Err)
	case a.Err != nil:
		x.err = a.Err
		x.kind.Isolated = x.kind.Isolated || a.SharedBatch
		t.plan(x, t.l.clock.Now()+x.pauses.next())
		t.kick()
	default:
		t.told(x, &a)
	}
}

// confirm sees to a grant that came of an earlier request without a reply.
func (t *tickets) confirm(x *ticket, version int64) {
	defer t.l.gate.leave()
	r := t.l.confirm(x.req.GrantRequest, version, x.timeout)
	t.mu.Lock()
	defer t.mu.Unlock()
	x.asking = false
	switch {
	case x.left:
		t.cancel(x)
	case x.over:
	case r.Err == nil && r.Result.Granted:
		t.finish(x, r)
	case x.answer != nil:
		t.finish(x, *x.answer)
	default:
		x.err = r.Err
		t.plan(x, t.l.clock.Now()+x.pauses.next())
		t.kick()
	}
}

// told notes who is in the way, and plans when to ask again: to keep the ticket
// alive, or when the name may be free; the caller holds mu.
func (t *tickets) told(x *ticket, a *batch.Reply[driver.TicketResult]) {
	now := t.l.clock.Now()
	x.told, x.err = true, nil
	x.holder = a.Result.Holder
	x.until = time.Duration(x.holder.Until-a.Result.Now) * time.Microsecond
	due := now + x.req.Life/3
	if a.Result.Ahead == 0 {
		switch {
		case x.until > 0: // it is over at the earliest when the reply came that much later
			due = min(due, now+x.until+time.Millisecond)
		default: // nobody seems to be in the way
			due = min(due, now+x.pauses.next())
		}
	}
	t.plan(x, due)
	t.kick()
}
