package sqllock

import (
	"cmp"
	"context"
	"errors"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/clock"
)

// keeper renews the leases of a Locker and ends those whose deadline passes. It has one
// goroutine, and one more for each renewal in flight, however many leases there are.
type keeper struct {
	mode  mode
	clock clock.Clock
	cfg   *config
	log   *events
	jumps clock.JumpDetector

	mu       sync.Mutex
	terms    map[*term]*renewal
	wakeAt   time.Duration         // when the next task is due; never: none is
	idleAt   time.Duration         // when the mode may close what is idle; never: it has done so
	used     bool                  // the mode was used since that was planned
	sending  map[renewalGroup]bool // groups with a batch in flight
	isolated int                   // isolated renewals in flight
	empty    chan struct{}         // closed when no term is left, if drained was called

	wake   chan struct{}
	ctx    context.Context // ends when the keeper is to stop
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// renewal is what the keeper knows of one term.
type renewal struct {
	due      time.Duration // when to renew next
	failures int           // since the last success
	renewing bool
	isolated bool // its row is locked by another transaction: renew it by itself
}

const (
	// maxKeeperSleep bounds how long the keeper sleeps while there are terms. Timers
	// stop during suspend, the clock does not: Done closes this late at most.
	maxKeeperSleep = 50 * time.Millisecond
	// maxBatch is how many leases one statement renews at most.
	maxBatch = 10_000
	// maxRetryPause is the longest pause before a renewal that has failed is sent again.
	maxRetryPause = time.Second
	// maxIsolated is how many isolated renewals may wait for a locked row at a time.
	maxIsolated = 4

	never = time.Duration(1<<63 - 1)
)

func newKeeper(m mode, c clock.Clock, cfg *config, e *events) *keeper {
	k := &keeper{
		mode: m, clock: c, cfg: cfg, log: e,
		terms: make(map[*term]*renewal), sending: make(map[renewalGroup]bool),
		wakeAt: never,
		idleAt: never,
		wake:   make(chan struct{}, 1),
	}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	k.wg.Go(k.run)
	return k
}

// keep renews t from now on. It reports false if the keeper was closed.
func (k *keeper) keep(t *term) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ctx.Err() != nil {
		return false
	}
	r := &t.renewal
	deadline := time.Duration(t.deadline.Load())
	*r = renewal{due: never}
	if k.isRenewed(t.isAtLimit()) {
		r.due = t.granted + k.mode.renewInterval((deadline-t.granted)/3)
	}
	k.terms[t] = r
	k.wakeBy(min(r.due, deadline))
	return true
}

// isRenewed reports whether a term is asked for again, that may have reached the limit of its
// MaxHold. A session is asked until the end: it can be over before, and it is told by the answer that
// somebody else wants the name.
func (k *keeper) isRenewed(atLimit bool) bool { return !atLimit || k.mode.sessions != nil }

// drop stops renewing t. A renewal in flight may still extend the row.
func (k *keeper) drop(t *term) {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.terms[t]
	delete(k.terms, t)
	if !ok || len(k.terms) > 0 {
		return
	}
	k.planIdle()
	if k.empty != nil {
		close(k.empty)
		k.empty = nil
	}
}

// wakeBy wakes the keeper at t at the latest; the caller holds mu.
func (k *keeper) wakeBy(t time.Duration) {
	if t >= k.wakeAt {
		return
	}
	k.wakeAt = t
	wake(k.wake)
}

// all returns the terms that are renewed now.
func (k *keeper) all() []*term {
	k.mu.Lock()
	defer k.mu.Unlock()
	terms := make([]*term, 0, len(k.terms))
	for t := range k.terms {
		terms = append(terms, t)
	}
	return terms
}

// drained returns a channel that is closed as soon as no term is left.
func (k *keeper) drained() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.empty != nil {
		return k.empty
	}
	ch := make(chan struct{})
	if len(k.terms) == 0 {
		close(ch)
	} else {
		k.empty = ch
	}
	return ch
}

// close stops the keeper and waits for it. The terms that are left are not renewed any
// more.
func (k *keeper) close() {
	k.mu.Lock()
	k.cancel()
	k.mu.Unlock()
	k.wg.Wait()
}

func (k *keeper) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-k.wake:
		case <-k.ctx.Done():
			return
		}
		k.runDue()
		timer.Reset(k.sleepTime())
	}
}

// sleepTime returns how long the keeper may sleep.
func (k *keeper) sleepTime() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.wakeAt == never {
		return time.Hour
	}
	return max(min(k.wakeAt-k.clock.Now(), maxKeeperSleep), 0)
}

// runDue runs the tasks that are due.
func (k *keeper) runDue() {
	k.mu.Lock()
	now := k.clock.Now()
	if k.wakeAt > now {
		k.mu.Unlock()
		return
	}
	k.wakeAt = never
	expired := k.takeExpired(now)
	batches, isolated := k.takeDue(now)
	idle := k.takeIdle(now)
	k.mu.Unlock()

	k.endExpired(expired)
	for group, batch := range batches {
		k.wg.Go(func() {
			defer k.renewalDone(func() { delete(k.sending, group) })
			for chunk := range slices.Chunk(batch, maxBatch) {
				k.renew(chunk, false)
			}
		})
	}
	for _, t := range isolated {
		k.wg.Go(func() {
			defer k.renewalDone(func() { k.isolated-- })
			k.renew([]*term{t}, true)
		})
	}
	if idle {
		k.wg.Go(func() { // it may wait for the database
			if !k.mode.CloseIdle() {
				k.noteUse()
			}
		})
	}
}

// endExpired ends terms whose deadline has passed, but for those that were renewed at the last moment.
func (k *keeper) endExpired(terms []*term) {
	for _, t := range terms {
		t.expire()
		if t.remaining() <= 0 {
			k.drop(t) // also if it ended before keep
		}
	}
}

// takeExpired returns the terms whose deadline has passed; the caller holds mu.
func (k *keeper) takeExpired(now time.Duration) (expired []*term) {
	for t := range k.terms {
		if d := time.Duration(t.deadline.Load()); d <= now {
			expired = append(expired, t)
		} else {
			k.wakeAt = min(k.wakeAt, d)
		}
	}
	return expired
}

// takeDue returns the terms to renew in batches, by group, and those to renew in
// isolation; the caller holds mu.
//
// A term that is due takes along the terms of its group that would be due within a sixth
// of their TTL. So after a while all leases of one TTL are renewed together, every third
// of it.
func (k *keeper) takeDue(now time.Duration) (batches map[renewalGroup][]*term, isolated []*term) {
	due := make(map[renewalGroup]bool)
	for t, r := range k.terms {
		if !r.renewing && r.due <= now && (!r.isolated || k.isolated >= maxIsolated) {
			due[k.group(t)] = true
		}
	}
	batches = make(map[renewalGroup][]*term)
	for t, r := range k.terms {
		g := k.group(t)
		switch {
		case r.renewing:
		case r.due > now && (r.isolated || !due[g] || r.due > now+t.ttl/6):
			k.wakeAt = min(k.wakeAt, r.due)
		case r.isolated && k.isolated < maxIsolated:
			k.isolated++
			r.renewing = true
			isolated = append(isolated, t)
		case !k.sending[g]: // one for which there is no room in isolation, too: its row may be free by now
			r.renewing = true
			batches[g] = append(batches[g], t)
		}
		// What is due and not taken waits until a renewal is back.
	}
	for g := range batches {
		k.sending[g] = true
	}
	return batches, isolated
}

// renewalGroup is what terms have in common that are renewed together. A session that does not
// answer must not delay the news of another.
type renewalGroup struct {
	ttl     int // see ttlGroup
	session any // that keeps the locks; nil if none does
}

func (k *keeper) group(t *term) renewalGroup {
	g := renewalGroup{ttl: ttlGroup(t.ttl)}
	if k.mode.sessions != nil {
		g.session = k.mode.sessions.Session(t.acq)
	}
	return g
}

// ttlGroup groups TTLs that differ by a factor of two at most, and so the timeouts of
// their statements: a statement for leases of an hour, which may hang for long, must not
// delay leases of a second. TTLs above the longest timeout are in one group.
func ttlGroup(ttl time.Duration) int { return bits.Len64(uint64(min(ttl, 3*maxStatementTimeout))) }

// renewalDone notes that a renewal is back, and wakes the keeper for what waited for it.
func (k *keeper) renewalDone(note func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	note()
	k.wakeBy(k.clock.Now())
}

// renew sends one batch of renewals and gives each term its result. With wait it waits for
// locked rows.
func (k *keeper) renew(batch []*term, wait bool) {
	slices.SortFunc(batch, func(a, b *term) int { return cmp.Compare(a.name, b.name) })
	reqs := make([]driver.RenewRequest, len(batch))
	timeout := maxStatementTimeout
	before := k.clock.Now()
	for i, t := range batch {
		ttl, _ := t.nextTTL(before)
		reqs[i] = driver.RenewRequest{Name: t.name, Acq: t.acq, Version: t.token, TTL: ttl + t.lockDelay, Holds: max(t.leaseCount(), 1), Shared: t.together()}
		timeout = min(timeout, t.timeout)
	}
	ctx, cancel := context.WithTimeout(k.ctx, timeout)
	defer cancel()

	res, err := k.mode.Renew(ctx, reqs, wait)
	if err != nil {
		k.noteFailures(batch, err, false)
		return
	}
	if res.Now != 0 { // else no session has answered
		if jump, ok := k.jumps.Observe(before, k.clock.Now(), res.Now); ok {
			k.log.clockJump(ClockJumpEvent{Jump: jump})
		}
	}
	for i, t := range batch {
		if res.Errs != nil && res.Errs[i] != nil {
			k.noteFailures([]*term{t}, res.Errs[i], true)
		} else {
			k.noteResult(t, before, res.Status[i], res.Why)
		}
	}
}

// noteResult acts on the result of one renewal. before was read before the renewal was
// sent; why explains the status.
func (k *keeper) noteResult(t *term, before time.Duration, status driver.RenewStatus, why error) {
	switch status {
	case driver.Renewed:
		ttl, atLimit := t.nextTTL(before)
		t.renewed(before, before+clock.Trust(ttl), atLimit)
		due := before + k.mode.renewInterval(t.ttl/3)
		if !k.isRenewed(atLimit) {
			due = never
		}
		k.reschedule(t, func(r *renewal) { *r = renewal{due: due} })
		k.log.renewed(t, k.clock.Now()-before)
	case driver.Busy:
		k.reschedule(t, func(r *renewal) {
			r.renewing, r.isolated, r.due = false, true, k.clock.Now()
			if k.isolated >= maxIsolated { // it is asked for in batches until there is room
				r.failures++
				r.due += k.retryPause(t.ttl, r.failures)
			}
		})
	case driver.Revoked:
		t.lose(LostRevoked, nil)
	case driver.Ended:
		t.lose(LostSession, nil)
	default:
		if t.isCommitting() { // the reply to the commit may be under way
			k.reschedule(t, func(r *renewal) { *r = renewal{due: k.clock.Now() + commitPause} })
			return
		}
		t.lose(LostTaken, why)
	}
}

// commitPause is when to renew again a term that UnlockInTx is committing the end of.
const commitPause = 100 * time.Millisecond

// reschedule changes the renewal of a term, unless the term was dropped.
func (k *keeper) reschedule(t *term, change func(*renewal)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := k.terms[t]; r != nil {
		change(r)
		k.wakeBy(r.due)
	}
}

// noteFailures schedules the retry of failed renewals: in isolation if others of the batch
// succeeded. Otherwise the next batch skips rows that are still locked.
func (k *keeper) noteFailures(batch []*term, err error, isolated bool) {
	if k.ctx.Err() != nil {
		return
	}
	reason := LostUnreachable
	if errors.Is(err, driver.ErrNoConnection) {
		reason = LostPoolExhausted
	}
	for _, t := range batch {
		k.reschedule(t, func(r *renewal) {
			r.renewing, r.isolated = false, isolated
			r.due = k.clock.Now() + k.retryPause(t.ttl, r.failures)
			r.failures++
		})
		if t.noteFailure(reason, err) {
			k.log.jeopardy(JeopardyEvent{LeaseInfo: t.info(), Err: err, Remaining: t.remaining()})
		}
	}
}

// retryPause returns how long to wait after the given number of failures. The first retry
// is immediate, because the connection may just have been dead. Later pauses grow up to a
// thirtieth of the TTL, a second at most: a fail-over must not be noticed later than that.
func (k *keeper) retryPause(ttl time.Duration, failures int) time.Duration {
	if failures == 0 {
		return 0
	}
	pause := min(10*time.Millisecond<<min(failures, 10), ttl/30, maxRetryPause)
	return pause/2 + k.cfg.spread(pause/2)
}

// idleAfter is for how long no term must be held, at least and up to twice that, before
// the mode closes what is idle.
const idleAfter = time.Second

// noteUse notes that the mode was used without a term to renew.
func (k *keeper) noteUse() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.terms) == 0 {
		k.planIdle()
	}
}

// planIdle schedules the closing of what is idle; the caller holds mu.
func (k *keeper) planIdle() {
	if k.idleAt != never { // do not read the clock each time: that costs too much
		k.used = true
		return
	}
	k.used = false
	k.idleAt = k.clock.Now() + idleAfter
	k.wakeBy(k.idleAt)
}

// takeIdle reports whether no term was held for long enough; the caller holds mu.
func (k *keeper) takeIdle(now time.Duration) bool {
	switch {
	case len(k.terms) > 0:
		k.idleAt = never
	case k.idleAt <= now && k.used:
		k.used = false
		k.idleAt = now + idleAfter
	case k.idleAt <= now:
		k.idleAt = never
		return true
	}
	k.wakeAt = min(k.wakeAt, k.idleAt)
	return false
}
