package claim_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/sqllock/sqllock/internal/claim"
)

// level is a choice of a factor. Its weight says by how much it multiplies the number of
// worlds, as a power of two. Weights were measured.
type level struct {
	name   string
	weight float64
	apply  func(o *options)
}

// factor is what configurations differ in. Its first level is the plainest.
type factor struct {
	name   string
	levels []level
	fault  bool
}

const (
	whoWaits    = 3 // the factor, and its lightest level
	nobodyWaits = 1
)

// plain is the weight of the configuration of the plainest levels.
const plain = 13.8

func kindLevels(i int) []level {
	set := func(k claim.Kind) func(*options) { return func(o *options) { o.kinds[i] = k } }
	return []level{{"exclusive", 0, set(claim.Exclusive)}, {"shared", 0, set(claim.Shared)}, {"permit", 0, set(claim.Permit)}}
}

func yes(weight float64, apply func(o *options)) []level {
	return []level{{"", 0, func(*options) {}}, {"yes", weight, apply}}
}

// factors are all that configurations differ in.
var factors = []factor{
	{"client 0", kindLevels(0), false},
	{"client 1", kindLevels(1), false},
	{"client 2", kindLevels(2), false},
	{"waits", []level{
		{"all", 0, func(*options) {}},
		{"none", -5.6, func(o *options) { o.tries = [clients]bool{true, true, true} }},
		{"but client 0", -0.6, func(o *options) { o.tries[0] = true }},
		{"but client 2", -1.4, func(o *options) { o.tries[2] = true }},
	}, false},
	{"requests", []level{{"1", 0, func(o *options) { o.requests = 1 }}, {"any", 1.6, func(o *options) { o.requests = 0 }}}, false},
	{"TTL", []level{
		{"2 2 2", 0, func(o *options) { o.ttl = [clients]int8{2, 2, 2} }},
		{"3 2 2", 0.4, func(o *options) { o.ttl = [clients]int8{3, 2, 2} }},
		{"2 2 3", 0.5, func(o *options) { o.ttl = [clients]int8{2, 2, 3} }},
	}, false},
	{"handed", []level{{"2", 0, func(o *options) { o.handed = 2 }}, {"1", 0.1, func(o *options) { o.handed = 1 }}}, false},
	{"MinHold", []level{
		{"", 0, func(*options) {}},
		{"2 0 0", 0.8, func(o *options) { o.minHold[0] = 2 }},
		{"0 0 2", 0.7, func(o *options) { o.minHold[2] = 2 }},
	}, false},
	{"LockDelay", []level{
		{"", 0, func(*options) {}},
		{"1 0 0", 0.4, func(o *options) { o.delay[0] = 1 }},
		{"0 0 1", 0.4, func(o *options) { o.delay[2] = 1 }},
	}, false},
	{"MaxHold", []level{
		{"", 0, func(*options) {}},
		{"1 0 0", 0.3, func(o *options) { o.maxHold[0] = 1 }},
		{"0 0 3", 0.5, func(o *options) { o.maxHold[2] = 3 }},
	}, false},
	{"permits", []level{
		{"2", 0, func(o *options) { o.permits = [clients]int8{2, 2, 2} }},
		{"1", 0, func(o *options) { o.permits = [clients]int8{1, 1, 1} }},
		{"2 2 1", 0, func(o *options) { o.permits = [clients]int8{2, 2, 1} }},
	}, false},
	{"term", []level{
		{"", 0, func(*options) {}},
		{"detached", 0, func(o *options) { o.detach = true }},
		{"resumed", 1.2, func(o *options) { o.resume = true }},
	}, false},
	{"guards", []level{
		{"", 0, func(*options) {}},
		{"client 0", 1.5, func(o *options) { o.guards = 1 }},
		{"client 2", 1.4, func(o *options) { o.guards = 4 }},
		{"a stranger", 2, func(o *options) { o.otherPin = true }},
	}, false},
	{"reads first", []level{
		{"", 0, func(*options) {}},
		{"claims", 2.1, func(o *options) { o.peeks = claimsFirst }},
		{"row", 1.5, func(o *options) { o.peeks = rowFirst }},
	}, false},
	{"window", yes(0.1, func(o *options) { o.window = 1 }), false},
	{"batches", yes(0.1, func(o *options) { o.batches = true }), false},
	{"forgets", yes(1, func(o *options) { o.forgets = true }), false},
	{"sweeps", yes(0.4, func(o *options) { o.sweeps = true }), false},
	{"revoked", yes(1.2, func(o *options) { o.revokes = 1 }), false},
	{"resized", []level{
		{"", 0, func(*options) {}},
		{"once", 1, func(o *options) { o.resizes = 1 }},
		{"twice", 1.6, func(o *options) { o.resizes = 2 }},
	}, false},
	{"late", []level{
		{"", 0, func(*options) {}},
		{"1", 6.6, func(o *options) { o.faults.late = 1 }},
		{"2", 12.8, func(o *options) { o.faults.late = 2 }},
	}, true},
	{"lost", []level{
		{"", 0, func(*options) {}},
		{"1", 5.4, func(o *options) { o.faults.lost = 1 }},
		{"2", 10.8, func(o *options) { o.faults.lost = 2 }},
	}, true},
	{"slow", []level{
		{"", 0, func(*options) {}},
		{"1", 5.8, func(o *options) { o.faults.slow = 1 }},
		{"2", 9, func(o *options) { o.faults.slow = 2 }},
	}, true},
	{"silent", yes(1.4, func(o *options) { o.faults.silent = 1 }), true},
	{"dies", []level{
		{"", 0, func(*options) {}},
		{"1", 1, func(o *options) { o.faults.deaths = 1 }},
		{"2", 1.4, func(o *options) { o.faults.deaths = 2 }},
	}, true},
	{"crash", yes(3.9, func(o *options) { o.faults.crashes = 1 }), true},
	{"step back", yes(4.6, func(o *options) { o.faults.steps = 1 }), true},
	{"miscounted", yes(2, func(o *options) { o.faults.counts = 1 }), true},
}

// configuration is a level of each factor.
type configuration []int

func (c configuration) options() *options {
	o := new(options)
	for f, l := range c {
		factors[f].levels[l].apply(o)
	}
	return o
}

func (c configuration) String() string {
	var parts []string
	for f, l := range c {
		if name := factors[f].levels[l].name; name != "" && (l > 0 || f < 3) {
			parts = append(parts, factors[f].name+": "+name)
		}
	}
	return strings.Join(parts, ", ")
}

// weight is how many worlds a configuration has, as a power of two, roughly.
func (c configuration) weight() float64 {
	w := plain
	for f, l := range c {
		level := &factors[f].levels[l]
		if w += level.weight; c[whoWaits] == nobodyWaits && factors[f].fault {
			w -= level.weight / 6 // there is less to be disturbed
		}
	}
	return w
}

// isSound reports that the levels make sense together, and that there are two faults at most.
func (c configuration) isSound() bool {
	o := c.options()
	f := &o.faults
	permits := 0
	for _, k := range o.kinds {
		if k == claim.Permit {
			permits++
		}
	}
	alone := o.kinds[0] == claim.Exclusive && o.kinds[2] == claim.Exclusive
	differ := o.permits[0] != o.permits[2]
	return f.late+f.lost+f.slow+f.silent+f.deaths+f.crashes+f.steps+f.counts <= 2 &&
		(!o.detach && !o.resume || alone) &&
		(o.permits[0] == 2 && !differ && o.resizes == 0 || permits > 0) && (!differ || o.kinds[2] == claim.Permit && permits > 1)
}

// pair is two levels of two factors.
type pair struct{ f, l, g, m int }

func (c configuration) pairs(yield func(pair)) {
	for f := range c {
		for g := f + 1; g < len(c); g++ {
			yield(pair{f, c[f], g, c[g]})
		}
	}
}

// pairwise returns configurations of a weight up to heaviest such that each pair of levels that
// makes sense is in one of them, and the pairs that none has.
func pairwise(heaviest float64) (all []configuration, left []pair) {
	rng := rand.New(rand.NewPCG(1, 2))
	open := make(map[pair]bool)
	for f := range factors {
		for g := f + 1; g < len(factors); g++ {
			for l := range factors[f].levels {
				for m := range factors[g].levels {
					open[pair{f, l, g, m}] = true
				}
			}
		}
	}
	for f := range factors {
		for g := f + 1; g < len(factors); g++ {
			for l := range factors[f].levels {
				for m := range factors[g].levels {
					p := pair{f, l, g, m}
					if !open[p] {
						continue
					}
					c := bestWith(p, heaviest, open, rng)
					if c == nil {
						delete(open, p)
						if lightest(p, math.Inf(1), rng) != nil {
							left = append(left, p)
						}
						continue
					}
					all = append(all, c)
					c.pairs(func(p pair) { delete(open, p) })
				}
			}
		}
	}
	return all, left
}

// bestWith returns a configuration that has a pair, and as many of the open ones as some
// attempts have found, or nil.
func bestWith(p pair, heaviest float64, open map[pair]bool, rng *rand.Rand) (best configuration) {
	most := 0
	for range 25 {
		c := candidate(p, heaviest, open, rng)
		if c == nil {
			continue
		}
		n := 0
		c.pairs(func(p pair) {
			if open[p] {
				n++
			}
		})
		if n > most {
			best, most = c, n
		}
	}
	return best
}

// candidate starts with a pair and the lightest levels, and changes one factor after the other,
// in some order, to the level that has most open pairs with the others.
func candidate(p pair, heaviest float64, open map[pair]bool, rng *rand.Rand) configuration {
	c := lightest(p, heaviest, rng)
	if c == nil {
		return nil
	}
	for _, f := range rng.Perm(len(factors)) {
		if f == p.f || f == p.g {
			continue
		}
		was, best, most := c[f], c[f], -1
		for l := range factors[f].levels {
			c[f] = l
			n := 0
			for g := range c {
				if a, b := min(f, g), max(f, g); g != f && open[pair{a, c[a], b, c[b]}] {
					n++
				}
			}
			if n > most && c.weight() <= heaviest && c.isSound() {
				best, most = l, n
			}
		}
		c[f] = best
		if most < 0 {
			c[f] = was
		}
	}
	return c
}

// lightest returns a sound configuration that has a pair, and otherwise the plainest levels, or
// nil if there is none. Kinds are chosen by chance, and nobody waits if that is too heavy.
func lightest(p pair, heaviest float64, rng *rand.Rand) configuration {
	for range 40 {
		c := make(configuration, len(factors))
		for f := range 3 {
			c[f] = rng.IntN(3)
		}
		c[p.f], c[p.g] = p.l, p.m
		for l := 0; l < len(factors[whoWaits].levels) && c.weight() > heaviest && p.f != whoWaits && p.g != whoWaits; l++ {
			c[whoWaits] = l
		}
		if c.weight() <= heaviest && c.isSound() {
			return c
		}
	}
	return nil
}

func (p pair) String() string {
	return fmt.Sprintf("%s: %s and %s: %s", factors[p.f].name, factors[p.f].levels[p.l].name, factors[p.g].name, factors[p.g].levels[p.m].name)
}
