package schedule

import (
	"math/rand/v2"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// style is how often what goes wrong in a schedule, in parts of a thousand.
type style struct {
	faults  int // calls with a fault
	unheard int // waiters that are not told of their turn
	busy    int // renewals that find their rows locked
	sleeps  int // steps of a caller whose machine sleeps meanwhile
}

// styles are drawn from. The first is that of a quiet day: no lease may be lost.
var styles = []style{
	{busy: 20},
	{faults: 30, unheard: 100, busy: 10},
	{faults: 100, unheard: 200, busy: 30, sleeps: 20},
	{faults: 300, unheard: 500, busy: 100, sleeps: 50},
}

func (s *style) isQuiet() bool { return s.faults == 0 && s.sleeps == 0 }

// fault is what a call is like.
type fault struct {
	before, after time.Duration // what the request and the reply take
	err           error         // the request fails before its effect
	lost          bool          // the reply is lost
	some          int           // then the effect is that on so many requests
	arrives       bool          // the request has its effect although its caller leaves before
	late          time.Duration // then: how long after that
}

// rolls reports whether something happens that happens in so many parts of a thousand.
func (d *database) rolls(perMille int) bool {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	return d.draws(perMille)
}

// draws is rolls; the caller holds mu.
func (d *database) draws(perMille int) bool { return !d.w.healed && d.rnd.IntN(1000) < perMille }

// takes is how long a part of a call takes as a rule.
func (d *database) takes() time.Duration {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	return d.lasts()
}

// lasts is takes; the caller holds mu.
func (d *database) lasts() time.Duration {
	return between(d.rnd, 10*time.Microsecond, 2*time.Millisecond)
}

func between(rnd *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(rnd.Int64N(int64(most-least)))
}

// cases is how many kinds of faults there are, some of them more than once.
const cases = 16

// meets counts a fault of a kind of calls; the caller holds mu.
func (w *world) meets(kind string, which int) {
	if w.met[kind] == nil {
		w.met[kind] = new([cases]int)
	}
	w.met[kind][which]++
}

// fault draws what a call of n requests is like.
func (d *database) fault(kind string, n int) fault {
	f := fault{before: d.takes(), after: d.takes()}
	if !d.rolls(d.w.style.faults) {
		return f
	}
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	rnd, ttl := d.rnd, d.w.ttl
	d.w.faults++
	f.arrives, f.late = rnd.IntN(2) == 0, between(rnd, time.Millisecond, ttl)
	f.some = n
	if rnd.IntN(3) == 0 {
		f.some = rnd.IntN(n + 1)
	}
	which := rnd.IntN(cases)
	d.w.meets(kind, which)
	switch which {
	case 0, 1:
		f.err, f.late = errAgain, 0
	case 2:
		f.err, f.late = errDown, 0
	case 3:
		f.err, f.late = driver.ErrNoConnection, 0
	case 4:
		f.err, f.late = errDenied, 0
	case 5:
		f.err, f.late = errBroken, 0
	case 6:
		f.err = errBroken
	case 7, 8, 9:
		f.lost = true
	case 10:
		f.before = between(rnd, 20*time.Millisecond, 200*time.Millisecond)
	case 11:
		f.after = between(rnd, 20*time.Millisecond, 200*time.Millisecond)
	case 12:
		f.before = between(rnd, ttl/3, ttl)
	case 13:
		f.after = between(rnd, ttl/3, ttl)
	case 14:
		f.before = between(rnd, ttl, 3*ttl)
	case 15:
		f.after = between(rnd, ttl, 3*ttl)
	}
	return f
}
