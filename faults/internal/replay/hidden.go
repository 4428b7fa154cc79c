package replay

import (
	"slices"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/faults/internal/history"
	"github.com/sqllock/sqllock/internal/claim"
)

// served reports that a Locker has made the step without a request of its own: it has served the
// queue, or has taken claims out of it that nobody wants any more, or it is that of a reaper. It
// does so in a call about the name, one that waits for some name, or one of the reaper.
func (a *trial) served() bool {
	for locker, stores := range a.h.stores {
		advances, forgets, sweeps := false, false, false
		from := a.at
		for _, c := range stores {
			if c.vain || !c.around(a.at, a.to) {
				continue
			}
			from = min(from, c.from)
			switch c.what {
			case history.Acquire:
				forgets = forgets || slices.ContainsFunc(c.calls, func(c *call) bool { return c.Waits })
				advances = advances || c.isAbout(a.n.name)
			case history.Release, history.Withdraw:
				advances = advances || c.isAbout(a.n.name)
			case history.Sweep:
				sweeps = true
			}
		}
		if advances && a.lead(locker, from, a.advance(locker)) || forgets && a.lead(locker, from, a.forget(locker)) ||
			sweeps && a.lead(locker, from, a.sweep(locker)) {
			return true
		}
	}
	return false
}

func (c *stored) isAbout(name string) bool {
	return slices.ContainsFunc(c.calls, func(c *call) bool { return c.Name == name })
}

// advance serves the queue.
func (a *trial) advance(by driver.ID) func(w *world, now int64, d doubt) *world {
	return func(w *world, now int64, d doubt) *world {
		to, _ := a.visit(w, by, now, d, func(v *claim.Visit) bool { v.Advance(); return true })
		return to
	}
}

// orphaned is for how long a claim has waited at least that is taken out of the queue as one that
// nobody wants: three lives of a Locker.
const orphaned = 3_000_000

// forget takes claims of a Locker out of the queue: those of which the step says that they are gone.
func (a *trial) forget(by driver.ID) func(w *world, now int64, d doubt) *world {
	return func(w *world, now int64, d doubt) *world {
		to, _ := a.visit(w, by, now, d, func(v *claim.Visit) bool {
			forgot := false
			for i := range w.claims {
				c := &w.claims[i]
				if c.Locker == by && c.State == claim.Waiting && c.Since <= now-orphaned+resolution && a.after.find(c.Acq) == nil && a.after.row.Acq != c.Acq {
					v.Forget(c.Acq)
					forgot = true
				}
			}
			return forgot
		})
		return to
	}
}

// gone is for how long a Locker has been silent whose claims a reaper deletes.
const gone = 60_000_000

// sweep does what the reaper does.
func (a *trial) sweep(by driver.ID) func(w *world, now int64, d doubt) *world {
	return func(w *world, now int64, d doubt) *world {
		gone := func(locker driver.ID) bool { return a.h.silent(locker, now) > gone }
		to, _ := a.visit(w, by, now, d, func(v *claim.Visit) bool { v.Sweep(gone); return true })
		return to
	}
}
