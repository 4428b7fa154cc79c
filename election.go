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
	// Identity says who the candidate is, to whoever asks for the leader: at most 255
	// bytes of UTF-8 without NUL. The default is a random number of this Election.
	//
	// Who gives one, a process that is restarted under the same name, say, resumes a
	// term of that identity with its first Campaign: see there. No two processes that
	// live at the same time should have the same.
	Identity string

	// Value is what a leader says in the terms of [Election.Run]; at most 64 KiB.
	Value []byte

	// TTL is for how long a leader that is not heard of leads on, as far as the
	// database knows. The default is that of the Locker, and in the modes that keep
	// locks in sessions nothing else is allowed.
	TTL time.Duration

	// LockDelay keeps everybody from leading for this much longer after a term that
	// did not end by Resign, see [LockDelay]. At most 24 h, default 0.
	LockDelay time.Duration
}

// Election is one candidate for the leadership of a name. Who leads holds the name:
// the term is a lease of it, with a number that is its fencing token. It is safe for
// concurrent use. It has nothing to be closed but a term: see [Election.Resign].
type Election struct {
	l        *Locker
	name     string
	identity string
	value    []byte
	opts     lockOptions

	// lead is the lease of the term for those who ask in a hurry, nil when it is known
	// to be over.
	lead atomic.Pointer[Lease]

	mu      sync.Mutex
	resumes bool   // the first Campaign has yet to find out whether there is a term to resume
	running bool   // a Run is under way
	busy    bool   // a Campaign is under way
	lease   *Lease // the last term, until it is unlocked
}

// Election returns a candidate for the leadership of name. It leads when
// [Election.Campaign] has returned, or within [Election.Run]. Options may be nil. Those
// who only want to know who leads need a candidate too, and let it never campaign.
//
// It runs no SQL. It returns [ErrInvalidName], or [ErrInvalidOption] if an option is out
// of bounds or if the StatementTimeout of the Locker is so long that one renewal which
// hangs would cost the term.
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
	e := &Election{l: l, name: name, identity: o.Identity, value: bytes.Clone(o.Value), resumes: o.Identity != ""}
	if e.identity == "" {
		e.identity = newID().String()
	}
	var err error
	e.opts, err = l.cfg.lockOptions([]LockOption{TTL(orDefault(o.TTL, l.cfg.ttl)), LockDelay(o.LockDelay), Value(o.Value)}, false)
	if err != nil {
		return nil, err
	}
	ttl := e.opts.trusted()
	if beat, timeout := l.cfg.beat(ttl/3), l.cfg.timeout(ttl); beat+timeout >= clock.Trust(ttl) {
		return nil, fmt.Errorf("%w: StatementTimeout %v: a renewal after %v would not be over before a TTL of %v is", ErrInvalidOption, timeout, beat, ttl)
	}
	return e, nil
}

// Name returns what the election is about.
func (e *Election) Name() string { return e.name }

// Identity returns that of the candidate, be it the random one.
func (e *Election) Identity() string { return e.identity }

// Campaign waits until the candidate leads, as [Locker.Lock] waits for the name: in the
// mode unique in the line of all candidates, and of all others who want the name. value
// is what the leader says to whoever asks, at most 64 KiB; it may be empty. ctx bounds
// the wait only. The term goes on until Resign, or until it is lost.
//
// If the Identity was given, and the name is held under it when the first Campaign asks,
// that is taken for an earlier incarnation of this process, and its term is taken over at
// once, past the line and any LockDelay. The new term has a higher token, so that what the
// earlier incarnation writes with [Lease.Guard] is refused; if it lives, it is told of
// the loss by its next renewal. A transaction that it guards is waited for. In the modes
// that keep locks in sessions it is asked to let go instead, as by [Locker.ForceUnlock],
// and this candidate then waits like all others. Later Campaigns resume nothing: so of two
// processes with one identity the second ends the term of the first, once, and
// the first then stands in line.
//
// Campaign returns [ErrCampaigning] while another Campaign, or Run, of this Election is
// under way, [ErrLeading] while it leads, [ErrInvalidOption] if the value is too long, all
// before any SQL, and what Lock returns. After an error it does not lead.
func (e *Election) Campaign(ctx context.Context, value []byte) error {
	return e.campaign(ctx, value, false)
}

// campaign is Campaign, or part of a Run.
func (e *Election) campaign(ctx context.Context, value []byte, run bool) error {
	if err := driver.CheckContext(ctx); err != nil {
		return err
	}
	if err := e.checkValue(value); err != nil {
		return err
	}
	old, resumes, err := e.enter(run)
	if err != nil {
		return err
	}
	if old != nil { // it was lost, and the caller is done with it
		_ = old.Unlock(ctx)
	}
	var lease *Lease
	defer func() { e.leave(lease, resumes) }()
	o := e.opts
	o.value = value
	lease, err = e.l.enter(WithoutOwner(ctx), e.name, false, func(string) (*Lease, error) {
		a := e.l.newAttempt(e.name, "", o)
		a.req.Owner, a.req.Named = e.identity, true
		if resumes {
			lease, decided, err := a.resume(ctx)
			resumes = !decided
			if lease != nil || err != nil {
				return lease, err
			}
		}
		return e.l.wait(ctx, a, o)
	})
	return err
}

// enter begins a campaign. It returns the lease of a term that was lost.
func (e *Election) enter(run bool) (old *Lease, resumes bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.busy, e.running && !run:
		return nil, false, ErrCampaigning
	case e.lease != nil && e.lease.Remaining() > 0:
		return nil, false, ErrLeading
	}
	old, e.lease, e.busy = e.lease, nil, true
	e.lead.Store(nil)
	return old, e.resumes, nil
}

// leave ends a campaign, with a lease if it was won.
func (e *Election) leave(lease *Lease, resumes bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.busy, e.resumes, e.lease = false, resumes, lease
	e.lead.Store(lease)
}

func (e *Election) checkValue(value []byte) error {
	o := e.opts
	o.value = value
	return o.validateHold()
}

// Resign ends the term and lets the next candidate lead. It works with a cancelled
// ctx and blocks as [Lease.Unlock] does, whose errors it returns: [ErrGuarded],
// a [*LostError] if the term was lost before, or one of the database. After all of them
// the candidate leads no more. It returns [ErrNotLeader], before any SQL, if there is no
// term to resign from. Within Run, return from fn instead: Resign frees the name at once.
func (e *Election) Resign(ctx context.Context) error {
	e.mu.Lock()
	lease := e.lease
	e.lease = nil
	e.lead.Store(nil)
	e.mu.Unlock()
	if lease == nil {
		return ErrNotLeader
	}
	err := lease.Unlock(ctx)
	if errors.Is(err, ErrNotHeld) { // somebody has unlocked the lease
		return ErrNotLeader
	}
	return err
}

// IsLeader reports whether the candidate leads and may believe so until a deadline that
// has not passed. It asks the memory and a clock, never the database, and does not block.
// Between IsLeader and what is done upon it time passes: see [Lease.Guard] and
// [Lease.Token] for what must not be done by two.
func (e *Election) IsLeader() bool {
	lease := e.lead.Load()
	switch {
	case lease == nil:
		return false
	case !lease.unlocked.Load() && lease.hold.remaining() > 0, lease.Remaining() > 0:
		return true
	}
	e.lead.CompareAndSwap(lease, nil)
	return false
}

// Lease returns the lease of the term: for [Lease.Guard], [Lease.InTx], its Context and its
// Token. It is not to be unlocked. The error is [ErrNotLeader] if the candidate does not
// lead, or the [*LostError] of a term that was lost and not resigned from.
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
	if lost := lease.hold.lostError(); lost != nil {
		return nil, lost
	}
	return nil, ErrNotLeader
}
