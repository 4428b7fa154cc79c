package check

import "github.com/sqllock/sqllock/faults/internal/history"

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
