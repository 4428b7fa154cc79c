package sqllock

import (
	"cmp"
	"context"
	"errors"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/clock"
)

// keeper renews the leases of a Locker and ends those whose deadline passes. It
// has one goroutine, and one more for each renewal that is under way, however
// many leases there are.
type keeper struct {
	mode  mode
	clock clock.Clock
	cfg   *config
	log   *events
	jumps clock.JumpDetector

	mu       sync.Mutex
	terms    map[*term]*renewal
	wakeAt   time.Duration // when to look again; never: at the next wake
	idleAt   time.Duration // when the mode may rest; never: it does
	used     bool          // the mode was used since that was planned
	sending  map[int]bool  // groups of which a batch is under way
	isolated int           // renewals of single leases under way
	empty    chan struct{} // closed when nothing is kept, if somebody asked

	wake   chan struct{}
	ctx    context.Context // ends when the keeper is to stop
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// upkeep is what the keeper knows of one hold.
type renewal struct {
	due      time.Duration // when to renew next
	failures int           // since the last success
	renewing bool
	isolated bool // somebody has locked its row: renew it by itself
}

const (
	// maxNap bounds how long the keeper sleeps while something is kept. Timers
	// stop during suspend, the clock does not: Done closes this late at most.
	maxKeeperSleep = 50 * time.Millisecond
	// maxBatch is how many leases one statement renews at most.
	maxBatch = 10_000
	// maxLone is how many rows that somebody has locked are waited for at once.
	maxIsolated = 4

	never = time.Duration(1<<63 - 1)
)

func newKeeper(m mode, c clock.Clock, cfg *config, e *events) *keeper {
	k := &keeper{
		mode: m, clock: c, cfg: cfg, log: e,
		terms: make(map[*term]*renewal), sending: make(map[int]bool),
		wakeAt: never,
		idleAt: never,
		wake:   make(chan struct{}, 1),
	}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	k.wg.Go(k.run)
	return k
}

// keep renews h from now on. It reports false if the keeper was stopped.
func (k *keeper) keep(t *term) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ctx.Err() != nil {
		return false
	}
	r := &t.renewal
	*r = renewal{due: never}
	if !t.isAtLimit() {
		r.due = t.granted + k.mode.renewInterval((time.Duration(t.deadline.Load())-t.granted)/3)
	}
	k.terms[t] = r
	k.wakeBy(r.due)
	return true
}

// drop stops renewing h. A renewal that is under way may still extend its row.
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

// lookAt makes the keeper look at t at the latest; the caller holds mu.
func (k *keeper) wakeBy(t time.Duration) {
	if t >= k.wakeAt {
		return
	}
	k.wakeAt = t
	wake(k.wake)
}

// holds returns what is kept now.
func (k *keeper) all() []*term {
	k.mu.Lock()
	defer k.mu.Unlock()
	hs := make([]*term, 0, len(k.terms))
	for t := range k.terms {
		hs = append(hs, t)
	}
	return hs
}

// drained returns a channel that is closed as soon as nothing is kept.
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

// close stops the keeper and joins it. What is kept is not renewed any more.
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

// nap returns how long the keeper may sleep if nobody wakes it.
func (k *keeper) sleepTime() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.wakeAt == never {
		return time.Hour
	}
	return max(min(k.wakeAt-k.clock.Now(), maxKeeperSleep), 0)
}

// look does what is due.
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

	for _, t := range expired {
		t.expire()
		k.drop(t) // also if it was over before it was kept
	}
	for group, batch := range batches {
		k.wg.Go(func() {
			for chunk := range slices.Chunk(batch, maxBatch) {
				k.renew(chunk, false)
			}
			k.renewalDone(func() { delete(k.sending, group) })
		})
	}
	for _, t := range isolated {
		k.wg.Go(func() {
			k.renew([]*term{t}, true)
			k.renewalDone(func() { k.isolated-- })
		})
	}
	if idle && !k.mode.CloseIdle() {
		k.noteUse()
	}
}

// takeOver returns the holds whose deadline has passed; the caller holds mu.
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

// takeDue returns the leases to renew together, by group, and those to renew by
// themselves; the caller holds mu.
//
// One lease that is due takes along all of its group that would be due within a
// sixth of their TTL: so after a while all leases of one TTL are renewed together,
// every third of it.
func (k *keeper) takeDue(now time.Duration) (batches map[int][]*term, isolated []*term) {
	due := make(map[int]bool)
	for t, r := range k.terms {
		if !r.isolated && !r.renewing && r.due <= now {
			due[ttlGroup(t.ttl)] = true
		}
	}
	batches = make(map[int][]*term)
	for t, r := range k.terms {
		g := ttlGroup(t.ttl)
		switch {
		case r.renewing:
		case r.due > now && (r.isolated || !due[g] || r.due > now+t.ttl/6):
			k.wakeAt = min(k.wakeAt, r.due)
		case r.isolated && k.isolated < maxIsolated:
			k.isolated++
			r.renewing = true
			isolated = append(isolated, t)
		case !r.isolated && !k.sending[g]:
			r.renewing = true
			batches[g] = append(batches[g], t)
		}
		// What is due and not taken has to wait for a renewal to come back.
	}
	for g := range batches {
		k.sending[g] = true
	}
	return batches, isolated
}

// group puts leases together whose TTLs, and so the time-outs of their
// statements, differ by a factor of two at most: a statement that hangs for as
// long as leases of an hour can wait must not hold up those of a second. From
// where the time-out does not grow any more, all are one group.
func ttlGroup(ttl time.Duration) int { return bits.Len64(uint64(min(ttl, 3*maxStatementTimeout))) }

// sent notes that a renewal came back, and looks what waited for it.
func (k *keeper) renewalDone(note func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	note()
	k.wakeBy(k.clock.Now())
}

// renew sends one renewal and gives each hold its result. With wait it waits for
// rows that somebody has locked.
func (k *keeper) renew(batch []*term, wait bool) {
	slices.SortFunc(batch, func(a, b *term) int { return cmp.Compare(a.name, b.name) })
	reqs := make([]driver.RenewRequest, len(batch))
	timeout := maxStatementTimeout
	before := k.clock.Now()
	for i, t := range batch {
		ttl, _ := t.nextTTL(before)
		reqs[i] = driver.RenewRequest{Name: t.name, Acq: t.acq, Version: t.token, TTL: ttl + t.lockDelay, Holds: max(t.leaseCount(), 1), Shared: t.shared}
		timeout = min(timeout, t.timeout)
	}
	ctx, cancel := context.WithTimeout(k.ctx, timeout)
	defer cancel()

	res, err := k.mode.Renew(ctx, reqs, wait, timeout/2)
	if err != nil {
		k.noteFailures(batch, err, false)
		return
	}
	if res.Now != 0 { // else nobody answered
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

// settle acts on what the database said about one lease, and why; before was read before
// it was asked.
func (k *keeper) noteResult(t *term, before time.Duration, status driver.RenewStatus, why error) {
	switch status {
	case driver.Renewed:
		ttl, atLimit := t.nextTTL(before)
		t.extend(before+clock.Trust(ttl), atLimit)
		due := before + k.mode.renewInterval(t.ttl/3)
		if atLimit {
			due = never
		}
		k.reschedule(t, func(r *renewal) { *r = renewal{due: due} })
	case driver.Busy:
		k.reschedule(t, func(r *renewal) { r.renewing, r.isolated, r.due = false, true, k.clock.Now() })
	case driver.Revoked:
		t.lose(LostRevoked, nil)
	case driver.Ended:
		t.lose(LostSession, nil)
	default:
		t.lose(LostTaken, why)
	}
}

// plan changes what is to be done about a hold, unless it was dropped.
func (k *keeper) reschedule(t *term, change func(*renewal)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := k.terms[t]; r != nil {
		change(r)
		k.wakeBy(r.due)
	}
}

// failed plans the retry of a renewal that did not get through: alone, if others in its
// batch did. If not, the next batch passes over a row that is locked still.
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
			r.due = k.clock.Now() + retryPause(t.ttl, r.failures)
			r.failures++
		})
		if t.noteFailure(reason, err) {
			k.log.jeopardy(JeopardyEvent{LeaseInfo: t.info(), Err: err, Remaining: t.remaining()})
		}
	}
}

// retryPause is how long to wait before the renewal after the given number of
// failures: at once after the first, which often was a dead connection, then
// growing, to a thirtieth of the TTL at most.
func retryPause(ttl time.Duration, failures int) time.Duration {
	if failures == 0 {
		return 0
	}
	pause := min(10*time.Millisecond<<min(failures, 10), ttl/30)
	return pause/2 + rand.N(pause/2)
}

// restAfter is for how long, and up to twice that, nothing must be held before the
// mode may rest.
const idleAfter = time.Second

// stir notes that the mode was used, without a lease to keep for it.
func (k *keeper) noteUse() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.terms) == 0 {
		k.planIdle()
	}
}

// planRest lets the mode rest in a while; the caller holds mu.
func (k *keeper) planIdle() {
	if k.idleAt != never { // to read the clock each time would show
		k.used = true
		return
	}
	k.used = false
	k.idleAt = k.clock.Now() + idleAfter
	k.wakeBy(k.idleAt)
}

// takeRest reports that nothing has been kept for long enough; the caller holds
// mu.
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
