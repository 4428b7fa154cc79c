// Package check checks histories. Each check has a name, and reports what it found and
// when. All checks except those at the end also work on an incomplete history: a failure
// that they find there is final.
package check

import (
	"fmt"
	"slices"
	"time"

	"github.com/sqllock/sqllock/faults/internal/history"
	"github.com/sqllock/sqllock/faults/internal/register"
	"github.com/sqllock/sqllock/faults/internal/replay"
)

// The checks by name.
const (
	// Overlap: two holders that exclude each other held one name, or more held permits than there
	// are, and all could see it.
	Overlap = "overlap"
	// Remaining: a name was granted while Remaining of another holder was above zero.
	Remaining = "remaining"
	// Token: one was handed out twice, or a later one is not higher.
	Token = "token"
	// Register: an accepted write is missing, a refused one is there, a number was
	// written twice, or a register went backwards.
	Register = "register"
	// Refused: a write of a holder was refused.
	Refused = "refused"
	// Deadline: a context ended later than its deadline.
	Deadline = "deadline"
	// Loss: the reports of a lease about its loss contradict each other.
	Loss = "loss"
	// Reentry: a re-entry returned another lease than the one in the context.
	Reentry = "re-entry"
	// Waiting: a name was granted to no waiter for too long, without any fault, or a waiter was
	// told of a deadlock, though all lock in one order.
	Waiting = "waiting"
	// Permits: clients were to acquire permits, and too few of them did for the other checks to say
	// anything.
	Permits = "permits"
	// Work: clients have done too little for the other checks to say anything, of what they were to do.
	Work = "work"
	// Exit: a client has ended by itself.
	Exit = "exit"
	// Kept: a lease was lost though its TTL was long enough for the outage.
	Kept = "kept"
	// Left: something was left behind.
	Left = "left"
	// Linear: no order of the calls explains their results.
	Linear = "linear"
	// Rows: the tables did not show a holder who saw that it held.
	Rows = "rows"
	// Options: a MinHold, LockDelay, Value or number of permits, or a detached term, was not kept to.
	Options = "options"
	// Once: a key was completed twice, or never.
	Once = "once"
	// Covered: too few pairs of options, kinds and events met for the other checks to say anything.
	Covered = "coverage"
	// Replay: the rules of a name explain no order of what the library asked its database and got.
	Replay = "replay"
)

// Names are all checks.
var Names = []string{Overlap, Remaining, Token, Register, Refused, Deadline, Loss, Reentry, Waiting, Permits, Work, Exit, Kept, Left, Linear, Rows, Options, Once, Covered, Replay}

// Failure is a finding of a check.
type Failure struct {
	Check string `json:"check"`
	T     int64  `json:"t"` // ns, as in the history
	What  string `json:"what"`
}

func (f Failure) String() string { return f.Check + ": " + f.What }

// Rules are the rules for a history.
type Rules struct {
	// Sessions: a session of the database keeps the locks. Its end releases them at once,
	// before the holder can know.
	Sessions bool
	// Unsteady: the clock of the database is set, or commits are lost. Then two clients
	// may hold one name. Only tokens and registers are checked.
	Unsteady bool
	// Forgets: commits are lost. Readers from before the lost commits may share a name
	// again, and later readers share it with them. All of them have the old token,
	// whatever its age.
	Forgets bool
	// Drained: the history is complete, so each waiter must have been served.
	Drained bool

	// Replayed: the history has what the library asked its database, and is to be explained by the
	// rules of a name.
	Replayed bool

	// Permits is how many a semaphore has.
	Permits int

	// Least is how often clients must have done something, by the kinds of acquisitions and the
	// operations of package history, so that a cell says anything. Of Rows, it is how many snapshots
	// there must be.
	Least map[string]int

	TTL   time.Duration
	Grace time.Duration // within which a name must be granted when all is well again
}

// Counts are how much was done, for the report.
type Counts struct {
	Acquisitions, HandOvers, Lost int
	// Active are the hand-overs during a fault. Recovering are those until a TTL after
	// the fault: a waiter may wait so long for a dead holder. Faults is the number of
	// faults: each reset and each lost reply counts as one.
	Active, Recovering, Faults int
	// Inversions are the pairs of waiters of which the later one was served first.
	Inversions int
	// Permits are those acquisitions that are of a permit. Beside are those of them at which
	// another permit of the semaphore was held, and Full those at which all others were, so that one
	// more would show.
	Permits, Beside, Full int
	// Kept are the leases that were kept all the time, and KeptLost those of them that were lost,
	// also in an outage that was too long for them. LongestOutage is of all.
	Kept, KeptLost int
	LongestOutage  time.Duration
}

// Add adds the counts of another history.
func (c *Counts) Add(other Counts) {
	c.Acquisitions += other.Acquisitions
	c.HandOvers += other.HandOvers
	c.Lost += other.Lost
	c.Active += other.Active
	c.Recovering += other.Recovering
	c.Faults += other.Faults
	c.Inversions += other.Inversions
	c.Permits += other.Permits
	c.Beside += other.Beside
	c.Full += other.Full
	c.Kept += other.Kept
	c.KeptLost += other.KeptLost
	c.LongestOutage = max(c.LongestOutage, other.LongestOutage)
}

// History checks the events of the clients so far.
func History(events []history.Event, rules Rules) []Failure {
	r := build(events, rules)
	var found []Failure
	for _, check := range []func(*run) []Failure{overlaps, tokens, refusals, deadlines, losses, reentries, waits, cycles, idles, keeps, leftovers, options, short} {
		found = append(found, check(r)...)
	}
	slices.SortStableFunc(found, func(a, b Failure) int { return int(a.T - b.T) })
	return found
}

// Count counts the events of a history.
func Count(events []history.Event, rules Rules) Counts { return build(events, rules).count() }

// Ended checks a complete history with the final contents of the registers. It returns as
// unordered the names for which the search for an order took too long. It does not replay the
// history, see Replayed.
func Ended(events []history.Event, final register.Final, rules Rules, timeout time.Duration) (found []Failure, unordered []string) {
	r := build(events, rules)
	found = append(History(events, rules), registers(r, final)...)
	found = append(found, once(r, final)...)
	linear, unordered := linearize(r, final, timeout)
	return append(found, linear...), unordered
}

// Replayed is what the replay of a history has explained, and what it has not.
type Replayed struct {
	Operations, Changes int
	Unexplained         []Failure
	Hard                int // changes that have too many explanations to try all
	Excused             int // operations that are not among these, because nothing is to be compared with them
	Unjudged            int // operations of names with a change that is too hard, or that is not explained
}

// Add adds what was replayed of another history.
func (r *Replayed) Add(other Replayed) {
	r.Operations += other.Operations
	r.Changes += other.Changes
	r.Unexplained = append(r.Unexplained, other.Unexplained...)
	r.Hard += other.Hard
	r.Excused += other.Excused
	r.Unjudged += other.Unjudged
}

// Again replays a complete history.
func Again(events []history.Event, rules Rules) (all Replayed) {
	if !rules.Replayed {
		return all
	}
	r := replay.Check(events)
	for _, f := range r.Findings {
		all.Unexplained = append(all.Unexplained, fail(Replay, f.T, "%q: %s", f.Name, f.What))
	}
	all.Operations, all.Changes, all.Hard, all.Excused = r.Operations(), r.Changes, len(r.Hard), r.Excused
	all.Unjudged = r.Unjudged
	return all
}

// TooLittle reports that a replay of a history with so many acquisitions has looked at too little for
// what it has not found to say anything. Each acquisition is an operation itself.
func (r *Replayed) TooLittle(rules Rules, acquisitions int) []Failure {
	if !rules.Replayed || r.Operations+r.Unjudged >= acquisitions && r.Changes+r.Unjudged > 0 {
		return nil
	}
	return []Failure{fail(Work, 0, "%d operations and %d changes were replayed, of %d acquisitions", r.Operations, r.Changes, acquisitions)}
}

func fail(check string, t int64, format string, args ...any) Failure {
	return Failure{Check: check, T: t, What: fmt.Sprintf(format, args...)}
}
