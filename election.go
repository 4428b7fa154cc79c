package sqllock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/clock"
)

// ElectionOptions are the options of [Locker.Election]. The zero value of each field
// means its default.
type ElectionOptions struct {
	// Identity names the candidate to callers that ask for the leader; at most 255 bytes
	// of UTF-8 without NUL. The default is a random id of this Election.
	//
	// A candidate with an Identity, such as a process that is restarted under the same
	// name, takes over a term of that identity with its first Campaign, see
	// [Election.Campaign]. A candidate over a quorum never does. Two processes that run at the
	// same time must not have the same Identity.
	Identity string

	// Value is the text of the leader in the terms of [Election.Run]; at most 64 KiB.
	Value []byte

	// TTL is for how long the database keeps a leader that does not renew its term. The
	// default is that of the Locker; the modes for update and advisory allow no other.
	TTL time.Duration

	// LockDelay keeps all candidates from leading for this much longer after a term that
	// did not end by Resign, see [LockDelay]. At most 24 h, default 0.
	LockDelay time.Duration

	// ResignOnRequest makes the leader listen for [Election.RequestResign]: then the context of
	// its lease ends with cause [ErrResignRequested], and so does that of the function of
	// [Election.Run]. The term goes on, and is renewed, until the leader resigns. A leader that
	// listens reads its row every third of its TTL, and every second at least. In unique mode
	// only; the default is not to listen.
	ResignOnRequest bool
}

// Election is one candidate for the leadership of a name. The leader holds the name: its
// term is a lease of the name, and the number of the term is the fencing token. An
// Election is safe for concurrent use. It needs no Close; end a term with
// [Election.Resign].
type Election struct {
	locker   *Locker
	name     string
	identity string
	value    []byte
	opts     lockOptions
	listens  bool // for requests to resign

	// leading is the lease of the term, for callers that do not wait for mu. It is nil when
	// the term is known to be over.
	leading atomic.Pointer[Lease]

	mu          sync.Mutex
	mayResume   bool   // the first Campaign has yet to find out whether there is a term to resume
	running     bool   // a Run is under way
	campaigning bool   // a Campaign is under way
	lease       *Lease // the last term, until it is unlocked
}

// Election returns a candidate for the leadership of name. The candidate leads after
// [Election.Campaign] has returned, or within [Election.Run]. To learn who leads, you also
// need a candidate, one that never campaigns. o may be nil.
//
// Election runs no SQL. It returns [ErrInvalidName]; [ErrUnsupported] if an option does not
// exist in the mode; or [ErrInvalidOption] if an option is out of bounds, or if the
// StatementTimeout of the Locker is so long that one renewal that hangs would cost the term.
func (l *Locker) Election(name string, o *ElectionOptions) (*Election, error) {
	if o == nil {
		o = &ElectionOptions{}
	}
	if err := driver.CheckName(name); err != nil {
		return nil, err
	}
	if err := driver.CheckText(o.Identity); err != nil {
		return nil, fmt.Errorf("%w: Identity %.64q: %w", ErrInvalidOption, o.Identity, err)
	}
	if o.ResignOnRequest && (l.mode.sessions != nil || l.mode.quorum) {
		return nil, fmt.Errorf("%w: ResignOnRequest: a session or a quorum keeps each lock in this mode", ErrUnsupported)
	}
	e := &Election{locker: l, listens: o.ResignOnRequest, name: name, identity: o.Identity, value: bytes.Clone(o.Value), mayResume: o.Identity != "" && !l.mode.quorum}
	if e.identity == "" {
		e.identity = newID().String()
	}
	var err error
	e.opts, err = l.lockOptions([]LockOption{TTL(orDefault(o.TTL, l.cfg.ttl)), LockDelay(o.LockDelay), Value(o.Value)}, false)
	if err != nil {
		return nil, err
	}
	ttl := e.opts.trustedTTL()
	if beat, timeout := l.mode.renewInterval(ttl/3), l.cfg.timeout(ttl); beat+timeout >= clock.Trust(ttl) {
		return nil, fmt.Errorf("%w: StatementTimeout %v: a renewal after %v would not be over before a TTL of %v is", ErrInvalidOption, timeout, beat, ttl)
	}
	return e, nil
}

// Name returns the name of the election.
func (e *Election) Name() string { return e.name }

// Identity returns the identity of the candidate, also if it is random.
func (e *Election) Identity() string { return e.identity }

// Campaign waits until the candidate leads, as [Locker.Lock] waits for the name. In unique
// mode it waits in the queue of all candidates, and of all other callers that want the
// name. value is the text of the leader that others can read, at most 64 KiB; it may be
// empty; Campaign copies it. ctx bounds the wait only. The term goes on until Resign, or until it
// is lost. In for-update mode it is lost after [ForUpdateOptions].MaxHold, 1 h by default, with
// reason [LostMaxHold].
//
// The first Campaign of a candidate with an Identity takes over a term that is held under
// the same Identity, which is taken for that of an earlier run of this process. It does so
// at once, ahead of the queue and of any LockDelay. The new term has a higher token, so
// that writes of the earlier run with [Lease.Guard] are refused; if the earlier run is
// still alive, it learns of the loss at its next renewal. Campaign waits for a transaction
// that guards the earlier term. In the modes for update and advisory it asks the earlier
// run to release the name, as [Locker.ForceUnlock] does, and then waits like all others. Over a
// quorum it takes over nothing and waits like all others.
// Later Campaigns take over nothing. So if two processes have one Identity, the second
// ends the term of the first once, and the first then waits in the queue.
//
// Campaign returns [ErrCampaigning] while another Campaign or Run of this Election is in
// progress, [ErrLeading] while it leads, [ErrInvalidOption] if the value is too long, all
// before any SQL, and the errors of Lock. After an error the candidate does not lead.
func (e *Election) Campaign(ctx context.Context, value []byte) error {
	return e.campaign(ctx, value, false)
}

// campaign is Campaign, or a part of Run.
func (e *Election) campaign(ctx context.Context, value []byte, run bool) error {
	if err := driver.CheckContext(ctx); err != nil {
		return err
	}
	if err := e.checkValue(value); err != nil {
		return err
	}
	old, resumes, err := e.beginCampaign(run)
	if err != nil {
		return err
	}
	if old != nil { // it was lost, and the caller is done with it
		_ = old.Unlock(ctx)
	}
	var lease *Lease
	defer func() { e.endCampaign(lease, resumes) }()
	lease, resumes, err = e.acquire(WithoutOwner(ctx), value, resumes)
	return err
}

// acquire waits for the name. If resumes is set, it first takes over a term of the same
// identity, and clears resumes when the database has said whether there is one.
func (e *Election) acquire(ctx context.Context, value []byte, resumes bool) (*Lease, bool, error) {
	l := e.locker
	if !l.inflight.begin() {
		return nil, resumes, ErrClosed
	}
	defer l.inflight.done()
	if ctx.Err() != nil {
		return nil, resumes, lockError(e.name, endOf(ctx))
	}
	o := e.opts
	o.value = bytes.Clone(value) // a request can go on when the caller has its buffer back
	a := l.newAcquisition(e.name, "", o)
	a.req.Owner, a.req.Named = e.identity, true
	if resumes {
		lease, decided, err := a.resumeTerm(ctx)
		resumes = !decided
		if lease != nil || err != nil {
			return lease, resumes, err
		}
	}
	lease, err := a.wait(ctx)
	return lease, resumes, err
}

// beginCampaign begins a campaign. It returns the lease of a term that was lost.
func (e *Election) beginCampaign(run bool) (old *Lease, resumes bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.campaigning, e.running && !run:
		return nil, false, ErrCampaigning
	case e.lease != nil && e.lease.Remaining() > 0:
		return nil, false, ErrLeading
	}
	old, e.lease, e.campaigning = e.lease, nil, true
	e.leading.Store(nil)
	return old, e.mayResume, nil
}

// endCampaign ends a campaign, with a lease if it was won.
func (e *Election) endCampaign(lease *Lease, resumes bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.campaigning, e.mayResume, e.lease = false, resumes, lease
	e.leading.Store(lease)
	if lease != nil && e.listens {
		e.listen(lease)
	}
}

func (e *Election) checkValue(value []byte) error {
	o := e.opts
	o.value = value
	return o.validateTerm()
}

// Resign ends the term and lets the next candidate lead. It works with a cancelled ctx and
// blocks as [Lease.Unlock] does. It returns the errors of Unlock: [ErrGuarded], a
// [*LostError] if the term was lost before, or an error of the database. After any of them
// the candidate does not lead. It returns [ErrNotLeader], before any SQL, if there is no
// term to resign from. Within Run, return from fn instead: Resign releases the name at
// once.
func (e *Election) Resign(ctx context.Context) error {
	e.mu.Lock()
	lease := e.lease
	e.lease = nil
	e.leading.Store(nil)
	e.mu.Unlock()
	if lease == nil {
		return ErrNotLeader
	}
	err := lease.Unlock(ctx)
	if errors.Is(err, ErrNotHeld) { // the caller has unlocked the lease
		return ErrNotLeader
	}
	return err
}

// IsLeader reports whether the candidate leads: it holds a term whose deadline has not
// passed. It reads memory and a clock, never the database, and does not block. The answer
// can be outdated when you act on it: use [Lease.Guard] or [Lease.Token] for actions that
// only one process may take.
func (e *Election) IsLeader() bool {
	lease := e.leading.Load()
	switch {
	case lease == nil:
		return false
	case !lease.unlocked.Load() && lease.term.remaining() > 0, lease.Remaining() > 0:
		return true
	}
	e.leading.CompareAndSwap(lease, nil)
	return false
}

// Lease returns the lease of the term, for [Lease.Guard], [Lease.InTx], its Context and
// its Token. Do not unlock it. The error is [ErrNotLeader] if the candidate does not lead,
// or the [*LostError] of a term that was lost and not resigned from.
func (e *Election) Lease() (*Lease, error) {
	e.mu.Lock()
	lease := e.lease
	e.mu.Unlock()
	switch {
	case lease == nil:
		return nil, ErrNotLeader
	case lease.Remaining() > 0:
		return lease, nil
	}
	if lost := lease.term.lostError(); lost != nil {
		return nil, lost
	}
	return nil, ErrNotLeader
}

// Run campaigns, calls fn while the candidate leads, releases the name when fn has
// returned, and campaigns again, until ctx ends. The text of the leader is the Value of
// the options; fn may change it with [Election.Proclaim].
//
// The context of fn ends with ctx or with the term, whichever is first, and carries the
// lease. fn also gets the lease, for its token and for [Lease.Guard]. When its context
// ends, fn has to return: another candidate gets the name of a lost term whether fn has
// returned or not, but Run does not campaign again before. It also ends if the candidate is
// asked to resign, see [Election.RequestResign]. If fn returns nil while the candidate leads,
// Run resigns and waits in the queue again. If fn panics or ends its
// goroutine, the name is released and the panic or Goexit continues.
//
// Run returns an error that wraps ctx's; the error of Campaign, if the database refuses or
// the Locker is closed; or the error that fn has returned while the candidate led and ctx
// had not ended. An error that fn returns after the term was lost, or after the candidate was
// asked to resign, is dropped. Run returns
// [ErrCampaigning] while a Campaign or a Run of this Election is in progress, and
// [ErrLeading] while it leads.
func (e *Election) Run(ctx context.Context, fn func(ctx context.Context, lease *Lease) error) error {
	if fn == nil {
		return driver.NilError("function")
	}
	if err := driver.CheckContext(ctx); err != nil {
		return err
	}
	if err := e.startRun(); err != nil {
		return err
	}
	defer e.endRun()
	for {
		err := e.campaign(ctx, e.value, true)
		switch {
		case errors.Is(err, ErrLost): // granted too late to be used
			continue
		case err != nil:
			return err
		}
		if err := e.lead(ctx, fn); err != nil {
			return err
		}
	}
}

func (e *Election) startRun() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.campaigning || e.running:
		return ErrCampaigning
	case e.lease != nil && e.lease.Remaining() > 0:
		return ErrLeading
	}
	e.running = true
	return nil
}

func (e *Election) endRun() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running = false
}

// lead runs one term of Run. An error ends Run.
func (e *Election) lead(ctx context.Context, fn func(context.Context, *Lease) error) error {
	e.mu.Lock()
	lease := e.lease
	e.mu.Unlock()
	if lease == nil { // the caller has resigned meanwhile
		return nil
	}
	bound, cancel := lease.Bind(ctx)
	defer cancel()
	defer func() { _ = e.Resign(ctx) }() // also when fn panics; what it could not free is freed in the background
	if err := fn(bound, lease); err != nil && ctx.Err() == nil && lease.Remaining() > 0 && !lease.resignRequested() {
		return err
	}
	return nil
}

// resumeTerm takes over the term of a holder with the same owner. With neither a lease nor
// an error there is no such term, or its holder was asked to release it, and the
// acquisition has to wait like others. decided is false until the database has answered.
//
// It takes over only the term that it has seen first: if two processes are restarted at
// the same time, the second must not end the term of the first.
func (a *acquisition) resumeTerm(ctx context.Context) (lease *Lease, decided bool, err error) {
	l := a.locker
	var seen int64
	for pause := newBackoff(&l.cfg); ; {
		row, err := l.readRow(ctx, a.req.Name)
		switch {
		case err == nil && (!a.sameIdentity(&row) || seen != 0 && seen != row.Holder.Version):
			return nil, true, nil
		case err == nil:
			seen = row.Holder.Version
			var t *term
			req := driver.AcquireRequest{Name: a.req.Name, Acq: a.req.Acq, Owner: a.req.Owner, Resumes: seen, TTL: a.req.TTL, Value: a.req.Value}
			if t, err = a.takeOver(ctx, req); t != nil {
				lease, err := a.beginTerm(ctx, t)
				return lease, true, err
			}
			if err == nil { // it has ended meanwhile, or will
				return nil, true, nil
			}
		}
		if end := a.waitToResume(ctx, err, pause); end != nil {
			return nil, false, end
		}
	}
}

// sameIdentity reports whether the row has a holder with the same owner that is another
// acquisition. An ordinary request finds out about its own.
func (a *acquisition) sameIdentity(row *driver.Row) bool {
	return stateOf(row) == StateHeld && row.Together() == 0 && row.Holder.Owner == a.req.Owner && row.Holder.Acq != a.req.Acq
}

// waitToResume waits for a while after an error, or returns why to give up.
func (a *acquisition) waitToResume(ctx context.Context, err error, pause *backoff) error {
	l := a.locker
	if ctx.Err() == nil && l.mode.Classify(err) != driver.Refused {
		a.lastErr = err
		err = l.sleep(ctx, nil, pause.next())
		if err == nil {
			return nil
		}
	}
	a.abandon()
	if ctx.Err() != nil {
		return a.waitError(endOf(ctx))
	}
	return lockError(a.req.Name, err)
}

// takeOver sends one request that ends a term and begins the next. With neither a term nor
// an error the term had ended before. The end of ctx does not cancel the request: what it
// is granted is given back.
func (a *acquisition) takeOver(ctx context.Context, req driver.AcquireRequest) (*term, error) {
	l := a.locker
	a.requests++
	before := l.clock.Now()
	r, err := l.await(ctx, func() reply { return l.resume(req, l.cfg.timeout(a.opts.ttl)) })
	switch {
	case err != nil: // it goes on by itself
		if !a.unknown {
			a.unknown, a.unknownSince = true, before
		}
		return nil, err
	case r.Err == nil && !r.Result.Granted:
		l.revokeLocally(a.req.Name, req.Resumes)
		return nil, nil
	case r.Err == nil && r.Result.Found && a.unknown:
		t, _, err := a.confirm(ctx, r)
		return t, err
	}
	t, _, err := a.readReply(r)
	return t, err
}

// resume runs one statement, and what it takes to get to it.
func (l *Locker) resume(req driver.AcquireRequest, timeout time.Duration) (r reply) {
	ctx, cancel := context.WithTimeout(l.base, timeout)
	defer cancel()
	defer l.keeper.noteUse()
	r.Before = l.clock.Now()
	res, err := l.mode.Acquire(ctx, []driver.AcquireRequest{req})
	if r.Err = err; err == nil {
		r.Result = res[0]
	}
	r.After = l.clock.Now()
	return r
}

// revokeLocally ends a term of this Locker that was asked to release the name.
func (l *Locker) revokeLocally(name string, version int64) {
	if l.mode.sessions == nil {
		return
	}
	for _, t := range l.queue.terms(name) {
		if t.token == version {
			t.lose(LostRevoked, nil)
		}
	}
}
