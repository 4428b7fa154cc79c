package quorum_test

import (
	"flag"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/internal/quorum"
)

var (
	exploreWorlds = flag.Int("explore.worlds", 150_000, "how many worlds of a configuration that is too large are visited, chosen at random")
	exploreSeed   = flag.Uint64("explore.seed", 1, "of the choice")
)

// explore visits all worlds that the rules lead to, or limit of them if that is not 0. It returns
// what is wrong with the first wrong one, or "".
func explore(r rules, limit int) (wrong string, worlds, grants int) {
	if r.nodes == 0 {
		r.nodes = 3
	}
	var first world
	seed, rnd := maphash.MakeSeed(), rand.New(rand.NewPCG(*exploreSeed, 0))
	seen := map[uint64]struct{}{maphash.Comparable(seed, first.key()): {}}
	for stack := []world{first}; len(stack) > 0 && (limit == 0 || len(seen) < limit); {
		last := len(stack) - 1
		if limit != 0 && rnd.IntN(16) == 0 { // the deepest worlds alone would leave out whole kinds of them
			i := rnd.IntN(len(stack))
			stack[i], stack[last] = stack[last], stack[i]
		}
		w := stack[last]
		stack = stack[:last]
		r.steps(&w, func(x world) {
			if x.wrong != "" && wrong == "" {
				wrong = x.wrong
			}
			x.normalize()
			key := maphash.Comparable(seed, x.key())
			if _, ok := seen[key]; ok {
				return
			}
			seen[key] = struct{}{}
			for a := range x.acquisitions {
				if x.acquisitions[a].token != 0 && w.acquisitions[a].token == 0 {
					grants++
				}
			}
			stack = append(stack, x)
		})
		if wrong != "" {
			break
		}
	}
	return wrong, len(seen), grants
}

func TestTheRulesHold(t *testing.T) {
	for _, c := range []struct {
		name string
		rules
	}{
		{"tokens, rows expire at any moment", rules{need: quorum.Need(3, 0), acquisitions: 3}},
		{"tokens, replies are late", rules{need: quorum.Need(3, 0), acquisitions: 2, late: true}},
		{"holders, rows keep to the clock", rules{need: quorum.Need(3, 0), acquisitions: 3, clocks: true}},
		{"tokens, nodes draw versions of several kinds, replies are late", rules{need: quorum.Need(3, 0), acquisitions: 2, late: true, floor: 3}},
		{"holders, nodes draw versions of several kinds", rules{need: quorum.Need(3, 0), acquisitions: 2, late: true, heals: 1, floor: 3, clocks: true}},
		{"holders that renew, and ask a node again", rules{need: quorum.Need(3, 0), acquisitions: 3, heals: 1, late: true, clocks: true}},
		{"a node forgets, FaultyNodes is 1, tokens", rules{need: quorum.Need(3, 1), acquisitions: 2, late: true, forgets: 1}},
		{"a node forgets, FaultyNodes is 1, holders", rules{need: quorum.Need(3, 1), acquisitions: 3, forgets: 1, clocks: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			wrong, worlds, grants := explore(c.rules, 0)
			if wrong != "" {
				t.Fatal(wrong)
			}
			if t.Logf("%d worlds, %d ways to a grant", worlds, grants); grants < 100 {
				t.Errorf("the name was granted in %d ways: that is too few to say something", grants)
			}
		})
	}
}

// These are too large to be visited as a whole.
func TestTheRulesHoldInASample(t *testing.T) {
	for _, c := range []struct {
		name string
		rules
	}{
		{"five nodes, tokens, rows expire at any moment", rules{nodes: 5, need: quorum.Need(5, 0), acquisitions: 3, floor: 3}},
		{"five nodes, tokens, replies are late", rules{nodes: 5, need: quorum.Need(5, 0), acquisitions: 3, late: true}},
		{"five nodes, holders that renew, and ask a node again", rules{nodes: 5, need: quorum.Need(5, 0), acquisitions: 3, heals: 1, late: true, clocks: true}},
		{"five nodes, one forgets, FaultyNodes is 1, tokens", rules{nodes: 5, need: quorum.Need(5, 1), acquisitions: 3, forgets: 1}},
		{"five nodes, two forget, FaultyNodes is 2, holders", rules{nodes: 5, need: quorum.Need(5, 2), acquisitions: 3, forgets: 2, clocks: true}},
		{"three nodes draw versions of several kinds", rules{need: quorum.Need(3, 0), acquisitions: 3, floor: 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			wrong, worlds, grants := explore(c.rules, *exploreWorlds)
			if wrong != "" {
				t.Fatal(wrong)
			}
			if t.Logf("%d worlds, %d ways to a grant", worlds, grants); grants < 100 {
				t.Errorf("the name was granted in %d ways: that is too few to say something", grants)
			}
		})
	}
}

func TestTheExplorationFindsWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		name, finds string
		rules
	}{
		{"no raise", "the token", rules{need: 2, acquisitions: 3, noRaise: true}},
		{"no raise, nodes draw versions of several kinds", "the token", rules{need: 2, acquisitions: 3, noRaise: true, floor: 3}},
		{"a late reply above the token counts, versions of several kinds", "the token", rules{need: 2, acquisitions: 3, countAbove: true, floor: 3}},
		{"a node forgets, plain majority, versions of several kinds", "the token", rules{need: 2, acquisitions: 2, forgets: 1, floor: 3}},
		{"a node forgets, plain majority, tokens", "the token", rules{need: 2, acquisitions: 2, forgets: 1}},
		{"a node forgets, plain majority, holders", "hold the name", rules{need: 2, acquisitions: 2, forgets: 1, clocks: true}},
		{"a raise of a row that is another's", "the token", rules{need: 2, acquisitions: 3, raiseForeign: true}},
		{"a late reply above the token counts", "the token", rules{need: 2, acquisitions: 3, countAbove: true}},
		{"five nodes, no raise", "the token", rules{nodes: 5, need: 3, acquisitions: 3, noRaise: true}},
		{"five nodes, one forgets, plain majority, tokens", "the token", rules{nodes: 5, need: 3, acquisitions: 2, forgets: 1}},
		{"five nodes, one forgets, plain majority, holders", "acquisitions", rules{nodes: 5, need: 3, acquisitions: 2, forgets: 1, clocks: true}},
		{"five nodes, three forget, FaultyNodes is 2", "the token", rules{nodes: 5, need: 4, acquisitions: 2, forgets: 3}},
		{"five nodes, a raise of a row that is another's", "the token", rules{nodes: 5, need: 3, acquisitions: 3, raiseForeign: true}},
		{"five nodes, a late reply above the token counts", "the token", rules{nodes: 5, need: 3, acquisitions: 3, countAbove: true}},
		{"five nodes, less than a majority", "acquisitions", rules{nodes: 5, need: 2, acquisitions: 2, clocks: true}},
		{"less than a majority", "acquisitions 0 and 1", rules{need: 1, acquisitions: 2, clocks: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			limit := 0
			if c.nodes == 5 { // so the sample is large enough to find what is wrong
				limit = *exploreWorlds
			}
			wrong, worlds, _ := explore(c.rules, limit)
			if !strings.Contains(wrong, c.finds) {
				t.Errorf("after %d worlds: %q, want something with %q", worlds, wrong, c.finds)
			}
			t.Logf("%d worlds: %s", worlds, wrong)
		})
	}
}

func TestNeed(t *testing.T) {
	for _, c := range []struct{ nodes, faulty, want int }{
		{1, 0, 1}, {2, 0, 2}, {3, 0, 2}, {3, 1, 3}, {4, 0, 3}, {5, 0, 3}, {5, 1, 4}, {5, 2, 4}, {7, 2, 5}, {9, 0, 5},
	} {
		t.Run(fmt.Sprintf("%d nodes, %d faulty", c.nodes, c.faulty), func(t *testing.T) {
			need := quorum.Need(c.nodes, c.faulty)
			if need != c.want {
				t.Errorf("Need is %d, want %d", need, c.want)
			}
			if common := 2*need - c.nodes; common <= c.faulty {
				t.Errorf("two quorums of %d may have %d nodes in common", need, common)
			}
			if smaller := 2*(need-1) - c.nodes; smaller > c.faulty {
				t.Errorf("a quorum of %d would do", need-1)
			}
		})
	}
}
