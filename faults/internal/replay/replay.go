// Package replay explains histories by the rules of a name, package claim of the library. For each
// name it looks for an order of all steps, with the times at which the database did them, in which
// these rules give each call the answer that it had, and in which what clients saw of their leases,
// and each snapshot of the tables, is what the rules left at that time.
//
// Most of the order is known. A token is the time of its grant. Answers say when the database read
// its clock. Changes of a name exclude each other, so they happen in the order of these times.
// What is searched for is when a release happened, whether and when a call took effect whose answer
// was lost, whose visit handed a name over, and what of it a crash of the server has undone.
//
// A state is thrown away as soon as an answer contradicts it. So few are left at any time.
package replay

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/sqllock/sqllock/faults/internal/history"
)

// Finding is something that no order explains.
type Finding struct {
	T    int64 // ns, as in the history
	What string
}

// Report is what a replay has found.
type Report struct {
	Findings []Finding
	Unknown  []string // names whose search was given up

	// Of names that are explained:

	Calls     int // of stores, one for each name that they are about
	Looks     int // at leases, and what clients were granted
	Snapshots int // of names
}

// Operations are how many operations were explained.
func (r *Report) Operations() int { return r.Calls + r.Looks + r.Snapshots }

// Check replays the events of a cell of unique mode. The search for an order ends after the timeout,
// for each name.
func Check(events []history.Event, timeout time.Duration) (r Report) {
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b history.Event) int { return cmp.Compare(a.T, b.T) })
	h := gather(events)
	for _, name := range h.names() {
		n := h.byName[name]
		stuck, unknown := search(h, n, time.Now().Add(timeout))
		switch {
		case unknown:
			r.Unknown = append(r.Unknown, name)
		case stuck != nil:
			r.Findings = append(r.Findings, Finding{h.clock.raw(stuck.at), fmt.Sprintf("%q: nothing explains %s", name, stuck)})
		default:
			r.Calls += len(n.calls)
			r.Looks += n.looks
			r.Snapshots += n.snapshots
		}
	}
	return r
}
