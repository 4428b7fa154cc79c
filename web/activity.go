package web

import (
	"slices"
	"sync"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/monitor"
)

// Activity collects what happens to the leases of the Lockers of this process, for
// [Options.Activity]. Give its hooks to the Lockers. It is safe for concurrent use.
type Activity struct {
	mu        sync.Mutex
	seconds   [rateSeconds + 2]second // a ring
	losses    []monitor.Loss          // the newest first
	lost      int
	jeopardy  int
	took      int
	waitedSum time.Duration
}

// rateSeconds is over how many seconds the rates are averaged.
const rateSeconds = 10

// second counts what happened in one second of the epoch.
type second struct {
	at                int64
	grants, handOvers int
}

// NewActivity returns an Activity that has seen nothing.
func NewActivity() *Activity { return &Activity{} }

// Hooks returns hooks for a Locker. They call those of others, which may be the zero value.
func (a *Activity) Hooks(others sqllock.Hooks) sqllock.Hooks {
	hooks := others
	hooks.Acquired = both(a.acquired, others.Acquired)
	hooks.HandedOver = both(a.handedOver, others.HandedOver)
	hooks.Jeopardy = both(a.inJeopardy, others.Jeopardy)
	hooks.Lost = both(a.lostLease, others.Lost)
	hooks.Crashed = both(a.crashed, others.Crashed)
	return hooks
}

func both[E any](first, second func(E)) func(E) {
	if second == nil {
		return first
	}
	return func(ev E) {
		first(ev)
		second(ev)
	}
}

func (a *Activity) acquired(ev sqllock.AcquiredEvent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.now().grants++
	a.took++
	a.waitedSum += ev.Waited
}

func (a *Activity) handedOver(ev sqllock.HandedOverEvent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.now().handOvers += ev.Waiters
}

func (a *Activity) inJeopardy(sqllock.JeopardyEvent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.jeopardy++
}

func (a *Activity) lostLease(ev sqllock.LostEvent) {
	a.add(monitor.Loss{At: time.Now(), Name: ev.Name, Holder: "this process", Token: ev.Token, What: ev.Err.Reason.String()})
}

func (a *Activity) crashed(ev sqllock.CrashedEvent) {
	a.add(monitor.Loss{At: ev.Expired, Name: ev.Name, Holder: ev.Label, Token: ev.Token, What: "its lease expired and was ended"})
}

func (a *Activity) add(l monitor.Loss) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lost++
	a.losses = slices.Insert(a.losses, 0, l)
	a.losses = a.losses[:min(len(a.losses), monitor.MaxLosses)]
}

// now returns the counters of this second. The caller holds mu.
func (a *Activity) now() *second {
	at := time.Now().Unix()
	s := &a.seconds[at%int64(len(a.seconds))]
	if s.at != at {
		*s = second{at: at}
	}
	return s
}

// processActivity is what a page shows of an Activity.
type processActivity struct {
	Grants, HandOvers float64 // per second
	Waited            time.Duration
	Jeopardy, Lost    int
	Losses            []monitor.Loss
}

// read returns what is known; the rates are those of the last whole seconds.
func (a *Activity) read(now time.Time) *processActivity {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := &processActivity{Jeopardy: a.jeopardy, Lost: a.lost, Losses: slices.Clone(a.losses)}
	for _, s := range a.seconds {
		if ago := now.Unix() - s.at; ago > 0 && ago <= rateSeconds {
			p.Grants += float64(s.grants) / rateSeconds
			p.HandOvers += float64(s.handOvers) / rateSeconds
		}
	}
	if a.took > 0 {
		p.Waited = round(a.waitedSum / time.Duration(a.took))
	}
	return p
}
