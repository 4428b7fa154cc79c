// Package replay explains histories by the rules of a name, package claim of the library. The
// database has written down each change of a name, in the order in which they were made. For each of
// them there must be a call of the library's stores that these rules lead from what the tables said
// before to what they said after, with the answer that the call had. Calls do what they answered
// once. These must fit, too: answers that needed no change, what clients saw of their leases, and
// snapshots of the tables.
//
// What is not known is which call, or which visit for others, has made a change. Most often the
// change tells: it is about an acquisition, and has the time at which it was decided on. The search
// goes on with each change from what was written down. So one that is not explained hides no other,
// and the search takes as long as there are changes.
package replay

import (
	"cmp"
	"slices"

	"github.com/sqllock/sqllock/faults/internal/history"
)

// Finding is something that nothing explains.
type Finding struct {
	T    int64 // ns, as in the history
	Name string
	What string
}

// Report is what a replay has found.
type Report struct {
	Findings []Finding
	Hard     []Finding // changes for which there are too many explanations to try all

	// What was explained:

	Changes   int // of the tables, each with all that one transaction did to a name
	Calls     int // of stores, one for each name that they are about
	Looks     int // at leases, and what clients were granted
	Snapshots int // of names

	// Excused are those of them that are not among the explained: nothing is to be compared with an
	// answer that is not known, or with one whose effect depends on what else a call was about; and a
	// crash may have undone what was seen.
	Excused int

	// Unjudged are those of names with a finding, or with a change that is too hard. They are among
	// neither.
	Unjudged int
}

// Operations are how many operations were judged and explained. A change is no further one: it is
// what a call has done.
func (r *Report) Operations() int { return r.Calls + r.Looks + r.Snapshots }

// Check replays the events of a cell of unique mode.
func Check(events []history.Event) (r Report) {
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b history.Event) int { return cmp.Compare(a.T, b.T) })
	h := gather(events)
	for _, name := range h.names() {
		s := &searcher{h: h, n: h.byName[name], report: &r}
		s.search()
	}
	return r
}

// finding adds something that nothing explains, at a time of the database.
func (s *searcher) finding(at int64, what string) {
	s.bad++
	s.report.Findings = append(s.report.Findings, Finding{s.h.clock.raw(at), s.n.name, what})
}
