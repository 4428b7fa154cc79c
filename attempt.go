package sqllock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/batch"
	"github.com/sqllock/sqllock/internal/clock"
)

// attempt is one acquisition on its way: requests to the database that carry one
// acq, so that a request whose reply was lost can be asked about again.
type attempt struct {
	l     *Locker
	req   driver.GrantRequest
	owner string // explicit owner, or ""
	opts  lockOptions
	began time.Duration // for the events, if there are any
	crowd bool          // the last request was in one statement with those of others
	alone bool          // one has failed there, perhaps for another's sake

	asked   int           // requests sent
	told    bool          // the database has said that somebody holds the name
	unclear bool          // a request got no reply
	since   time.Duration // read before the first such request
	holder  driver.Holder // who held the name when the database answered last
	left    time.Duration // until that holder expires
	err     error         // what the last request failed with, if it did
}

func (l *Locker) newAttempt(name, owner string, o lockOptions) *attempt {
	acq := newID()
	a := &attempt{l: l, owner: owner, opts: o}
	if l.events.routine {
		a.began = l.clock.Now()
	}
	a.req = driver.GrantRequest{Name: name, Acq: acq, Owner: owner, TTL: o.kept(), Value: o.value, Shared: o.shared}
	if l.cfg.sessions {
		a.req.TTL, a.req.MinHold, a.req.Delay = o.ttl, o.minHold, o.lockDelay
	}
	if owner == "" {
		a.req.Owner = acq.String()
	}
	return a
}

// reply is what came of one request for a name.
type reply = batch.Reply[driver.GrantResult]

// ask sends one request. It returns a hold, or who holds the name, or an error.
//
// The request itself is not cancelled when ctx ends: once it is sent it is left to
// end by itself, and what it gets is given back.
func (a *attempt) ask(ctx context.Context) (*hold, *HeldError, error) {
	a.asked++
	l := a.l
	r, ok := l.grants.Do(ctx, l.gate.ending, a.req, l.grantKind(a), l.cfg.timeout(a.opts.ttl))
	switch {
	case ok && r.Result.Found && a.unclear:
		return a.confirm(ctx, r)
	case ok:
		return a.take(r)
	case ctx.Err() != nil:
		return nil, nil, endOf(ctx)
	}
	return nil, nil, ErrClosed
}

// grantKind tells with which requests that of an attempt can go together.
func (l *Locker) grantKind(a *attempt) batch.Kind {
	k := batch.Kind{Group: group(a.opts.ttl), Isolated: a.alone, Large: len(a.req.Value) > 0}
	if a.req.Shared {
		k.Flags = 1
	}
	return k
}

// sendGrants runs one statement.
func (l *Locker) sendGrants(ctx context.Context, reqs []driver.GrantRequest) ([]driver.GrantResult, error) {
	defer l.keeper.stir()
	res, err := l.mode.Grant(ctx, reqs)
	if err != nil {
		return nil, err
	}
	for i := range res {
		l.noteCrash(reqs[i].Name, res[i].Crashed)
	}
	return res, nil
}

// refuse answers a request for a name, which wants it alone, by what came of another one
// that was sent: whoever has the name then keeps it from both. It reports false if that
// is the request itself, which must have been sent before.
func (l *Locker) refuse(sent *driver.GrantRequest, r reply, req *driver.GrantRequest) (reply, bool) {
	r.SharedBatch = true
	if r.Err != nil {
		return r, true
	}
	res := r.Result
	r.Result = driver.GrantResult{Now: res.Now, Holder: res.Holder}
	if res.Granted {
		r.Result.Holder = driver.Holder{Acq: sent.Acq, Owner: sent.Owner, Label: l.cfg.label, Version: res.Version,
			Since: res.Now, Until: res.Now + res.Remaining.Microseconds()}
	}
	return r, r.Result.Holder.Acq != req.Acq
}

// confirm is take for what an earlier request of the attempt got whose reply was
// lost. If ctx ends meanwhile it is given back.
func (a *attempt) confirm(ctx context.Context, r reply) (*hold, *HeldError, error) {
	confirmed, err := a.l.await(ctx, func() reply { return a.l.confirm(a.req, r.Result.Version, a.l.cfg.timeout(a.opts.ttl)) })
	if err != nil {
		return nil, nil, err
	}
	return a.take(confirmed)
}

// await waits for what request returns, or until ctx or the Locker ends: then request
// goes on by itself.
func (l *Locker) await(ctx context.Context, request func() reply) (reply, error) {
	got := make(chan reply, 1)
	l.gate.resume()
	go func() {
		defer l.gate.leave()
		got <- request()
	}()
	select {
	case r := <-got:
		return r, nil
	case <-ctx.Done():
		return reply{}, endOf(ctx)
	case <-l.gate.ending:
		return reply{}, ErrClosed
	}
}

// confirm renews what an earlier request of an acquisition got whose reply was
// lost. That one may not have been flushed, or not to the standby that a commit
// waits for: a server may give up that wait and show the row all the same. What
// has been written after it and was confirmed makes it certain.
func (l *Locker) confirm(req driver.GrantRequest, version int64, timeout time.Duration) (r reply) {
	ctx, cancel := context.WithTimeout(l.base, timeout)
	defer cancel()
	r.Before = l.clock.Now()
	defer func() { r.After = l.clock.Now() }()
	res, err := l.mode.Renew(ctx, []driver.RenewRequest{{Name: req.Name, Acq: req.Acq, Version: version, TTL: req.TTL, Holds: 1, Shared: req.Shared}}, true, 0)
	switch {
	case err != nil:
		r.Err = err
	case res.Status[0] == driver.Renewed:
		r.Result = driver.GrantResult{Granted: true, Found: true, Version: version, Remaining: req.TTL, Now: res.Now}
	default: // it has expired meanwhile, or was ended: ask again
		r.Result = driver.GrantResult{Now: res.Now}
	}
	return r
}

// disown gives back what a request got that nobody waits for any more.
func (l *Locker) disown(req *driver.GrantRequest, r reply) {
	switch {
	case r.Result.Granted: // if an earlier request got no reply the attempt gives it back as well
		l.giveBack(*req, false)
	case r.Err != nil && l.mode.Classify(r.Err) == driver.Unclear:
		l.giveBack(*req, true)
	}
}

// giveBack sees to it that an acquisition which nobody has used holds nothing. If it is
// unclear, a request of it may still arrive.
func (l *Locker) giveBack(req driver.GrantRequest, unclear bool) {
	r := driver.AbandonRequest{Name: req.Name, Acq: req.Acq, Shared: req.Shared}
	if unclear {
		l.undo.add(r, req.TTL)
	} else {
		l.undo.once(r, req.TTL)
	}
}

// take reads a reply.
func (a *attempt) take(r reply) (*hold, *HeldError, error) {
	a.crowd = r.SharedBatch
	switch {
	case r.Err != nil:
		if !a.unclear && a.l.mode.Classify(r.Err) == driver.Unclear {
			a.unclear, a.since = true, r.Before
		}
		a.alone = a.alone || r.SharedBatch
		a.err = r.Err
		return nil, nil, r.Err
	case !r.Result.Granted:
		a.err, a.told = nil, true
		a.holder = r.Result.Holder
		a.left = time.Duration(r.Result.Holder.Until-r.Result.Now) * time.Microsecond
		return nil, newHeldError(a.req.Name, a.holder), nil
	}
	return a.hold(r), nil, nil
}

// hold makes the hold of a request that was granted. If it was an earlier request
// of the attempt that was, the row may have less than the TTL left.
func (a *attempt) hold(r reply) *hold {
	h := &hold{
		locker:   a.l,
		name:     a.req.Name,
		acq:      a.req.Acq,
		owner:    a.req.Owner,
		explicit: a.owner != "",
		shared:   a.opts.shared,
		unclear:  a.unclear,
		token:    r.Result.Version,
		ttl:      a.opts.trusted(),
		timeout:  a.l.cfg.timeout(a.opts.ttl),
		minHold:  a.opts.minHold,
		delay:    a.opts.lockDelay,
		limit:    never,
		granted:  r.After,
	}
	if a.opts.hasMaxHold {
		h.limit = r.Before + a.opts.maxHold
		if r.Result.Found && a.unclear {
			h.limit = a.since + a.opts.maxHold
		}
	}
	beyond := max(a.req.TTL-h.ttl, 0) // what the row is kept for longer than the holder trusts it
	left := min(h.ttl, r.Result.Remaining-beyond)
	h.last = h.limit-r.Before <= left
	h.deadline.Store(int64(min(h.limit, r.Before+clock.Trust(left))))
	return h
}

// begin starts the term of h. A hold whose deadline has passed before anybody
// could use it is given back.
func (a *attempt) begin(ctx context.Context, h *hold) (*Lease, error) {
	l := a.l
	if time.Duration(h.deadline.Load()) <= l.clock.Now() {
		l.giveBack(a.req, a.unclear)
		return nil, &LostError{Name: h.name, Token: h.token, Reason: LostLate}
	}
	lease := h.first(ctx) // before anybody else can enter, and leave, the hold
	for _, old := range l.queue.took(h) {
		// The database gave the name away: whatever this process still believes
		// about an earlier term is wrong, unless it has ended by itself.
		old.expire()
		old.lose(LostTaken, nil)
	}
	if !l.keeper.keep(h) {
		l.queue.freed(h)
		l.giveBack(a.req, a.unclear)
		return nil, ErrClosed
	}
	if !l.mode.lives(h.acq) { // since before it was kept
		h.lose(LostSession, nil)
		return nil, h.lostError()
	}
	if l.events.routine {
		l.events.acquired(AcquiredEvent{LeaseInfo: h.info(), Waited: h.granted - a.began, Attempts: a.asked})
	}
	return lease, nil
}

// giveUp sees to it that the attempt holds nothing in the end. A request that is
// still under way sees to itself.
func (a *attempt) giveUp() {
	if a.unclear {
		a.l.giveBack(a.req, true)
	}
}

// untilExpiry is how long the holder's lease will last unless it is renewed.
func (a *attempt) untilExpiry() time.Duration {
	if a.left <= 0 {
		return never
	}
	return a.left + time.Millisecond
}

// waitError tells why a waiter gave up, and what it waited for.
func (a *attempt) waitError(cause error) error {
	switch {
	case errors.Is(cause, ErrClosed):
		return ErrClosed
	case !errors.Is(cause, errWaitOver):
		return fmt.Errorf("sqllock: lock %q: waited for %s: %w", a.req.Name, a.waitedFor(), cause)
	case a.err != nil:
		return fmt.Errorf("sqllock: lock %q: gave up after %d attempts: %w", a.req.Name, a.asked, a.err)
	case a.asked > 0 && !a.told:
		return fmt.Errorf("sqllock: lock %q: the database has not answered: %w", a.req.Name, context.DeadlineExceeded)
	}
	return a.held()
}

// held says who held the name when that was last known.
func (a *attempt) held() *HeldError {
	for _, h := range a.l.queue.holds(a.req.Name) {
		return &HeldError{Name: h.name, Owner: h.owner, Label: a.l.cfg.label, Shared: h.shared}
	}
	return newHeldError(a.req.Name, a.holder)
}

func (a *attempt) waitedFor() string {
	if a.err != nil {
		return fmt.Sprintf("the database (%v)", a.err)
	}
	if held := a.held(); held.Label != "" {
		return fmt.Sprintf("%q, who holds it", held.Label)
	}
	return "its turn"
}

// endOf says why a context ended: its Err, and its cause if that says more.
func endOf(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == err || cause == errWaitOver {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
