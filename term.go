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

// term is one term: from the grant of a name until the name is released or the lease is
// lost. Leases are handles on a term, one for each Lock that returned it.
type term struct {
	locker     *Locker
	name       string
	acq        driver.ID
	owner      string
	ownerGiven bool // the owner was given by WithOwner and may re-enter without a lease
	shared     bool
	permit     bool // of a semaphore
	slot       int  // of the permit
	token      int64
	ttl        time.Duration
	timeout    time.Duration // of its statements
	minHold    time.Duration // from the grant on, no other caller gets the name
	lockDelay  time.Duration // the row is kept for this much longer than the holder trusts it
	latestEnd  time.Duration // when the term ends at the latest (MaxHold), on the Locker's clock; never: no bound
	granted    time.Duration

	// deadline is until when the holder trusts its lease, on the
	// Locker's clock. Written under mu, read anywhere.
	deadline atomic.Int64

	// unknown is set if a request of this acquisition got no reply. It may still
	// arrive, and take the name again after it was released.
	unknown bool

	// unused says that the call which was granted the term has failed, while nobody else had a lease
	// of it: no MinHold keeps the name.
	unused atomic.Bool

	// awaited is set if the name was handed over to the term: most probably somebody waits
	// for it again.
	awaited bool

	// queued is set if the call waited in the queue of the database: perhaps others do, too.
	queued bool

	mu          sync.Mutex
	state       termState
	count       int // leases that are not unlocked
	leases      []*Lease
	first       Lease      // the first of leases: most terms have one
	inline      [1]*Lease  // the first array of leases
	lost        *LostError // set when state is termLost
	lastFailure failure
	atLimit     bool // the deadline is at latestEnd: nothing is left to renew

	guarded bool // a Guard was called, and its transaction may be open

	handedOver int           // waiters to whom its release has handed the name over; of the last Unlock
	releasedAt time.Duration // when the last reply to its release came; 0 if none has

	// leaving is set when a transaction has ended the term, until it is known what became
	// of that transaction. What a renewal says that was sent before leavingSince is older.
	leaving      bool
	leavingSince time.Duration

	renewal renewal // the keeper's
}

type termState uint8

const (
	termLive     termState = iota
	termLeft               // ended by a transaction, and not unlocked by all
	termUnlocked           // unlocked by all
	termLost
)

// failure is the last failure to renew. A renewal that succeeds clears it.
type failure struct {
	err    error
	reason Reason
}

// firstLease makes the first lease of a new term.
func (t *term) firstLease(ctx context.Context) *Lease {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.addLease(ctx)
}

// addLease makes a lease; the caller holds mu.
func (t *term) addLease(ctx context.Context) *Lease {
	l := &t.first
	if t.leases == nil {
		t.leases = t.inline[:0]
	} else {
		l = new(Lease)
		t.unused.Store(false)
	}
	l.init(ctx, t)
	t.leases = append(t.leases, l)
	t.count++
	return l
}

// reenter adds a lease to the term. It returns the LostError of a lost term, neither a
// lease nor an error if the term was unlocked or a transaction has ended it, and ErrUpgrade
// if the term is shared and the caller wants it exclusively, or if it is a permit.
func (t *term) reenter(ctx context.Context, shared bool) (*Lease, error) {
	t.expire()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.state == termLost:
		return nil, t.lost
	case t.state != termLive || t.leaving:
		return nil, nil
	case t.shared && !shared:
		return nil, fmt.Errorf("%w: the owner holds %q shared", ErrUpgrade, t.name)
	case t.permit:
		return nil, fmt.Errorf("%w: the owner holds a permit of %q", ErrUpgrade, t.name)
	}
	return t.addLease(ctx), nil
}

// notUsedBy notes that the call for which l was made has failed.
func (t *term) notUsedBy(l *Lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unused.Store(l == &t.first && t.count == 1)
}

// removeLease takes a lease out of the term and reports whether it was the last. The
// caller then has to release the name. The error is ErrNotHeld or the LostError of the
// term.
func (t *term) removeLease(l *Lease) (last bool, err error) {
	t.expire()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.removeLeaseLocked(l, ErrUnlocked)
}

// endLease takes the only lease out of the term, for a cause that is no loss. It returns
// ErrNotHeld, or the LostError of the term, and then changes nothing.
func (t *term) endLease(l *Lease, cause error) error {
	t.expire()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == termLost {
		return t.lost
	}
	_, err := t.removeLeaseLocked(l, cause)
	return err
}

// removeLeaseLocked is removeLease, for a cause; the caller holds mu.
func (t *term) removeLeaseLocked(l *Lease, cause error) (last bool, err error) {
	i := slices.Index(t.leases, l)
	if i < 0 {
		return false, ErrNotHeld
	}
	t.leases = slices.Delete(t.leases, i, i+1)
	t.count--
	l.unlocked.Store(true)
	l.ctx.cancel(cause)
	last = t.count == 0
	if t.state == termLost {
		return last, t.lost
	}
	if last {
		t.state = termUnlocked
	}
	return last, nil
}

// expire makes the term lost if its deadline has passed.
func (t *term) expire() {
	if t.remaining() > 0 {
		return
	}
	t.mu.Lock()
	if t.remaining() > 0 || t.state != termLive { // renewed meanwhile, or over
		t.mu.Unlock()
		return
	}
	t.loseLocked(t.lossReasonLocked(), t.lastFailure.err)
	t.mu.Unlock()
	t.locker.termLost(t)
}

// lossReasonLocked returns why the deadline has passed; the caller holds mu.
func (t *term) lossReasonLocked() Reason {
	switch {
	case t.lastFailure.err != nil:
		return t.lastFailure.reason
	case t.atLimit:
		return LostMaxHold
	}
	return LostDeadline
}

// lose makes a live term lost, for a reason that is certain. A term that a transaction has
// ended is not lost because it is over.
func (t *term) lose(reason Reason, err error) {
	t.mu.Lock()
	if t.state != termLive {
		t.mu.Unlock()
		return
	}
	over := t.locker.termLost
	if t.leaving && reason == LostTaken {
		t.leaveLocked()
		over = t.locker.termLeft
	} else {
		t.loseLocked(reason, err)
	}
	t.mu.Unlock()
	over(t)
}

// loseLocked is lose; the caller holds mu and calls Locker.termLost after it.
func (t *term) loseLocked(reason Reason, err error) {
	t.state = termLost
	t.deadline.Store(0)
	t.lost = &LostError{Name: t.name, Token: t.token, Reason: reason, Err: err}
	for _, l := range t.leases {
		l.ctx.cancel(t.lost)
	}
}

// nextTTL returns by how much a renewal that is sent now may extend the term, and whether
// that reaches latestEnd.
func (t *term) nextTTL(now time.Duration) (ttl time.Duration, atLimit bool) {
	if left := t.latestEnd - now; left <= t.ttl {
		return max(left, time.Microsecond), true
	}
	return t.ttl, false
}

// extend moves the deadline after a renewal. A loss is final: a renewal that is known only
// after the old deadline does not revive the term. An unlocked term is renewed until the
// database has released it.
func (t *term) extend(deadline time.Duration, atLimit bool) {
	t.mu.Lock()
	late := t.remaining() <= 0
	if t.state != termLost && !late {
		t.lastFailure, t.atLimit = failure{}, atLimit
		t.deadline.Store(max(t.deadline.Load(), int64(deadline)))
	}
	t.mu.Unlock()
	if late {
		t.expire()
	}
}

// renewed is extend for a renewal that was sent at a time. If a transaction has ended the
// term before, it was rolled back.
func (t *term) renewed(sent, deadline time.Duration, atLimit bool) {
	t.extend(deadline, atLimit)
	t.mu.Lock()
	back := t.leaving && sent > t.leavingSince
	if back {
		t.leaving = false
	}
	t.mu.Unlock()
	if back {
		t.locker.queue.back(t)
	}
}

// lostError returns why the term is lost, or nil if it is not.
func (t *term) lostError() *LostError {
	t.expire()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lost
}

// noteFailure notes that a renewal failed. It reports whether this is the first failure
// since the last success.
func (t *term) noteFailure(reason Reason, err error) (first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	first = t.lastFailure.err == nil && t.state == termLive
	t.lastFailure = failure{err, reason}
	return first
}

// cancelContexts cancels the contexts of the term's leases with cause. The term goes on.
func (t *term) cancelContexts(cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.leases {
		l.ctx.cancel(cause)
	}
}

// remaining returns for how long the holder still trusts its lease. It is not positive
// after a loss.
func (t *term) remaining() time.Duration {
	return time.Duration(t.deadline.Load()) - t.locker.clock.Now()
}

// certainlyRemaining is remaining, but if it returns 0 the term is over: the deadline that was read
// is not one that has been moved meanwhile.
func (t *term) certainlyRemaining() time.Duration {
	for {
		t.expire()
		t.mu.Lock()
		left, live := t.remaining(), t.state == termLive
		t.mu.Unlock()
		if left > 0 || !live {
			return max(left, 0)
		}
	}
}

func (t *term) leaseCount() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count
}

// isAtLimit reports whether nothing is left to renew.
func (t *term) isAtLimit() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.atLimit
}

func (t *term) info() LeaseInfo {
	return LeaseInfo{Name: t.name, Owner: t.owner, Token: t.token, Shared: t.shared, Permit: t.permit, Slot: t.slot, TTL: t.ttl}
}

// together reports that the term is held together with others: shared, or with a permit.
func (t *term) together() bool { return t.shared || t.permit }

// excludes reports that another term of the name is over now that the database has granted this
// one.
func (t *term) excludes(old *term) bool {
	return !t.together() || t.shared != old.shared || t.permit && t.slot == old.slot
}

// ownedBy reports whether an explicit owner may re-enter the term.
func (t *term) ownedBy(owner string) bool {
	return owner != "" && t.ownerGiven && t.owner == owner
}

// rowTTL returns for how long the database keeps the row after a grant or a renewal.
func (t *term) rowTTL() time.Duration { return max(t.ttl, t.minHold) + t.lockDelay }

// keptFor returns the minimum time, from the grant on, for which a release keeps the name.
func (t *term) keptFor() time.Duration {
	if t.unused.Load() {
		return 0
	}
	return t.minHold
}

// cleanupRequest returns the request that releases the term in the background, and for how
// long to repeat it.
func (t *term) cleanupRequest() (driver.ReleaseRequest, time.Duration) {
	return driver.ReleaseRequest{Name: t.name, Acq: t.acq, MinHold: t.keptFor(), Guarded: t.isGuarded(), Shared: t.together()}, t.rowTTL()
}

// guard returns why a lease cannot be guarded, or nil. From the first call that returns nil on, the
// term counts as guarded.
func (t *term) guard(l *Lease) error {
	t.expire()
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.guardableLocked(l)
	if err == nil {
		t.guarded = true
	}
	return err
}

// guardable returns why a lease cannot be guarded, or nil.
func (t *term) guardable(l *Lease) error {
	t.expire()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.guardableLocked(l)
}

// guardableLocked is guardable; the caller holds mu.
func (t *term) guardableLocked(l *Lease) error {
	switch {
	case t.state == termLost:
		return t.lost
	case l.unlocked.Load() || t.state != termLive:
		return ErrNotHeld
	case t.shared:
		return fmt.Errorf("%w: guard %q: the lease is shared; what writes needs an exclusive one", ErrUnsupported, t.name)
	case t.locker.mode.quorum:
		return fmt.Errorf("sqllock: guard %q: %w", t.name, errQuorumTx)
	}
	return nil
}

func (t *term) isGuarded() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.guarded
}

func (t *term) valueRequest(value []byte) driver.SetValueRequest {
	return driver.SetValueRequest{Name: t.name, Acq: t.acq, Version: t.token, Value: value}
}
