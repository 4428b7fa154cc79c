package claim_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/internal/claim/proof"
)

// wrongStep makes a wrong step of a right one, or reports that it cannot.
type wrongStep struct {
	name string
	make func(c *twoStates) bool
}

// twoStates are those before and after a step.
type twoStates struct {
	*proof.Checker
	name          string
	args          []int64
	before, after proof.State
}

func (c *twoStates) was(name string, acq int) int64    { return *c.At(c.before, name, acq) }
func (c *twoStates) is(name string, acq int) int64     { return *c.At(c.after, name, acq) }
func (c *twoStates) put(name string, acq int, v int64) { *c.At(c.after, name, acq) = v }

// both makes a variable another in both states.
func (c *twoStates) both(name string, acq int, v int64) {
	*c.At(c.before, name, acq), *c.At(c.after, name, acq) = v, v
}

// flushed makes the disk say what the tables say after the step, if it did.
func (c *twoStates) flushed(name string, acq int, v int64) {
	if c.is("flushed."+name, acq) == c.is(name, acq) {
		c.put("flushed."+name, acq, v)
	}
	c.put(name, acq, v)
}

func (c *twoStates) takes(names ...string) bool { return slices.Contains(names, c.name) }

// sharer is somebody who holds together with others after the step, but not one of them.
func (c *twoStates) sharer(but int) int {
	for acq := range everybody {
		if acq != but && c.is("shares", acq) == 1 && c.was("shares", acq) == 1 {
			return acq
		}
	}
	return 0
}

// unlike is an acquisition that has nothing and is none of those.
func (c *twoStates) unlike(these ...int) int {
	for acq := 1; acq < everybody-1; acq++ {
		if !slices.Contains(these, acq) && c.was("shares", acq)+c.is("shares", acq)+c.was("waits", acq)+c.is("waits", acq) == 0 {
			return acq
		}
	}
	return 0
}

var grantsAlone = []string{"GrantByRow", "Grant", "TakeOver", "HandOver", "Adopt", "Resume"}

// wrongSteps are kinds of steps that no right package takes.
var wrongSteps = []wrongStep{
	{"a grant that lowers the token", func(c *twoStates) bool {
		c.flushed("version", 0, c.was("version", 0)-1)
		return c.takes(grantsAlone...)
	}},
	{"a grant that keeps the token", func(c *twoStates) bool {
		ok := c.takes("GrantByRow", "Grant", "TakeOver", "HandOver", "Adopt", "Resume", "GrantFirstReader")
		c.put("top", 0, c.was("top", 0))
		c.flushed("version", 0, c.was("version", 0))
		return ok && c.was("version", 0) != 0
	}},
	{"a renewal that shortens", func(c *twoStates) bool {
		c.flushed("until", 0, c.was("until", 0)-1)
		return c.takes("Renew")
	}},
	{"a renewal of a claim that shortens", func(c *twoStates) bool {
		if !c.takes("CommitRenewal") {
			return false
		}
		a := int(c.args[0])
		c.flushed("ends", a, c.was("ends", a)-1)
		return c.was("new-end", a) >= c.was("ends", a)
	}},
	{"a renewal that revives", func(c *twoStates) bool {
		c.both("now", 0, c.was("until", 0))
		return c.takes("Renew")
	}},
	{"a renewal that gives the term to another", func(c *twoStates) bool {
		other := c.unlike(int(c.was("holder", 0)))
		c.flushed("holder", 0, int64(other))
		return c.takes("Renew") && other != 0
	}},
	{"a grant that is not flushed", func(c *twoStates) bool {
		c.put("flushed.holder", 0, c.was("flushed.holder", 0))
		c.put("flushed.version", 0, c.was("flushed.version", 0))
		return c.takes(grantsAlone...)
	}},
	{"a second holder beside an exclusive one", func(c *twoStates) bool {
		other := c.unlike(int(c.is("holder", 0)))
		c.flushed("shares", other, 1)
		c.flushed("token", other, c.is("version", 0))
		c.flushed("holding", 0, c.is("holding", 0)+1)
		return c.is("holder", 0) != 0 && other != 0
	}},
	{"an exclusive holder beside readers or permits", func(c *twoStates) bool {
		c.flushed("holder", 0, int64(c.unlike()))
		return c.sharer(0) != 0 && c.unlike() != 0
	}},
	{"a permit into a slot that is taken", func(c *twoStates) bool {
		if !c.takes("GrantPermit") {
			return false
		}
		other := c.sharer(int(c.args[0]))
		c.flushed("slot", int(c.args[0]), c.is("slot", other))
		return other != 0
	}},
	{"a permit more than there are", func(c *twoStates) bool {
		if !c.takes("GrantPermit") {
			return false
		}
		c.flushed("slot", int(c.args[0]), c.is("permits", 0))
		return true
	}},
	{"permits with one token", func(c *twoStates) bool {
		if !c.takes("GrantPermit") || c.sharer(int(c.args[0])) == 0 {
			return false
		}
		c.flushed("token", int(c.args[0]), c.is("token", c.sharer(int(c.args[0]))))
		return true
	}},
	{"a reader with a token of its own", func(c *twoStates) bool {
		if !c.takes("GrantNextReader") {
			return false
		}
		c.flushed("token", int(c.args[0]), c.is("version", 0)+1)
		return true
	}},
	{"a count that is too low", func(c *twoStates) bool {
		c.flushed("holding", 0, c.is("holding", 0)-1)
		return c.sharer(0) != 0 && c.is("holding", 0) == 0
	}},
	{"a take-over of a term that goes on", func(c *twoStates) bool {
		c.both("now", 0, c.was("until", 0)-1)
		return c.takes("TakeOver", "Expire") && c.was("over", int(c.was("holder", 0))) == 0
	}},
	{"the end of a claim that goes on", func(c *twoStates) bool {
		if !c.takes("ExpireClaim") || c.was("over", int(c.args[0])) == 1 {
			return false
		}
		c.both("now", 0, c.was("ends", int(c.args[0]))-1)
		return true
	}},
	{"the end of a term that is guarded", func(c *twoStates) bool {
		c.both("pinned", int(c.was("holder", 0)), 1)
		return c.takes("TakeOver", "Expire", "Release", "Withdraw", "HandOver", "Detach", "Resume") ||
			c.takes("Revoke") && c.was("holder", 0) != 0
	}},
	{"the end of a claim that is being renewed", func(c *twoStates) bool {
		if !c.takes("ReleaseClaim", "WithdrawClaim", "ExpireClaim") {
			return false
		}
		c.both("renewing", int(c.args[0]), 1)
		return true
	}},
	{"a release of a term that its client trusts", func(c *twoStates) bool {
		c.both("over", int(c.was("holder", 0)), 0)
		return c.takes("Release", "Withdraw", "HandOver", "Detach") && c.was("until", 0) > c.was("now", 0)
	}},
	{"a release of another's claim", func(c *twoStates) bool {
		if !c.takes("ReleaseClaim", "WithdrawClaim") || c.sharer(0) == 0 {
			return false
		}
		a, other := int(c.args[0]), c.sharer(0)
		if c.was("over", other) == 1 || c.was("ends", other) <= c.was("now", 0) {
			return false
		}
		c.put("shares", a, 1)
		c.put("shares", other, 0)
		return true
	}},
	{"a name that is kept for less time", func(c *twoStates) bool {
		c.put("not-before", 0, c.was("not-before", 0)-1)
		return !c.takes("Revoke", "Purge", "Crash")
	}},
	{"a name that is granted while it is kept", func(c *twoStates) bool {
		c.both("not-before", 0, c.was("now", 0)+1)
		c.both("flushed.not-before", 0, c.was("now", 0)+1)
		return c.takes("GrantByRow", "Grant", "TakeOver", "HandOver", "GrantFirstReader", "GrantNextReader", "GrantPermit")
	}},
	{"a waiter who is lost", func(c *twoStates) bool {
		for acq := range everybody {
			if c.was("waits", acq) == 1 && c.is("waits", acq) == 1 && !c.takes("Stop", "Flush") {
				c.flushed("waits", acq, 0)
				return true
			}
		}
		return false
	}},
	{"a revocation that leaves a holder", func(c *twoStates) bool {
		c.flushed("holder", 0, c.was("holder", 0))
		return c.takes("Revoke") && c.was("holder", 0) != 0
	}},
	{"a detached term with a new token", func(c *twoStates) bool {
		c.flushed("version", 0, c.was("version", 0)+1)
		return c.takes("Detach")
	}},
	{"a row that is deleted when it is young", func(c *twoStates) bool {
		*c.At(c.before, "version", 0) = c.was("now", 0)
		return c.takes("Purge")
	}},
	{"a guard of a term that is over", func(c *twoStates) bool {
		if !c.takes("BeginGuard") {
			return false
		}
		c.both("holder", 0, 0)
		c.both("shares", int(c.args[0]), 0)
		return true
	}},
	{"an end in a transaction that a stranger is in the way of", func(c *twoStates) bool {
		c.both("stranger", 0, 1)
		return c.takes("EndInTx")
	}},
}

// numbers are what a parameter that is one may be.
func (c *twoStates) numbers() (values []int64) {
	for _, s := range []proof.State{c.before, c.after} {
		for _, name := range []string{"version", "until", "not-before", "permits"} {
			values = append(values, *c.At(s, name, 0))
		}
		for acq := range everybody {
			if *c.At(s, "shares", acq) == 1 || *c.At(s, "renewing", acq) == 1 {
				values = append(values, *c.At(s, "token", acq), *c.At(s, "slot", acq), *c.At(s, "ends", acq), *c.At(s, "new-end", acq))
			}
		}
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// explained returns an action that a step may be, or "".
func (c *twoStates) explained() string {
	candidates := map[string][]int64{"Int": c.numbers()}
	for acq := range int64(everybody) {
		candidates["Acq"] = append(candidates["Acq"], acq)
	}
	for _, name := range c.Actions() {
		sorts := c.Sorts(name)
		if !slices.Contains(sorts, "Req") && c.tries(name, sorts, candidates, nil) {
			return name
		}
	}
	return ""
}

// tries tries all parameters of an action.
func (c *twoStates) tries(name string, sorts []string, candidates map[string][]int64, args []int64) bool {
	if len(args) == len(sorts) {
		return c.Refuses(name, args, c.before, c.after) == ""
	}
	for _, v := range candidates[sorts[len(args)]] {
		if c.tries(name, sorts, candidates, append(args, v)) {
			return true
		}
	}
	return false
}

func TestTheDocumentationSaysHowManyKindsOfWrongStepsThereAre(t *testing.T) {
	page, err := os.ReadFile("../../docs/correctness.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(page)), " ")
	if says := fmt.Sprintf("Steps of %d wrong kinds", len(wrongSteps)); !strings.Contains(text, says) {
		t.Errorf("docs/correctness.md does not say %q", says)
	}
}

// Of each kind some are tried, from all over the configurations.
func TestWrongStepsAreNoActionsOfTheProof(t *testing.T) {
	const enough = 5
	c, err := proof.NewChecker(everybody, 0)
	if err != nil {
		t.Fatal(err)
	}
	all, _ := pairwise(*exploreWeight)
	rng := rand.New(rand.NewPCG(3, 4))
	tried := make([]int, len(wrongSteps))
	judge := func(a action) {
		for i, kind := range wrongSteps {
			if tried[i] >= enough {
				continue
			}
			step := &twoStates{c, a.name, a.args, slices.Clone(a.before), slices.Clone(a.after)}
			if !kind.make(step) {
				continue
			}
			tried[i]++
			if why := step.explained(); why != "" {
				t.Errorf("%s, made of %v: it is taken for %s", kind.name, a, why)
			}
		}
	}
	for round := 0; round < 20 && slices.Min(tried) < enough; round++ {
		for _, configuration := range all {
			walk(t, c, configuration.options(), rng, 60, func(r *translation) {
				for _, a := range r.actions {
					judge(a)
				}
			})
		}
	}
	for i, kind := range wrongSteps {
		if tried[i] == 0 {
			t.Errorf("%s: no step can be made so", kind.name)
		}
	}
	t.Logf("%d kinds of wrong steps: %v", len(wrongSteps), tried)
}
