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
type acquisition struct {
	locker      *Locker
	req         driver.GrantRequest
	owner       string // explicit owner, or ""
	opts        lockOptions
	began       time.Duration // for the events, if there are any
	sharedBatch bool          // the last request was in one statement with those of others
	isolated    bool          // one has failed there, perhaps for another's sake

	requests     int           // requests sent
	knownHeld    bool          // the database has said that somebody holds the name
	unknown      bool          // a request got no reply
	unknownSince time.Duration // read before the first such request
	holder       driver.Holder // who held the name when the database answered last
	holderLeft   time.Duration // until that holder expires
	lastErr      error         // what the last request failed with, if it did
}

func (l *Locker) newAcquisition(name, owner string, o lockOptions) *acquisition {
	acq := newID()
	a := &acquisition{locker: l, owner: owner, opts: o}
	if l.events.verbose {
		a.began = l.clock.Now()
	}
	a.req = driver.GrantRequest{Name: name, Acq: acq, Owner: owner, TTL: o.rowTTL(), Value: o.value, Shared: o.shared}
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
func (a *acquisition) request(ctx context.Context) (*term, *HeldError, error) {
	a.requests++
	l := a.locker
	r, ok := l.grants.Do(ctx, l.inflight.closing, a.req, l.grantKind(a), l.cfg.timeout(a.opts.ttl))
	switch {
	case ok && r.Result.Found && a.unknown:
		return a.confirm(ctx, r)
	case ok:
		return a.readReply(r)
	case ctx.Err() != nil:
		return nil, nil, endOf(ctx)
	}
	return nil, nil, ErrClosed
}

// grantKind tells with which requests that of an attempt can go together.
func (l *Locker) grantKind(a *acquisition) batch.Kind {
	k := batch.Kind{Group: ttlGroup(a.opts.ttl), Isolated: a.isolated, Large: len(a.req.Value) > 0}
	if a.req.Shared {
		k.Flags = 1
	}
	return k
}

// sendGrants runs one statement.
func (l *Locker) sendGrants(ctx context.Context, reqs []driver.GrantRequest) ([]driver.GrantResult, error) {
	defer l.keeper.noteUse()
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
func (l *Locker) refuseFollower(sent *driver.GrantRequest, r reply, req *driver.GrantRequest) (reply, bool) {
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
func (a *acquisition) confirm(ctx context.Context, r reply) (*term, *HeldError, error) {
	confirmed, err := a.locker.await(ctx, func() reply { return a.locker.confirmGrant(a.req, r.Result.Version, a.locker.cfg.timeout(a.opts.ttl)) })
	if err != nil {
		return nil, nil, err
	}
	return a.readReply(confirmed)
}

// await waits for what request returns, or until ctx or the Locker ends: then request
// goes on by itself.
func (l *Locker) await(ctx context.Context, request func() reply) (reply, error) {
	got := make(chan reply, 1)
	l.inflight.add()
	go func() {
		defer l.inflight.done()
		got <- request()
	}()
	select {
	case r := <-got:
		return r, nil
	case <-ctx.Done():
		return reply{}, endOf(ctx)
	case <-l.inflight.closing:
		return reply{}, ErrClosed
	}
}

// confirm renews what an earlier request of an acquisition got whose reply was
// lost. That one may not have been flushed, or not to the standby that a commit
// waits for: a server may give up that wait and show the row all the same. What
// has been written after it and was confirmed makes it certain.
func (l *Locker) confirmGrant(req driver.GrantRequest, version int64, timeout time.Duration) (r reply) {
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
func (l *Locker) giveBackLate(req *driver.GrantRequest, r reply) {
	switch {
	case r.Result.Granted: // if an earlier request got no reply the attempt gives it back as well
		l.giveBack(*req, false)
	case r.Err != nil && l.mode.Classify(r.Err) == driver.Unclear:
		l.giveBack(*req, true)
	}
}

// giveBack sees to it that an acquisition which nobody has used holds nothing. If it is
// unclear, a request of it may still arrive.
func (l *Locker) giveBack(req driver.GrantRequest, unknown bool) {
	r := driver.AbandonRequest{Name: req.Name, Acq: req.Acq, Shared: req.Shared}
	if unknown {
		l.cleanup.add(r, req.TTL)
	} else {
		l.cleanup.addOnce(r, req.TTL)
	}
}

// take reads a reply.
func (a *acquisition) readReply(r reply) (*term, *HeldError, error) {
	a.sharedBatch = r.SharedBatch
	switch {
	case r.Err != nil:
		if !a.unknown && a.locker.mode.Classify(r.Err) == driver.Unclear {
			a.unknown, a.unknownSince = true, r.Before
		}
		a.isolated = a.isolated || r.SharedBatch
		a.lastErr = r.Err
		return nil, nil, r.Err
	case !r.Result.Granted:
		a.lastErr, a.knownHeld = nil, true
		a.holder = r.Result.Holder
		a.holderLeft = time.Duration(r.Result.Holder.Until-r.Result.Now) * time.Microsecond
		return nil, newHeldError(a.req.Name, a.holder), nil
	}
	return a.newTerm(r), nil, nil
}

// hold makes the hold of a request that was granted. If it was an earlier request
// of the attempt that was, the row may have less than the TTL left.
func (a *acquisition) newTerm(r reply) *term {
	t := &term{
		locker:     a.locker,
		name:       a.req.Name,
		acq:        a.req.Acq,
		owner:      a.req.Owner,
		ownerGiven: a.owner != "",
		shared:     a.opts.shared,
		unknown:    a.unknown,
		token:      r.Result.Version,
		ttl:        a.opts.trustedTTL(),
		timeout:    a.locker.cfg.timeout(a.opts.ttl),
		minHold:    a.opts.minHold,
		lockDelay:  a.opts.lockDelay,
		latestEnd:  never,
		granted:    r.After,
	}
	if a.opts.hasMaxHold {
		t.latestEnd = r.Before + a.opts.maxHold
		if r.Result.Found && a.unknown {
			t.latestEnd = a.unknownSince + a.opts.maxHold
		}
	}
	beyond := max(a.req.TTL-t.ttl, 0) // what the row is kept for longer than the holder trusts it
	left := min(t.ttl, r.Result.Remaining-beyond)
	t.atLimit = t.latestEnd-r.Before <= left
	t.deadline.Store(int64(min(t.latestEnd, r.Before+clock.Trust(left))))
	return t
}

// begin starts the term of h. A hold whose deadline has passed before anybody
// could use it is given back.
func (a *acquisition) beginTerm(ctx context.Context, t *term) (*Lease, error) {
	l := a.locker
	if time.Duration(t.deadline.Load()) <= l.clock.Now() {
		l.giveBack(a.req, a.unknown)
		return nil, &LostError{Name: t.name, Token: t.token, Reason: LostLate}
	}
	lease := t.firstLease(ctx) // before anybody else can enter, and leave, the hold
	for _, old := range l.queue.granted(t) {
		// The database gave the name away: whatever this process still believes
		// about an earlier term is wrong, unless it has ended by itself.
		old.expire()
		old.lose(LostTaken, nil)
	}
	if !l.keeper.keep(t) {
		l.queue.ended(t)
		l.giveBack(a.req, a.unknown)
		return nil, ErrClosed
	}
	if !l.mode.lives(t.acq) { // since before it was kept
		t.lose(LostSession, nil)
		return nil, t.lostError()
	}
	if l.events.verbose {
		l.events.acquired(AcquiredEvent{LeaseInfo: t.info(), Waited: t.granted - a.began, Attempts: a.requests})
	}
	return lease, nil
}

// giveUp sees to it that the attempt holds nothing in the end. A request that is
// still under way sees to itself.
func (a *acquisition) abandon() {
	if a.unknown {
		a.locker.giveBack(a.req, true)
	}
}

// untilExpiry is how long the holder's lease will last unless it is renewed.
func (a *acquisition) untilExpiry() time.Duration {
	if a.holderLeft <= 0 {
		return never
	}
	return a.holderLeft + time.Millisecond
}

// waitError tells why a waiter gave up, and what it waited for.
func (a *acquisition) waitError(cause error) error {
	switch {
	case errors.Is(cause, ErrClosed):
		return ErrClosed
	case !errors.Is(cause, errWaitOver):
		return fmt.Errorf("sqllock: lock %q: waited for %s: %w", a.req.Name, a.waitedFor(), cause)
	case a.lastErr != nil:
		return fmt.Errorf("sqllock: lock %q: gave up after %d attempts: %w", a.req.Name, a.requests, a.lastErr)
	case a.requests > 0 && !a.knownHeld:
		return fmt.Errorf("sqllock: lock %q: the database has not answered: %w", a.req.Name, context.DeadlineExceeded)
	}
	return a.heldError()
}

// held says who held the name when that was last known.
func (a *acquisition) heldError() *HeldError {
	for _, t := range a.locker.queue.terms(a.req.Name) {
		return &HeldError{Name: t.name, Owner: t.owner, Label: a.locker.cfg.label, Shared: t.shared}
	}
	return newHeldError(a.req.Name, a.holder)
}

func (a *acquisition) waitedFor() string {
	if a.lastErr != nil {
		return fmt.Sprintf("the database (%v)", a.lastErr)
	}
	if held := a.heldError(); held.Label != "" {
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

// try asks the database once, and again, for as long as one statement may take,
// if it says that trying again helps.
func (l *Locker) try(ctx context.Context, name, owner string, o lockOptions) (*Lease, error) {
	a := l.newAcquisition(name, owner, o)
	pause := newBackoff(&l.cfg)
	until := l.clock.Now() + l.cfg.timeout(o.ttl)
	for {
		t, held, err := a.request(ctx)
		switch {
		case t != nil:
			return a.beginTerm(ctx, t)
		case held != nil:
			a.abandon()
			return nil, held
		case a.sharedBatch && l.mode.Classify(err) == driver.Unclear: // once: then it is alone
		case l.mode.Classify(err) != driver.Again || l.clock.Now() >= until:
			a.abandon()
			return nil, lockError(name, err)
		}
		if err := l.sleep(ctx, nil, pause.next()); err != nil {
			a.abandon()
			return nil, lockError(name, err)
		}
	}
}

// wait asks the database, if nobody of this process is before it, and then queues up
// and does so whenever that may help.
func (l *Locker) wait(ctx context.Context, a *acquisition, o lockOptions) (*Lease, error) {
	pause := backoff{l.cfg.retryMin, l.cfg.retryMax}
	var nap time.Duration
	if l.claims.available() && l.queue.unused(a.req.Name) { // what order there is the database sees to
		lease, next, err := l.requestOnce(ctx, a, o, &pause)
		if lease != nil || err != nil {
			return lease, err
		}
		nap = next
	}
	return l.queueUp(ctx, a, o, pause, nap)
}

// askOnce makes one attempt of a waiter. With neither a lease nor an error, it
// tells after which pause to ask again.
func (l *Locker) requestOnce(ctx context.Context, a *acquisition, o lockOptions, pause *backoff) (*Lease, time.Duration, error) {
	if l.cfg.parks && a.knownHeld { // it is known by then who is in the way, if the wait ends in the middle
		a.req.Wait = min(maxDBWait, l.cfg.timeout(o.ttl)/2)
	}
	var asked time.Duration
	if a.req.Wait > 0 {
		asked = l.clock.Now()
	}
	t, held, err := a.request(ctx)
	if t != nil {
		lease, err := a.beginTerm(ctx, t)
		return lease, 0, err
	}
	nap := pause.next()
	switch {
	case held != nil && a.req.Wait > 0 && l.clock.Now()-asked >= a.req.Wait/2: // it has waited in the database
		nap = min(l.cfg.retryMin, a.untilExpiry())
	case held != nil:
		nap = min(nap, a.untilExpiry())
	case ctx.Err() != nil:
		a.abandon()
		return nil, 0, a.waitError(endOf(ctx))
	case l.mode.Classify(err) == driver.Refused:
		a.abandon()
		return nil, 0, lockError(a.req.Name, err)
	}
	if o.hasTries && a.requests >= o.tries {
		a.abandon()
		return nil, 0, a.waitError(errWaitOver)
	}
	return nil, nap, nil
}

// slice is how long a statement may wait in the database. While it does, it is in
// the way of others, such as CREATE INDEX CONCURRENTLY.
const maxDBWait = time.Second

// errWaitOver is why the context of a Lock with the option Wait ended.
var errWaitOver = errors.New("wait over")

func lockError(name string, err error) error {
	if errors.Is(err, ErrClosed) {
		return ErrClosed
	}
	return fmt.Errorf("sqllock: lock %q: %w", name, err)
}
