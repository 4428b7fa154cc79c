package sqllock

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// hold is one term: from the grant of a name until it is given back or lost.
// Leases are handles on it, one per Lock that returned it.
type hold struct {
	locker   *Locker
	name     string
	acq      driver.ID
	owner    string
	explicit bool // owner was given by WithOwner: it may re-enter without a lease
	shared   bool
	token    int64
	ttl      time.Duration
	timeout  time.Duration // of its statements
	minHold  time.Duration // from the grant on, nobody else gets the name
	delay    time.Duration // the row is kept for this much longer than the holder trusts it
	limit    time.Duration // when the hold ends at the latest, on the Locker's clock; never: no bound
	granted  time.Duration

	// deadline is until when the holder may believe that it holds, on the
	// Locker's clock. Written under mu, read anywhere.
	deadline atomic.Int64

	// unclear is set if a request of this acquisition got no reply: it may still
	// arrive, and take the name once more after it was freed.
	unclear bool

	mu     sync.Mutex
	state  holdState
	count  int // leases that are not unlocked
	leases []*Lease
	one    [1]*Lease  // that leases begins with: most have no more
	lost   *LostError // set when state is holdLost
	worry  worry
	last   bool // the deadline is as far as it may get

	guarded bool // a Guard was called, and its transaction may be open

	upkeep upkeep // the keeper's
}

type holdState uint8

const (
	holdLive holdState = iota
	holdOver           // unlocked by all
	holdLost
)

// worry is the last failure to renew, until a renewal succeeds.
type worry struct {
	err    error
	reason Reason
}

// first makes the first lease of a hold that nobody knows yet.
func (h *hold) first(ctx context.Context) *Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.add(ctx)
}

// add makes a lease; the caller holds mu.
func (h *hold) add(ctx context.Context) *Lease {
	l := newLease(ctx, h)
	if h.leases == nil {
		h.leases = h.one[:0]
	}
	h.leases = append(h.leases, l)
	h.count++
	return l
}

// enter adds a lease to the hold. It fails with the hold's LostError if it is
// lost, and with nil and no lease if it is over. Who shares a name cannot have it
// alone.
func (h *hold) enter(ctx context.Context, shared bool) (*Lease, error) {
	h.expire()
	h.mu.Lock()
	defer h.mu.Unlock()
	switch h.state {
	case holdLive:
		if h.shared && !shared {
			return nil, fmt.Errorf("%w: the owner holds %q shared", ErrUpgrade, h.name)
		}
		return h.add(ctx), nil
	case holdLost:
		return nil, h.lost
	}
	return nil, nil
}

// leave takes a lease out of the hold and reports whether it was the last. The
// caller has to free the name then. The error is ErrNotHeld or the hold's
// LostError.
func (h *hold) leave(l *Lease) (last bool, err error) {
	h.expire()
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.Index(h.leases, l)
	if i < 0 {
		return false, ErrNotHeld
	}
	h.leases = slices.Delete(h.leases, i, i+1)
	h.count--
	l.unlocked.Store(true)
	l.ctx.cancel(ErrUnlocked)
	last = h.count == 0
	if h.state == holdLost {
		return last, h.lost
	}
	if last {
		h.state = holdOver
	}
	return last, nil
}

// expire makes the hold lost if its deadline has passed.
func (h *hold) expire() {
	if h.remaining() > 0 {
		return
	}
	h.mu.Lock()
	if h.remaining() > 0 || h.state != holdLive { // renewed meanwhile, or over
		h.mu.Unlock()
		return
	}
	h.loseLocked(h.whyLocked(), h.worry.err)
	h.mu.Unlock()
	h.locker.ended(h)
}

// whyLocked says why the deadline has passed; the caller holds mu.
func (h *hold) whyLocked() Reason {
	switch {
	case h.worry.err != nil:
		return h.worry.reason
	case h.last:
		return LostMaxHold
	}
	return LostDeadline
}

// lose makes the hold lost, if it is live, for a reason that is certain.
func (h *hold) lose(reason Reason, err error) {
	h.mu.Lock()
	if h.state != holdLive {
		h.mu.Unlock()
		return
	}
	h.loseLocked(reason, err)
	h.mu.Unlock()
	h.locker.ended(h)
}

// loseLocked is lose; the caller holds mu and calls Locker.ended after it.
func (h *hold) loseLocked(reason Reason, err error) {
	h.state = holdLost
	h.deadline.Store(0)
	h.lost = &LostError{Name: h.name, Token: h.token, Reason: reason, Err: err}
	for _, l := range h.leases {
		l.ctx.cancel(h.lost)
	}
}

// stint is for how long a renewal that is sent now may extend the hold, and
// whether it is the last one.
func (h *hold) stint(now time.Duration) (ttl time.Duration, last bool) {
	if left := h.limit - now; left <= h.ttl {
		return max(left, time.Microsecond), true
	}
	return h.ttl, false
}

// extend moves the deadline after a renewal. Loss is sticky: a renewal that is
// known only after the old deadline has passed revives nothing. A hold that is over is
// renewed until the database has freed it.
func (h *hold) extend(deadline time.Duration, last bool) {
	h.mu.Lock()
	late := h.remaining() <= 0
	if h.state != holdLost && !late {
		h.worry, h.last = worry{}, last
		h.deadline.Store(max(h.deadline.Load(), int64(deadline)))
	}
	h.mu.Unlock()
	if late {
		h.expire()
	}
}

// lostError returns why the hold is lost, or nil if it is not.
func (h *hold) lostError() *LostError {
	h.expire()
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lost
}

// fret notes that a renewal failed and reports whether that is news.
func (h *hold) fret(reason Reason, err error) (news bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	news = h.worry.err == nil && h.state == holdLive
	h.worry = worry{err, reason}
	return news
}

// abort cancels the contexts of the hold's leases with cause but lets it live.
func (h *hold) abort(cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.leases {
		l.ctx.cancel(cause)
	}
}

// remaining is how long the holder may still believe that it holds. It is not
// positive once the hold is lost.
func (h *hold) remaining() time.Duration {
	return time.Duration(h.deadline.Load()) - h.locker.clock.Now()
}

func (h *hold) holds() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.count
}

// final reports that there is nothing left to renew.
func (h *hold) final() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

func (h *hold) info() LeaseInfo {
	return LeaseInfo{Name: h.name, Owner: h.owner, Token: h.token, Shared: h.shared, TTL: h.ttl}
}

// ownedBy reports whether an explicit owner may re-enter the hold.
func (h *hold) ownedBy(owner string) bool {
	return owner != "" && h.explicit && h.owner == owner
}
