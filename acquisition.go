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

// acquisition is the way of one call to a grant. All its requests carry the same acq, so
// that a later request finds out what a request without a reply did.
type acquisition struct {
	locker      *Locker
	req         driver.AcquireRequest
	owner       string // explicit owner, or ""
	opts        lockOptions
	began       stopwatch // for events, not started if nobody gets them
	waits       bool      // it was reported that the acquisition waits
	queuedAt    stopwatch // since then
	skipped     bool      // it was reported that the name is held, and that the call does not wait
	sharedBatch bool      // the last request shared its statement with other requests
	isolated    bool      // a request failed in a shared batch, perhaps because of another one: send the next by itself

	requests     int           // requests sent
	handed       grantTime     // of the name, before this call learned of it
	knownHeld    bool          // the database has said that the name is held
	contended    bool          // most probably it is
	unknown      bool          // a request got no reply: its outcome is unknown
	unknownSince time.Duration // before the first such request was sent
	holder       driver.Holder // of the name, when the database last replied
	holderLeft   time.Duration // until that holder expired, at that time
	lastErr      error         // of the last request, or nil
	term         *term         // that was granted together with others and has not begun, see allAcquisition
}

// grantTime is when a name was handed over to a waiter: it follows from what is left of the term.
type grantTime struct {
	known        bool
	earliest, by time.Duration
}

// handedOver returns when a name was handed over that a reply says to be granted to a claim. Another
// Locker gives less to the term than this one, or more.
func handedOver(req *driver.AcquireRequest, r *reply) grantTime {
	if r.Err != nil || !r.Result.Found {
		return grantTime{}
	}
	left := r.Result.Remaining
	more, less := max(req.Handed, req.TTL), min(req.Handed, req.TTL)
	t := grantTime{true, r.Before - max(more-left, 0), r.Before - max(less-left, 0)}
	if left > less { // so it was given more
		t.by = t.earliest
	}
	return t
}

// grantedBy returns from when on MaxHold counts. If a request had no reply, that may have been it.
func (a *acquisition) grantedBy(r *reply) time.Duration {
	switch {
	case r.Result.Found && a.unknown && a.handed.known:
		return max(a.unknownSince, a.handed.earliest)
	case r.Result.Found && a.unknown:
		return a.unknownSince
	case a.handed.known:
		return a.handed.by
	}
	return r.Before
}

func (l *Locker) newAcquisition(name, owner string, o lockOptions) *acquisition {
	acq := newID()
	a := &acquisition{locker: l, owner: owner, opts: o}
	if l.events.verbose {
		a.began = startStopwatch()
	}
	a.req = driver.AcquireRequest{Name: name, Acq: acq, Owner: owner, TTL: o.rowTTL(), Value: o.value, Shared: o.shared, Permits: o.permits}
	if l.mode.sessions != nil {
		a.req.TTL, a.req.MinHold, a.req.Delay = o.ttl, o.minHold, o.lockDelay
	}
	if owner == "" {
		a.req.Owner = acq.String()
	}
	return a
}

// try sends a request. It sends the request again for up to the time of one statement,
// while the database says that this helps.
func (a *acquisition) try(ctx context.Context) (_ *Lease, err error) {
	defer func() { a.noteFailed(err) }()
	l := a.locker
	backoff := newBackoff(&l.cfg)
	until := l.clock.Now() + l.cfg.timeout(a.opts.ttl)
	for {
		sent := l.sentAt()
		t, held, err := a.request(ctx)
		switch {
		case t != nil:
			return a.beginTerm(ctx, t)
		case held != nil && l.mode.quorum && a.holder == (driver.Holder{}) && l.clock.Now() < until: // others compete
		case held != nil:
			a.abandon()
			return nil, a.skip(held)
		case a.sharedBatch && l.mode.Classify(err) == driver.Unclear: // once: the next request is isolated
		case errors.Is(err, ErrPermits) || l.mode.Classify(err) != driver.Again || l.clock.Now() >= until:
			a.abandon()
			return nil, lockError(a.req.Name, err)
		}
		pause := min(backoff.next()+l.apart(sent, held != nil), max(until-l.clock.Now(), 0))
		if err := l.sleep(ctx, nil, pause); err != nil {
			a.abandon()
			return nil, lockError(a.req.Name, err)
		}
	}
}

// sentAt returns when a request is sent, for apart.
func (l *Locker) sentAt() time.Duration {
	if !l.mode.quorum {
		return 0
	}
	return l.clock.Now()
}

// apart returns by how much the pause after a request is longer in a quorum: the pause is at least
// as long as the request took, and callers who lost together request apart from each other next
// time.
func (l *Locker) apart(sent time.Duration, lost bool) time.Duration {
	if !l.mode.quorum {
		return 0
	}
	took := l.clock.Now() - sent
	if lost {
		return took + l.cfg.spread(4*took+1)
	}
	return took
}

// wait sends a request at once if no caller of this process holds the name or waits for
// it, and then waits in the queue of this process.
func (a *acquisition) wait(ctx context.Context) (_ *Lease, err error) {
	defer func() { a.noteFailed(err) }()
	l := a.locker
	backoff := newBackoff(&l.cfg)
	var pause time.Duration
	if l.claims.available() && l.claims.isContended(a.req.Name) {
		a.contended = true
	} else if l.claims.available() && l.queue.unused(a.req.Name) { // the database keeps the order
		lease, next, err := a.requestOnce(ctx, backoff)
		if lease != nil || err != nil {
			return lease, err
		}
		pause = next
	}
	return a.waitInQueue(ctx, backoff, pause)
}

// requestOnce sends one request of a call that waits. With neither a lease nor an error,
// it returns the pause before the next request.
func (a *acquisition) requestOnce(ctx context.Context, backoff *backoff) (*Lease, time.Duration, error) {
	l, o := a.locker, &a.opts
	if l.mode.waitsInDB && a.knownHeld { // if the wait in the database is cut short, the holder is known already
		a.req.Wait = min(maxDBWait, l.cfg.timeout(o.ttl)/2)
	}
	sent := l.sentAt()
	if a.req.Wait > 0 {
		sent = l.clock.Now()
	}
	t, held, err := a.request(ctx)
	if t != nil {
		lease, err := a.beginTerm(ctx, t)
		return lease, 0, err
	}
	pause := backoff.next()
	switch {
	case held != nil && a.req.Wait > 0 && l.clock.Now()-sent >= a.req.Wait/2: // it has waited in the database
		pause = min(l.cfg.retryMin, a.untilExpiry())
	case held != nil:
		pause = min(pause, a.untilExpiry())
	case ctx.Err() != nil:
		a.abandon()
		return nil, 0, a.waitError(endOf(ctx))
	case errors.Is(err, ErrPermits) || l.mode.Classify(err) == driver.Refused:
		a.abandon()
		return nil, 0, lockError(a.req.Name, err)
	}
	if o.hasTries && a.requests >= o.tries {
		a.abandon()
		return nil, 0, a.waitError(errWaitOver)
	}
	if held != nil && a.reportsWait() {
		a.noteWaiting(held)
	}
	return nil, pause + l.apart(sent, held != nil), nil
}

// skip reports that a call that does not wait has found the name held, and returns the error of
// that call.
func (a *acquisition) skip(held *HeldError) error {
	if l := a.locker; l.events.verbose {
		a.skipped = true
		l.events.skipped(SkippedEvent{
			Name: held.Name, Owner: a.req.Owner, Shared: a.req.Shared, Permit: a.req.Permits != 0, Waited: a.began.elapsed(), Held: held,
		})
	}
	return held
}

// noteFailed reports that the acquisition ends with an error, unless that was reported as
// skipped.
func (a *acquisition) noteFailed(err error) {
	l := a.locker
	if err == nil || a.skipped || !l.events.verbose {
		return
	}
	l.events.failed(FailedEvent{
		Name: a.req.Name, Owner: a.req.Owner, Shared: a.req.Shared, Permit: a.req.Permits != 0,
		Waited: a.began.elapsed(), Queued: a.queuedAt.elapsed(), Err: err,
	})
}

// reportsWait reports whether somebody is to be told that the acquisition waits.
func (a *acquisition) reportsWait() bool { return !a.waits && a.locker.events.verbose }

// noteWaiting reports that the acquisition waits for a name that is held.
func (a *acquisition) noteWaiting(held *HeldError) {
	a.waits, a.queuedAt = true, startStopwatch()
	a.locker.events.waiting(WaitingEvent{Name: held.Name, Owner: a.req.Owner, Shared: a.req.Shared, Permit: a.req.Permits != 0, Held: held})
}

// reenter re-enters a term for which the acquisition has waited, and reports that. With neither a
// lease nor [ErrUpgrade] that term ends just now.
func (a *acquisition) reenter(ctx context.Context, t *term) (*Lease, error) {
	lease, err := t.reenter(ctx, a.opts.shared)
	if lease != nil && a.waits {
		info := t.info()
		info.Shared, info.Permit = a.req.Shared, a.req.Permits != 0 // as noteWaiting has reported
		a.locker.events.reentered(ReenteredEvent{LeaseInfo: info, Waited: a.began.elapsed(), Queued: a.queuedAt.elapsed()})
	}
	return lease, err
}

// reply is the outcome of one request for a name.
type reply = batch.Reply[driver.AcquireResult]

// request sends one request. It returns a term, or who holds the name, or an error.
//
// The end of ctx does not cancel a request that was sent, unless its statement is slow and
// runs on this goroutine. The request goes on, and what it is granted is given back.
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

// grantKind tells which other requests can share a statement with that of a.
func (l *Locker) grantKind(a *acquisition) batch.Kind {
	k := batch.Kind{Group: ttlGroup(a.opts.ttl), Isolated: a.isolated, Large: len(a.req.Value) > 0}
	switch {
	case a.req.Shared:
		k.Flags = 1
	case a.req.Permits != 0:
		k.Flags = 2
	}
	return k
}

// sendGrants runs the statement of one batch of grants.
func (l *Locker) sendGrants(ctx context.Context, reqs []driver.AcquireRequest) ([]driver.AcquireResult, error) {
	defer l.keeper.noteUse()
	res, err := l.mode.Acquire(ctx, reqs)
	if err != nil {
		return nil, err
	}
	for i := range res {
		l.noteCrash(reqs[i].Name, res[i].Crashed)
	}
	return res, nil
}

// refuseFollower answers an exclusive request with the reply to another request for the
// same name: the holder in that reply excludes both. It reports false if that holder is
// the acquisition of req itself, by an earlier request.
func (l *Locker) refuseFollower(sent *driver.AcquireRequest, r reply, req *driver.AcquireRequest) (reply, bool) {
	r.SharedBatch = true
	if r.Err != nil {
		return r, true
	}
	res := r.Result
	r.Result = driver.AcquireResult{Now: res.Now, Holder: res.Holder}
	if res.Granted {
		r.Result.Holder = driver.Holder{Acq: sent.Acq, Owner: sent.Owner, Label: l.cfg.label, Version: res.Version,
			Since: res.Now, Until: res.Now + res.Remaining.Microseconds()}
	}
	return r, r.Result.Holder.Acq != req.Acq
}

// confirm reads a reply that reports a grant of an earlier request, whose own reply was
// lost. It confirms the grant first. If ctx ends meanwhile, the grant is given back.
func (a *acquisition) confirm(ctx context.Context, r reply) (*term, *HeldError, error) {
	confirmed, err := a.locker.await(ctx, func() reply { return a.locker.confirmGrant(a.req, &r.Result, a.locker.cfg.timeout(a.opts.ttl)) })
	if err != nil {
		return nil, nil, err
	}
	return a.readReply(confirmed)
}

// await runs request and waits for its reply. If ctx ends or the Locker is closed, await
// returns and request goes on.
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

// confirmGrant renews a grant of an earlier request whose reply was lost. That grant may
// not have been flushed, or not to the standby that a commit waits for: a server can give
// up that wait and still show the row. A later write that was confirmed makes the grant
// certain.
func (l *Locker) confirmGrant(req driver.AcquireRequest, grant *driver.AcquireResult, timeout time.Duration) (r reply) {
	version := grant.Version
	ctx, cancel := context.WithTimeout(l.base, timeout)
	defer cancel()
	r.Before = l.clock.Now()
	defer func() { r.After = l.clock.Now() }()
	res, err := l.mode.Renew(ctx, []driver.RenewRequest{{Name: req.Name, Acq: req.Acq, Version: version, TTL: req.TTL, Holds: 1, Shared: req.Together()}}, true)
	switch {
	case err != nil:
		r.Err = err
	case res.Status[0] == driver.Renewed:
		r.Result = driver.AcquireResult{Granted: true, Found: true, Version: version, Slot: grant.Slot, Remaining: req.TTL, Now: res.Now}
	default: // it has expired or was revoked meanwhile: request again
		r.Result = driver.AcquireResult{Now: res.Now}
	}
	return r
}

// giveBackLate gives back what a request was granted after its caller had left.
func (l *Locker) giveBackLate(req *driver.AcquireRequest, r reply) {
	switch {
	case r.Result.Granted: // if the outcome of an earlier request is unknown, the acquisition gives it back too
		l.giveBack(*req, false)
	case r.Err != nil && l.mode.Classify(r.Err) == driver.Unclear:
		l.giveBack(*req, true)
	}
}

// giveBack releases an acquisition that no caller has used, in the background. If the
// outcome of one of its requests is unknown, that request may still arrive.
func (l *Locker) giveBack(req driver.AcquireRequest, unknown bool) {
	r := driver.ReleaseRequest{Name: req.Name, Acq: req.Acq, Shared: req.Together()}
	if unknown {
		l.cleanup.add(r, req.TTL)
	} else {
		l.cleanup.addOnce(r, req.TTL)
	}
}

// readReply notes the reply to a request. It returns a term, or who holds the name, or an
// error.
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
	case r.Result.Permits != 0:
		err := permitsError(&a.req, &r.Result)
		a.lastErr = err
		return nil, nil, err
	case !r.Result.Granted:
		a.lastErr, a.knownHeld = nil, true
		a.holder = r.Result.Holder
		a.holderLeft = timeLeft(r.Result.Holder.Until, r.Result.Now)
		return nil, newHeldError(a.req.Name, a.holder), nil
	}
	return a.newTerm(r), nil, nil
}

// newTerm makes the term of a grant. If an earlier request of the acquisition was granted,
// the row may have less than the TTL left.
func (a *acquisition) newTerm(r reply) *term {
	t := &term{
		locker:     a.locker,
		name:       a.req.Name,
		acq:        a.req.Acq,
		owner:      a.req.Owner,
		ownerGiven: a.owner != "",
		shared:     a.opts.shared,
		permit:     a.opts.permits != 0,
		slot:       r.Result.Slot,
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
		t.latestEnd = a.grantedBy(&r) + a.opts.maxHold
	}
	t.awaited = r.Result.Found && !a.unknown && !t.shared && a.locker.claims.available()
	beyond := max(a.req.TTL-t.ttl, 0) // what the row is kept for longer than the holder trusts it
	left := min(t.ttl, r.Result.Remaining-beyond)
	t.atLimit = t.latestEnd-r.Before <= left
	t.deadline.Store(int64(min(t.latestEnd, r.Before+clock.Trust(left))))
	return t
}

// beginTerm begins a term and returns its first lease. A term whose deadline has passed
// already is given back.
func (a *acquisition) beginTerm(ctx context.Context, t *term) (*Lease, error) {
	l := a.locker
	if time.Duration(t.deadline.Load()) <= l.clock.Now() {
		l.giveBack(a.req, a.unknown)
		return nil, &LostError{Name: t.name, Token: t.token, Reason: LostLate}
	}
	lease := t.firstLease(ctx) // before another caller can re-enter and unlock the term
	earlier, ok := l.queue.granted(t)
	if !ok {
		l.giveBack(a.req, a.unknown)
		return nil, &LostError{Name: t.name, Token: t.token, Reason: LostTaken}
	}
	for _, old := range earlier {
		// The database has granted the name again, so the earlier term is over even if
		// this process still trusts it.
		old.expire()
		old.lose(LostTaken, nil)
	}
	if !l.keeper.keep(t) {
		l.queue.ended(t)
		l.giveBack(a.req, a.unknown)
		return nil, ErrClosed
	}
	if l.mode.sessions != nil && !l.mode.sessions.Holds(t.acq) { // it ended before the keeper knew it
		t.lose(LostSession, nil)
		return nil, t.lostError()
	}
	l.events.acquired(t, a.began, a.queuedAt, a.requests)
	return lease, nil
}

// abandon releases, in the background, what requests with an unknown outcome may have
// been granted. A request in flight gives back its own grant.
func (a *acquisition) abandon() {
	if a.unknown {
		a.locker.giveBack(a.req, true)
	}
}

// untilExpiry returns when to request again because the holder's lease has expired.
func (a *acquisition) untilExpiry() time.Duration {
	if a.holderLeft <= 0 {
		return never
	}
	return a.holderLeft + time.Millisecond
}

// waitError returns the error of a wait that cause has ended. It says what was waited for.
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

// heldError returns who held the name when that was last known.
func (a *acquisition) heldError() *HeldError {
	for _, t := range a.locker.queue.terms(a.req.Name) {
		return &HeldError{Name: t.name, Owner: t.owner, Label: a.locker.cfg.label, Shared: t.shared, Permit: t.permit}
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

// endOf returns why ctx ended: its Err, and its Cause if that is another error.
func endOf(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == err || cause == errWaitOver {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// maxDBWait is how long a statement may wait in the database. A waiting statement blocks
// others, such as CREATE INDEX CONCURRENTLY.
const maxDBWait = time.Second

// errWaitOver is the cause of the context of a Lock whose option Wait has run out.
var errWaitOver = errors.New("wait over")

func lockError(name string, err error) error {
	if errors.Is(err, ErrClosed) {
		return ErrClosed
	}
	if errors.Is(err, ErrPermits) { // it says the name
		return err
	}
	return fmt.Errorf("sqllock: lock %q: %w", name, err)
}
