package sqllock

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// poll looks at all names that waiters stand in line for, with one statement, while
// the database does not tell whose turn it is. The pauses grow while nothing
// changes. Guarded by tickets.mu.
type poll struct {
	pause time.Duration
	next  time.Duration
	busy  bool
	last  bool                // one look is wanted although the database tells
	told  map[string]struct{} // names of which the database has told something
}

// pollMin is the pause between two looks while names change hands.
func (c *config) pollMin() time.Duration { return c.retryMin / 2 }

// hurry makes the next look come soon; the caller holds mu.
func (p *poll) hurry(pause, now time.Duration) {
	p.pause = pause
	p.next = min(p.next, now+pause)
}

// look looks if it is time to, and returns when to do so again; the caller holds mu.
func (p *poll) look(t *tickets, now time.Duration) (at time.Duration) {
	switch {
	case p.busy:
		return never
	case len(p.told) > 0:
		names := slices.Collect(maps.Keys(p.told))
		p.told = nil
		p.start(t, func() { t.peek(names) })
		return never
	case t.ears.hearing && !p.last:
		return never
	case p.next > now:
		return p.next
	}
	names := t.awaited()
	p.next = now + p.pause
	if len(names) == 0 {
		return p.next
	}
	p.last = false
	p.start(t, func() {
		changed := t.peek(names)
		t.mu.Lock()
		defer t.mu.Unlock()
		p.pause = min(2*p.pause, t.l.cfg.retryMax)
		if changed {
			p.pause = t.l.cfg.pollMin()
		}
		p.next = t.l.clock.Now() + p.pause
	})
	return never
}

// start looks on a goroutine of its own; the caller holds mu.
func (p *poll) start(t *tickets, look func()) {
	p.busy = true
	t.l.gate.resume()
	t.wg.Go(func() {
		defer t.l.gate.leave()
		look()
		t.mu.Lock()
		defer t.mu.Unlock()
		p.busy = false
		t.kick()
	})
}

// awaited returns the names to look at; the caller holds mu. Of those that this
// Locker holds itself its own release tells.
func (t *tickets) awaited() (names []string) {
	for name, line := range t.names {
		told := func(x *ticket) bool { return x.told } // else it is asked for just now
		if !t.l.queue.alone(name) && slices.ContainsFunc(line, told) {
			names = append(names, name)
		}
	}
	return names
}

// peek looks at names and acts on what it sees. It reports whether anything has
// changed.
func (t *tickets) peek(names []string) (changed bool) {
	ctx, cancel := context.WithTimeout(t.l.base, t.l.cfg.timeout(t.l.cfg.ttl))
	defer cancel()
	before := t.l.clock.Now()
	rows, err := t.mode.Look(ctx, names)
	if err != nil { // the next look may get through
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range rows {
		changed = t.seen(&rows[i], before) || changed
	}
	return changed
}

// seen acts on the row of a name: it may name one of the waiters, or nobody. It
// reports whether the row has changed since it was looked at last; the caller holds
// mu.
func (t *tickets) seen(row *driver.Row, before time.Duration) (changed bool) {
	line := t.names[row.Name]
	if len(line) == 0 {
		return false
	}
	now := shown{row.Holder.Version, row.Readers}
	if changed = line[0].shown != now; changed {
		for _, x := range line {
			x.shown = now
		}
	}
	left := time.Duration(row.Holder.Until-row.Now) * time.Microsecond
	if x := t.all[row.Holder.Acq]; x != nil && left > 0 {
		if x.unclear { // it has to be confirmed
			t.plan(x, t.l.clock.Now())
			return true
		}
		t.finish(x, reply{Before: before, After: t.l.clock.Now(), Result: driver.GrantResult{
			Granted: true, Found: true, Version: row.Holder.Version, Remaining: left, Now: row.Now,
		}})
		return true
	}
	if row.Held() && left > 0 && row.Readers == 0 {
		return changed
	}
	if row.Readers == 0 || left <= 0 {
		if row.Gate <= row.Now {
			t.plan(line[0], t.l.clock.Now())
		}
		return changed
	}
	for _, x := range line { // they may be among those who share it
		if changed && x.req.Shared {
			t.plan(x, t.l.clock.Now())
		}
	}
	return changed
}

// shown is what tells states of a row apart.
type shown struct {
	version int64
	readers int
}
