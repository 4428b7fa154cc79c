package sqllock

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// listener learns from pushes of the database which claims are granted. It takes one
// connection of the pool, from the first waiter on until no caller has waited for a while.
// It is guarded by claims.mu.
type listener struct {
	noPush    bool // the database cannot push, or the pool is too small
	open      bool
	listening bool
	lastUsed  time.Duration // when a caller last waited
	cancel    context.CancelFunc
}

const (
	// keepOpenFor is how long the listener stays open when no caller waits.
	keepOpenFor = 10 * time.Second
	// maxListenPause is the longest pause between two tries to listen.
	maxListenPause = 5 * time.Second
)

// start opens the listener, unless it is open; the caller holds mu.
func (l *listener) start(cs *claims, now time.Duration) {
	l.lastUsed = now
	if l.noPush || l.open {
		return
	}
	ctx, cancel := context.WithCancel(cs.locker.base)
	l.open, l.cancel = true, cancel
	cs.wg.Go(func() {
		defer cancel()
		cs.listen(ctx)
	})
}

// keepOpen reports whether the listener stays open while no caller waits, and closes it if
// not; the caller holds mu.
func (l *listener) keepOpen(now time.Duration) bool {
	if !l.open {
		return false
	}
	if now-l.lastUsed < keepOpenFor {
		return true
	}
	l.cancel()
	l.open, l.listening = false, false
	return false
}

// listen goes on until ctx ends or the database turns out to be unable to push. Meanwhile,
// and while the connection is lost, names are polled.
func (cs *claims) listen(ctx context.Context) {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, maxListenPause) {
		began := cs.locker.clock.Now()
		err := cs.locker.mode.listener.Listen(ctx, func(acq driver.ID) { cs.pushed(ctx, acq) })
		if !cs.listenEnded(ctx, err) || sleep(ctx, pause) != nil {
			return
		}
		if cs.locker.clock.Now()-began > maxListenPause {
			pause = 100 * time.Millisecond
		}
	}
}

// pushed reads the row of a name that the database seems to have granted to acq. The first
// call, with the zero ID, says that pushes begin: what was granted before is polled once.
func (cs *claims) pushed(ctx context.Context, acq driver.ID) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	now := cs.locker.clock.Now()
	if acq == (driver.ID{}) {
		cs.poll.lookSoon(cs.locker.cfg.pollMin(), now)
		cs.poll.once = true
		cs.listener.listening = true
	}
	switch c := cs.byAcq[acq]; {
	case c == nil:
	case c.req.Together(): // the row does not say who holds it together
		cs.requestAnew(c, now)
	default:
		if cs.poll.pushed == nil {
			cs.poll.pushed = make(map[string]struct{})
		}
		cs.poll.pushed[c.req.Name] = struct{}{}
	}
	cs.wakeUp()
}

// listenEnded notes that pushes have ended, and why. It reports whether to listen again.
func (cs *claims) listenEnded(ctx context.Context, err error) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if ctx.Err() != nil {
		return false
	}
	cs.listener.listening = false
	cs.poll.lookSoon(cs.locker.cfg.pollMin(), cs.locker.clock.Now())
	cs.wakeUp()
	if !errors.Is(err, driver.ErrUnsupported) {
		cs.locker.events.note(slog.LevelDebug, "sqllock: the database does not push grants to waiters, it is polled instead", "error", err)
		return true
	}
	cs.locker.events.note(slog.LevelDebug, "sqllock: the database cannot push grants to waiters, from now on it is polled instead", "error", err)
	cs.listener.noPush, cs.listener.open = true, false
	return false
}

// poll reads the rows of all names that this Locker has claims on, with one statement,
// while the database does not push. The pauses grow while nothing changes, and become shorter
// while names change hands, so that they come to be about as long as a term. It is guarded by
// claims.mu.
type poll struct {
	pause  time.Duration
	next   time.Duration
	busy   bool
	once   bool                // poll once although the database pushes
	pushed map[string]struct{} // names for which the database has pushed
}

// pollMin is the pause before the first poll.
func (c *config) pollMin() time.Duration { return c.retryMin / 2 }

const (
	// shortestPoll is the part of pollMin that a pause becomes at least while names change hands.
	shortestPoll = 10
	// pollShare bounds the part of the time in which polls are under way.
	pollShare = 4
)

// lookSoon makes the next poll come soon; the caller holds mu.
func (p *poll) lookSoon(pause, now time.Duration) {
	if p.pause == 0 || p.pause > pause {
		p.pause = pause
	}
	p.next = min(p.next, now+pause)
}

// adapt sets the pause after a poll that took some time; the caller holds mu.
func (p *poll) adapt(c *config, changed bool, took time.Duration) {
	if changed {
		p.pause = max(min(p.pause, c.pollMin())/2, c.pollMin()/shortestPoll)
	} else {
		p.pause = min(2*p.pause, c.retryMax)
	}
	p.pause = min(max(p.pause, pollShare*took), max(p.pause, c.pollMin()))
}

// runDue polls if that is due, and returns when to do so again; the caller holds mu.
func (p *poll) runDue(cs *claims, now time.Duration) (at time.Duration) {
	switch {
	case p.busy:
		return never
	case len(p.pushed) > 0:
		names := slices.Collect(maps.Keys(p.pushed))
		p.pushed = nil
		p.start(cs, func() { cs.pollNames(names) })
		return never
	case cs.listener.listening && !p.once:
		return never
	case p.next > now:
		return p.next
	}
	names := cs.polledNames()
	p.next = now + p.pause
	if len(names) == 0 {
		return p.next
	}
	p.once = false
	p.start(cs, func() {
		changed := cs.pollNames(names)
		cs.mu.Lock()
		defer cs.mu.Unlock()
		after := cs.locker.clock.Now()
		p.adapt(&cs.locker.cfg, changed, after-now)
		p.next = after + p.pause
	})
	return never
}

// start polls on its own goroutine; the caller holds mu.
func (p *poll) start(cs *claims, look func()) {
	p.busy = true
	cs.locker.inflight.add()
	cs.wg.Go(func() {
		defer cs.locker.inflight.done()
		look()
		cs.mu.Lock()
		defer cs.mu.Unlock()
		p.busy = false
		cs.wakeUp()
	})
}

// polledNames returns the names to poll; the caller holds mu. For names that this Locker
// holds itself its own release tells.
func (cs *claims) polledNames() (names []string) {
	for name, claims := range cs.byName {
		knownHeld := func(c *claim) bool { return c.knownHeld } // else a request is in flight
		if !cs.locker.queue.heldExclusively(name) && slices.ContainsFunc(claims, knownHeld) {
			names = append(names, name)
		}
	}
	return names
}

// pollNames reads the rows of names and acts on them. It reports whether a row has
// changed.
func (cs *claims) pollNames(names []string) (changed bool) {
	ctx, cancel := context.WithTimeout(cs.locker.base, cs.locker.cfg.timeout(cs.locker.cfg.ttl))
	defer cancel()
	before := cs.locker.clock.Now()
	rows, err := cs.locker.mode.readRows(ctx, names)
	if err != nil { // the next look may get through
		return false
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for i := range rows {
		changed = cs.noteRow(&rows[i], before) || changed
	}
	return changed
}

// noteRow acts on the row of a name: the row may name one of the waiters, or no holder. It
// reports whether the row has changed since it was read last; the caller holds mu.
func (cs *claims) noteRow(row *driver.Row, before time.Duration) (changed bool) {
	claims := cs.byName[row.Name]
	if len(claims) == 0 {
		return false
	}
	now := rowVersion{row.Holder.Version, row.Together(), row.Permits}
	if changed = claims[0].row != now; changed {
		for _, c := range claims {
			c.row = now
		}
	}
	left := timeLeft(row.Holder.Until, row.Now)
	if c := cs.byAcq[row.Holder.Acq]; c != nil && left > 0 {
		if c.unknown { // it has to be confirmed
			cs.schedule(c, cs.locker.clock.Now())
			return true
		}
		cs.answer(c, reply{Before: before, After: cs.locker.clock.Now(), Result: driver.AcquireResult{
			Granted: true, Found: true, Version: row.Holder.Version, Remaining: left, Now: row.Now,
		}})
		return true
	}
	if row.Held() && left > 0 && row.Together() == 0 {
		return changed
	}
	if row.Together() == 0 || left <= 0 {
		kept := timeLeft(row.Gate, row.Now)
		if at := cs.locker.clock.Now() + kept; at < claims[0].due {
			cs.schedule(claims[0], at)
		}
		return changed
	}
	if changed {
		cs.requestAgain(claims, row)
	}
	return changed
}

// requestAgain sends requests for those waiters who may be among those who hold a name together. Of
// those who want a permit that can be the first only; the caller holds mu.
func (cs *claims) requestAgain(claims []*claim, row *driver.Row) {
	first := 0
	for _, c := range claims {
		switch {
		case c.req.Permits != 0 && row.PermitsHeld > 0 && first < row.Permits:
			first++
			cs.requestAnew(c, cs.locker.clock.Now())
		case c.req.Shared && row.Readers > 0:
			cs.requestAnew(c, cs.locker.clock.Now())
		}
	}
}

// rowVersion tells states of a row apart.
type rowVersion struct {
	version  int64
	together int // how many hold it together
	permits  int
}
