package sqllock

import (
	"context"
	"math/bits"
	"slices"
	"sync"
	"time"

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

	mu      sync.Mutex
	kept    map[*hold]*upkeep
	next    time.Duration // when to look again; never: at the next wake
	rest    time.Duration // when the mode may rest; never: it does
	used    bool          // the mode was used since that was planned
	sending map[int]bool  // groups of which a batch is under way
	lone    int           // renewals of single leases under way
	empty   chan struct{} // closed when nothing is kept, if somebody asked

	wake   chan struct{}
	ctx    context.Context // ends when the keeper is to stop
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// upkeep is what the keeper knows of one hold.
type upkeep struct {
	due      time.Duration // when to renew next
	failures int           // since the last success
	renewing bool
	alone    bool // somebody has locked its row: renew it by itself
}

const (
	// maxNap bounds how long the keeper sleeps while something is kept. Timers
	// stop during suspend, the clock does not: Done closes this late at most.
	maxNap = 50 * time.Millisecond
	// maxBatch is how many leases one statement renews at most.
	maxBatch = 10_000
	// maxLone is how many rows that somebody has locked are waited for at once.
	maxLone = 4

	never = time.Duration(1<<63 - 1)
)

func newKeeper(m mode, c clock.Clock, cfg *config, e *events) *keeper {
	k := &keeper{
		mode: m, clock: c, cfg: cfg, log: e,
		kept: make(map[*hold]*upkeep), sending: make(map[int]bool),
		next: never,
		rest: never,
		wake: make(chan struct{}, 1),
	}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	k.wg.Go(k.run)
	return k
}

// keep renews h from now on. It reports false if the keeper was stopped.
func (k *keeper) keep(h *hold) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ctx.Err() != nil {
		return false
	}
	u := &h.upkeep
	*u = upkeep{due: never}
	if !h.final() {
		u.due = h.granted + k.cfg.beat((time.Duration(h.deadline.Load())-h.granted)/3)
	}
	k.kept[h] = u
	k.lookAt(u.due)
	return true
}

// drop stops renewing h. A renewal that is under way may still extend its row.
func (k *keeper) drop(h *hold) {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.kept[h]
	delete(k.kept, h)
	if !ok || len(k.kept) > 0 {
		return
	}
	k.planRest()
	if k.empty != nil {
		close(k.empty)
		k.empty = nil
	}
}

// lookAt makes the keeper look at t at the latest; the caller holds mu.
func (k *keeper) lookAt(t time.Duration) {
	if t >= k.next {
		return
	}
	k.next = t
	rouse(k.wake)
}

// holds returns what is kept now.
func (k *keeper) holds() []*hold {
	k.mu.Lock()
	defer k.mu.Unlock()
	hs := make([]*hold, 0, len(k.kept))
	for h := range k.kept {
		hs = append(hs, h)
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
	if len(k.kept) == 0 {
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
	nap := time.NewTimer(0)
	defer nap.Stop()
	for {
		select {
		case <-nap.C:
		case <-k.wake:
		case <-k.ctx.Done():
			return
		}
		k.look()
		nap.Reset(k.nap())
	}
}

// nap returns how long the keeper may sleep if nobody wakes it.
func (k *keeper) nap() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.next == never {
		return time.Hour
	}
	return max(min(k.next-k.clock.Now(), maxNap), 0)
}

// look does what is due.
func (k *keeper) look() {
	k.mu.Lock()
	now := k.clock.Now()
	if k.next > now {
		k.mu.Unlock()
		return
	}
	k.next = never
	over := k.takeOver(now)
	batches, lone := k.takeDue(now)
	rests := k.takeRest(now)
	k.mu.Unlock()

	for _, h := range over {
		h.expire()
		k.drop(h) // also if it was over before it was kept
	}
	for group, batch := range batches {
		k.wg.Go(func() {
			for chunk := range slices.Chunk(batch, maxBatch) {
				k.renew(chunk, false)
			}
			k.sent(func() { delete(k.sending, group) })
		})
	}
	for _, h := range lone {
		k.wg.Go(func() {
			k.renew([]*hold{h}, true)
			k.sent(func() { k.lone-- })
		})
	}
	if rests && !k.mode.CloseIdle() {
		k.stir()
	}
}

// takeOver returns the holds whose deadline has passed; the caller holds mu.
func (k *keeper) takeOver(now time.Duration) (over []*hold) {
	for h := range k.kept {
		if d := time.Duration(h.deadline.Load()); d <= now {
			over = append(over, h)
		} else {
			k.next = min(k.next, d)
		}
	}
	return over
}

// takeDue returns the leases to renew together, by group, and those to renew by
// themselves; the caller holds mu.
//
// One lease that is due takes along all of its group that would be due within a
// sixth of their TTL: so after a while all leases of one TTL are renewed together,
// every third of it.
func (k *keeper) takeDue(now time.Duration) (batches map[int][]*hold, lone []*hold) {
	due := make(map[int]bool)
	for h, u := range k.kept {
		if !u.alone && !u.renewing && u.due <= now {
			due[group(h.ttl)] = true
		}
	}
	batches = make(map[int][]*hold)
	for h, u := range k.kept {
		g := group(h.ttl)
		switch {
		case u.renewing:
		case u.due > now && (u.alone || !due[g] || u.due > now+h.ttl/6):
			k.next = min(k.next, u.due)
		case u.alone && k.lone < maxLone:
			k.lone++
			u.renewing = true
			lone = append(lone, h)
		case !u.alone && !k.sending[g]:
			u.renewing = true
			batches[g] = append(batches[g], h)
		}
		// What is due and not taken has to wait for a renewal to come back.
	}
	for g := range batches {
		k.sending[g] = true
	}
	return batches, lone
}

// group puts leases together whose TTLs, and so the time-outs of their
// statements, differ by a factor of two at most: a statement that hangs for as
// long as leases of an hour can wait must not hold up those of a second. From
// where the time-out does not grow any more, all are one group.
func group(ttl time.Duration) int { return bits.Len64(uint64(min(ttl, 3*maxStatementTimeout))) }

// sent notes that a renewal came back, and looks what waited for it.
func (k *keeper) sent(note func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	note()
	k.lookAt(k.clock.Now())
}
