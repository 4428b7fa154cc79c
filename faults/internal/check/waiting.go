package check

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sqllock/sqllock/faults/internal/history"
)

// wait is a call of Lock.
type wait struct {
	*history.Event       // the call
	ret            int64 // never if it has not returned
	granted        bool
}

// waits looks for names that were granted to no waiter for too long without any fault.
func waits(r *run) []Failure {
	var found []Failure
	byName := r.waiters("wait")
	for _, quiet := range r.quiet() {
		for name, all := range byName {
			found = append(found, r.stuck(name, all, quiet)...)
		}
	}
	if !r.rules.Drained {
		return found
	}
	for _, all := range r.waiters("wait", "all") {
		for _, w := range all {
			if w.ret == never && !r.gone(w.Proc) {
				found = append(found, fail(Waiting, w.T, "%q: %s never returned", w.Name, w.ID))
			}
		}
	}
	return found
}

// cycles looks for calls that were told of a deadlock: no client waits while it holds something,
// but for the calls that lock several names in their order.
func cycles(r *run) []Failure {
	var found []Failure
	for _, e := range r.events {
		if e.Op == history.Lock && e.Ret && e.Cycle {
			found = append(found, fail(Waiting, e.T, "%q: %s: %s", e.Name, e.ID, e.Err))
		}
	}
	return found
}

// span is a time.
type span struct{ from, to int64 }

// opened returns when the first process in each client's place has its Locker, 0 if none has.
func (r *run) opened() (last int64) {
	seen := make(map[string]bool)
	for _, e := range r.events {
		client, _, _ := strings.Cut(e.Proc, ".")
		if e.Op == history.Open && e.Err == "" && !seen[client] {
			seen[client] = true
			last = e.T
		}
	}
	return last
}

// quiet returns the times before, between and after the faults, and with a machine that keeps up, that
// are as long as a waiter may take.
func (r *run) quiet() []span {
	var spans []span
	from := r.opened()
	troubles := slices.Clone(r.busy)
	for _, f := range r.faults {
		troubles = append(troubles, span{f.from, f.to})
	}
	slices.SortFunc(troubles, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	for _, trouble := range troubles {
		if from > 0 && trouble.from-from > int64(r.rules.Grace) {
			spans = append(spans, span{from, trouble.from})
		}
		from = max(from, trouble.to)
	}
	if from > 0 && from < never && r.last-from > int64(r.rules.Grace) {
		spans = append(spans, span{from, r.last})
	}
	return spans
}

// stuck looks for a time as long as the grace in which a client waited for name without a
// break, and in which the name was neither granted nor released.
func (r *run) stuck(name string, all []wait, quiet span) []Failure {
	moves := []int64{quiet.from}
	for _, l := range r.names[name] {
		moves = append(moves, l.ret)
		if l.unlock != never {
			moves = append(moves, l.unlock)
		}
	}
	moves = append(moves, quiet.to)
	slices.Sort(moves)
	for i, from := range moves[:len(moves)-1] {
		to := moves[i+1]
		if from < quiet.from || to > quiet.to || to-from <= int64(r.rules.Grace) {
			continue
		}
		for _, w := range all {
			if w.T <= from && w.ret >= from+int64(r.rules.Grace) && !r.gone(w.Proc) {
				return []Failure{fail(Waiting, to, "%q: %s waited (since %d), and for %.1f s nothing happened from %d on, though all was well",
					name, w.ID, w.T, float64(to-from)/1e9, from)}
			}
		}
	}
	return nil
}

// waiters returns, by name, the calls of some kinds, which wait for as long as it takes: "wait" is
// for one name, "all" for several.
func (r *run) waiters(kinds ...string) map[string][]wait {
	byName := make(map[string][]wait)
	at := make(map[string]int)
	for i := range r.events {
		e := &r.events[i]
		switch {
		case e.Op != history.Lock || !slices.Contains(kinds, e.Reason):
		case !e.Ret:
			at[e.ID] = len(byName[e.Name])
			byName[e.Name] = append(byName[e.Name], wait{Event: e, ret: never})
		default:
			if all := byName[e.Name]; at[e.ID] < len(all) && all[at[e.ID]].ID == e.ID {
				all[at[e.ID]].ret, all[at[e.ID]].granted = e.T, e.Err == ""
			}
		}
	}
	return byName
}

// gone reports that a process was killed.
func (r *run) gone(proc string) bool { return r.killed(proc) != never }
