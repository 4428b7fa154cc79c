package check

import (
	"slices"

	"github.com/sqllock/sqllock/faults/internal/history"
)

// leftovers returns what the clients reported when they ended.
func leftovers(r *run) []Failure {
	var found []Failure
	for _, e := range r.events {
		if e.Op == history.Left {
			found = append(found, fail(Left, e.T, "%s: %s: %s", e.Proc, e.Reason, e.Err))
		}
	}
	return found
}

// Undisturbed reports that no fault was done, that no lease was lost, and that the machine kept up
// while the clients ended, and a TTL before. Then they have released all that they had, and none of
// their requests comes late.
func Undisturbed(events []history.Event, rules Rules) bool {
	r := build(events, rules)
	if len(r.faults) > 0 {
		return false
	}
	for _, l := range r.leases {
		if l.done != nil && l.done.Lost {
			return false
		}
	}
	drained := r.last
	for _, e := range r.events {
		if e.Op == history.Drain {
			drained = min(drained, e.T)
		}
	}
	return !slices.ContainsFunc(r.busy, func(b span) bool { return b.to > drained-int64(rules.TTL) })
}
