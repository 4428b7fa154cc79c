// Package check judges histories: each check has a name, and says what it has found
// and when. Checks but those of the end may be asked about a history that is not
// complete yet: what they find then stays found.
package check

import (
	"fmt"
	"slices"
	"time"

	"github.com/sqllock/sqllock/faults/internal/history"
	"github.com/sqllock/sqllock/faults/internal/register"
)

// The checks by name.
const (
	// Overlap: two who exclude each other held one name, as both could see.
	Overlap = "overlap"
	// Remaining: somebody got a name while another's Remaining still counted.
	Remaining = "remaining"
	// Token: one was handed out twice, or a later one is not higher.
	Token = "token"
	// Register: an accepted write is missing, a refused one is there, a number was
	// written twice, or a register went backwards.
	Register = "register"
	// Refused: a write of somebody who held was refused.
	Refused = "refused"
	// Deadline: a context ended later than its deadline.
	Deadline = "deadline"
	// Loss: what a lease said of its loss does not fit together.
	Loss = "loss"
	// Reentry: what was entered is not the lease that the context carried.
	Reentry = "re-entry"
	// Waiting: nobody got a name for too long though all was well.
	Waiting = "waiting"
	// Left: something was left behind.
	Left = "left"
	// Linear: there is no order of the calls that explains what they returned.
	Linear = "linear"
)

// Names are all checks.
var Names = []string{Overlap, Remaining, Token, Register, Refused, Deadline, Loss, Reentry, Waiting, Left, Linear}

// Failure is what a check has found.
type Failure struct {
	Check string `json:"check"`
	T     int64  `json:"t"` // ns, as in the history
	What  string `json:"what"`
}

func (f Failure) String() string { return f.Check + ": " + f.What }

// Rules are what holds for a history.
type Rules struct {
	// Sessions: a session of the database keeps the locks. What ends it frees them at
	// once, before their holder can know.
	Sessions bool
	// Unsteady: the clock of the database is set, or commits are forgotten. Then two
	// may hold, and tokens and registers are what is left to check.
	Unsteady bool
	// Forgets: commits are forgotten. A name may be shared again by those who shared it
	// before the commits that were lost, and who comes then shares it with them: it has
	// their token, however old that is.
	Forgets bool
	// Drained: the history is complete, and all who waited were to be served.
	Drained bool

	TTL   time.Duration
	Grace time.Duration // within which a name must be granted when all is well again
}

// Counts are how much was done, for the report.
type Counts struct {
	Acquisitions, HandOvers, Lost int
	// Active are the hand-overs while a fault was active, Recovering those until it had
	// healed for a TTL: so long who is gone may be waited for. Faults is how many faults
	// there were: each reset and each lost reply is one.
	Active, Recovering, Faults int
	// Inversions are the pairs of waiters of which the later one was served first.
	Inversions int
}

// Add adds what was done elsewhere.
func (c *Counts) Add(other Counts) {
	c.Acquisitions += other.Acquisitions
	c.HandOvers += other.HandOvers
	c.Lost += other.Lost
	c.Active += other.Active
	c.Recovering += other.Recovering
	c.Faults += other.Faults
	c.Inversions += other.Inversions
}

// History judges what the clients have written down so far.
func History(events []history.Event, rules Rules) []Failure {
	r := build(events, rules)
	var found []Failure
	for _, check := range []func(*run) []Failure{overlaps, tokens, refusals, deadlines, losses, reentries, waits, idles, leftovers} {
		found = append(found, check(r)...)
	}
	slices.SortStableFunc(found, func(a, b Failure) int { return int(a.T - b.T) })
	return found
}

// Count counts what is in a history.
func Count(events []history.Event, rules Rules) Counts { return build(events, rules).count() }

// Ended judges a complete history together with what the registers say in the end.
// Unordered names are those for which the search for an order took too long.
func Ended(events []history.Event, final register.Final, rules Rules, timeout time.Duration) (found []Failure, unordered []string) {
	r := build(events, rules)
	found = append(History(events, rules), registers(r, final)...)
	linear, unordered := linearize(r, final, timeout)
	return append(found, linear...), unordered
}

func fail(check string, t int64, format string, args ...any) Failure {
	return Failure{Check: check, T: t, What: fmt.Sprintf(format, args...)}
}
