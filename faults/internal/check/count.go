package check

import (
	"maps"
	"slices"
	"time"

	"github.com/sqllock/sqllock/faults/internal/history"
)

// count counts the events.
func (r *run) count() Counts {
	c := Counts{Acquisitions: len(r.leases)}
	for _, f := range r.faults {
		c.Faults += f.injections
	}
	for _, leases := range r.names {
		for i, l := range leases {
			if l.done != nil && l.done.Lost {
				c.Lost++
			}
			if i == 0 || leases[i-1].proc == l.proc {
				continue
			}
			c.HandOvers++
			if r.anyFault(l.ret-int64(r.rules.TTL), l.ret) {
				c.Recovering++
			}
			if r.anyFault(l.ret, l.ret+1) {
				c.Active++
			}
		}
	}
	for _, all := range r.waiters("wait") {
		c.Inversions += inversions(all)
	}
	r.countPermits(&c)
	for _, e := range r.events {
		switch {
		case e.Op != history.Kept:
		case e.Lost:
			c.KeptLost++
		default:
			c.Kept++
		}
	}
	for _, o := range r.outages() {
		if o.to != never {
			c.LongestOutage = max(c.LongestOutage, time.Duration(o.to-o.from))
		}
	}
	return c
}

// countPermits counts permits by what their holders saw.
func (r *run) countPermits(c *Counts) {
	for _, leases := range r.names {
		eachPermit(leases, (*lease).believed, func(_ *lease, held int) {
			c.Permits++
			if held > 1 {
				c.Beside++
			}
			if held >= r.rules.Permits {
				c.Full++
			}
		})
	}
}

// What a cell with semaphores must have acquired at least.
const (
	leastPermits = 20
	leastBeside  = 5
)

// Few reports that clients have acquired too few permits, or too few beside others.
func Few(events []history.Event, rules Rules) []Failure {
	r := build(events, rules)
	var c Counts
	r.countPermits(&c)
	if c.Permits >= leastPermits && c.Beside >= leastBeside {
		return nil
	}
	return []Failure{fail(Permits, r.last, "%d permits were acquired, %d of them while another was held: there must be %d, and %d",
		c.Permits, c.Beside, leastPermits, leastBeside)}
}

// TooLittle reports what clients have done less often than they were to.
func TooLittle(events []history.Event, rules Rules) (found []Failure) {
	r := build(events, rules)
	done := r.done()
	for _, what := range slices.Sorted(maps.Keys(rules.Least)) {
		switch n, least := done[what], rules.Least[what]; {
		case n >= least:
		case what == history.Rows:
			found = append(found, fail(Rows, r.last, "only %d snapshots of the tables: there must be %d", n, least))
		default:
			found = append(found, fail(Work, r.last, "%s: %d times, and there must be %d", what, n, least))
		}
	}
	return found
}

// done counts what clients have done: what they were granted, by its kind, and other calls that were
// not in vain. A call for several names counts once for each.
func (r *run) done() map[string]int {
	done := make(map[string]int)
	for _, l := range r.leases {
		done[l.kindOf()]++
	}
	for i := range r.events {
		switch e := &r.events[i]; {
		case e.Op == history.Rows, e.Op == history.Kept && !e.Lost:
			done[e.Op]++
		case !e.Ret || e.Err != "":
		case e.Op == history.Unlock, e.Op == history.Inspect, e.Op == history.Enter, e.Op == history.Leave:
			done[e.Op]++
		case e.OK && (e.Op == history.Plain || e.Op == history.Fenced || e.Op == history.Guarded):
			done[e.Op]++
		}
	}
	return done
}

// kindOf returns the kind of an acquisition, as package history names it.
func (l *lease) kindOf() string {
	switch {
	case l.what != "":
		return l.what
	case l.permit:
		return history.Permit
	case l.kind == "all":
		return history.Together
	case l.shared:
		return history.Shared
	}
	return history.Exclusive
}

// inversions counts the writers that were served before a writer that had come clearly
// earlier.
func inversions(all []wait) int {
	const clearly = 100e6
	n := 0
	for i, a := range all { // in the order of their calls
		if a.Shared || !a.granted {
			continue
		}
		for _, b := range all[i+1:] {
			if b.T > a.ret {
				break
			}
			if !b.Shared && b.granted && b.T > a.T+clearly && b.ret < a.ret {
				n++
			}
		}
	}
	return n
}
