package claim_test

import (
	"cmp"
	"flag"
	"fmt"
	"hash/maphash"
	"math"
	"os"
	"reflect"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var (
	exploreWeight  = flag.Float64("explore.weight", defaultWeight, "size up to which configurations are explored, as a power of two, roughly")
	exploreLeast   = flag.Int("explore.least", 5_000_000, "how many transitions are too few")
	exploreTimeout = flag.Duration("explore.timeout", 2*time.Minute, "how long one step may take")
	exploreMemory  = flag.Int("explore.memory", 1500, "megabytes that all explorations take at most")
)

const (
	defaultWeight = 15.5
	leastWorlds   = 1_000_000 // unless fewer transitions are enough
)

// exploration visits all worlds that options lead to, the nearest first.
type exploration struct {
	o           *options
	seed        maphash.Seed
	seen        fingerprints
	quiet       fingerprints // quiet worlds that come to rest
	own         []uint64     // those of the one that is judged
	depth       int
	transitions int
	bytes       int // at most
}

func newExploration(o *options, bytes int) *exploration {
	o.prepare()
	return &exploration{o: o, seed: maphash.MakeSeed(), bytes: bytes}
}

func (e *exploration) hash(w *world) uint64 { return maphash.Bytes(e.seed, w.bytes()) }

// run visits all worlds. It returns why one of them is wrong, with the way there.
func (e *exploration) run(stop *atomic.Bool, steps *atomic.Int64) (why string) {
	first := start(e.o)
	e.seen.add(e.hash(&first))
	s := &successors{o: e.o}
	for layer, next := []world{first}, []world(nil); len(layer) > 0; layer, next = next, layer[:0] {
		if e.depth++; stop.Load() {
			return ""
		}
		for i := range layer {
			s.steps(&layer[i])
			steps.Add(1)
			for k := range s.worlds {
				w := &s.worlds[k]
				e.transitions++
				if !e.seen.add(e.hash(w)) {
					continue
				}
				if why := e.judge(w); why != "" {
					return why + "\n" + e.path(w)
				}
				next = append(next, *w)
			}
		}
		if used := 8*(len(e.seen.slots)+len(e.quiet.slots)) + int(worldSize)*(cap(layer)+cap(next)); used > e.bytes {
			return fmt.Sprintf("too large: the first %d worlds take %d MB, and %d MB are allowed", e.seen.n, used>>20, e.bytes>>20)
		}
	}
	return ""
}

// judge returns what is wrong with a world, or with how it comes to rest.
func (e *exploration) judge(w *world) string {
	if why := w.broken(e.o); why != "" {
		return why
	}
	x := w.quiet()
	e.own = e.own[:0]
	for n := 0; ; n++ {
		x.normalize(e.o)
		h := e.hash(&x)
		if slices.Contains(e.own, h) {
			return "the same goes on for ever"
		}
		if !e.quiet.add(h) { // it came to rest from there before
			return ""
		}
		e.own = append(e.own, h)
		if n > fairSteps {
			return "the same goes on for ever"
		}
		if !x.fairStep(e.o) {
			return x.atRest(e.o)
		}
		if why := x.broken(e.o); why != "" {
			return "without any further fault: " + why
		}
	}
}

// path tells how a world is reached. It goes the whole way again.
func (e *exploration) path(to *world) string {
	type way struct {
		world  world
		parent int
		label  label
	}
	target := e.hash(to)
	var seen fingerprints
	ways := []way{{world: start(e.o), parent: -1}}
	seen.add(e.hash(&ways[0].world))
	s := &successors{o: e.o}
	for i := 0; i < len(ways) && len(ways) < 4_000_000; i++ {
		w := ways[i].world
		s.steps(&w)
		for k := range s.worlds {
			h := e.hash(&s.worlds[k])
			if !seen.add(h) {
				continue
			}
			ways = append(ways, way{s.worlds[k], i, s.labels[k]})
			if h != target {
				continue
			}
			var lines []string
			for j := len(ways) - 1; j > 0; j = ways[j].parent {
				lines = append([]string{fmt.Sprintf("%-40s %s", ways[j].label, ways[j].world.String())}, lines...)
			}
			return strings.Join(append(lines, e.rest(to)...), "\n")
		}
	}
	return "the way there is too long"
}

// rest tells how a world comes to rest, if it is right itself.
func (e *exploration) rest(w *world) (lines []string) {
	if w.broken(e.o) != "" {
		return nil
	}
	x := w.quiet()
	for range 60 {
		x.normalize(e.o)
		if !x.fairStep(e.o) {
			return lines
		}
		lines = append(lines, fmt.Sprintf("%-40s %s", "  fairly", x.String()))
		if x.broken(e.o) != "" {
			return lines
		}
	}
	return lines
}

// watch ends the program if a step never ends.
func watch(steps *atomic.Int64, done chan struct{}) {
	last, since := steps.Load(), time.Now()
	for {
		select {
		case <-done:
			return
		case <-time.After(100 * time.Millisecond):
		}
		switch n := steps.Load(); {
		case n != last:
			last, since = n, time.Now()
		case time.Since(since) > *exploreTimeout:
			fmt.Printf("    explore_test.go:0: a step does not end\n")
			os.Exit(1)
		}
	}
}

// TestMain ends the program if an operation takes all memory.
func TestMain(m *testing.M) {
	flag.Parse()
	go func() {
		heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		for range time.Tick(100 * time.Millisecond) {
			if metrics.Read(heap); heap[0].Value.Uint64() > uint64(*exploreMemory)<<21 {
				fmt.Printf("    explore_test.go:0: a step takes all memory\n")
				os.Exit(1)
			}
		}
	}()
	os.Exit(m.Run())
}

// report is what became of the exploration of a configuration.
type report struct {
	*exploration
	why  string
	took time.Duration
}

// exploreAll explores configurations, as many at a time as there are processors. It ends when
// one of them is wrong.
func exploreAll(all []configuration) []report {
	reports := make([]report, len(all))
	workers := min(runtime.GOMAXPROCS(0), len(all))
	var next atomic.Int64
	var stop atomic.Bool
	var wg sync.WaitGroup
	var steps atomic.Int64
	done := make(chan struct{})
	defer close(done)
	go watch(&steps, done)
	for range workers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(all) && !stop.Load(); i = int(next.Add(1)) - 1 {
				began := time.Now()
				e := newExploration(all[i].options(), *exploreMemory<<20/workers)
				why := e.run(&stop, &steps)
				e.seen.slots, e.quiet.slots = nil, nil
				r := report{e, why, time.Since(began)}
				switch {
				case why != "":
					stop.Store(true)
				case !stop.Load():
					fmt.Printf("%8d %9d %3d %6.1f yes %s\n", e.seen.n, e.transitions, e.depth, r.took.Seconds(), all[i])
				}
				reports[i] = r
			}
		})
	}
	wg.Wait()
	return reports
}

func TestNoInterleavingBreaksAName(t *testing.T) {
	began := time.Now()
	all, left := pairwise(*exploreWeight)
	slices.SortStableFunc(all, func(a, b configuration) int { return cmp.Compare(a.weight(), b.weight()) })
	debug.SetGCPercent(50)
	fmt.Printf("%d configurations of 3 clients on 2 Lockers, with 2 faults at most, for all time\n", len(all))
	fmt.Println("worlds transitions depth seconds exhausted configuration")
	states, transitions, collision := 0, 0, 0.0
	for i, r := range exploreAll(all) {
		if r.exploration == nil {
			continue
		}
		if r.why != "" {
			t.Fatalf("%s: %s", all[i], r.why)
		}
		states, transitions = states+r.seen.n, transitions+r.transitions
		collision += (math.Pow(float64(r.seen.n), 2) + math.Pow(float64(r.quiet.n), 2)) / math.Exp2(65)
	}
	fmt.Printf("explored: %d configurations, %d worlds, %d transitions, %.0f s; each pair of levels but %d that are too large for the weight %.1f; "+
		"%d MB at most; the probability that a hash hides a world is %.1g\n",
		len(all), states, transitions, time.Since(began).Seconds(), len(left), *exploreWeight, *exploreMemory, collision)
	if transitions < *exploreLeast {
		t.Errorf("%d transitions are too few, %d are wanted", transitions, *exploreLeast)
	}
	if least := min(leastWorlds, *exploreLeast); states < least {
		t.Errorf("%d worlds are too few, %d are wanted", states, least)
	}
}

// leftOut are the levels, and else the pairs of levels, that no configuration of the default weight
// has because it would have too many worlds.
var leftOut = []string{
	"late: 2", "lost: 2", "slow: 2",

	"waits: all and guards: a stranger", "waits: all and reads first: claims", "waits: all and miscounted: yes",

	"waits: all and late: 1", "waits: all and lost: 1", "waits: all and slow: 1",
	"waits: all and crash: yes", "waits: all and step back: yes",
	"waits: but client 0 and late: 1", "waits: but client 0 and lost: 1", "waits: but client 0 and slow: 1",
	"waits: but client 0 and crash: yes", "waits: but client 0 and step back: yes",
	"waits: but client 2 and late: 1", "waits: but client 2 and lost: 1", "waits: but client 2 and slow: 1",
	"waits: but client 2 and crash: yes", "waits: but client 2 and step back: yes",

	"guards: a stranger and late: 1", "reads first: claims and late: 1",
	"late: 1 and lost: 1", "late: 1 and slow: 1", "late: 1 and crash: yes", "late: 1 and step back: yes",
	"lost: 1 and slow: 1", "lost: 1 and crash: yes", "lost: 1 and step back: yes",
	"slow: 1 and crash: yes", "slow: 1 and step back: yes",
}

// docs/correctness.md says what is left out. If this list changes, it must say so.
func TestWhatTheExplorationLeavesOutIsKnown(t *testing.T) {
	all, _ := pairwise(defaultWeight)
	found := missing(all)
	for _, p := range found {
		if !slices.Contains(leftOut, p) {
			t.Errorf("left out, and not listed: %s", p)
		}
	}
	for _, p := range leftOut {
		if !slices.Contains(found, p) {
			t.Errorf("listed, and not left out: %s", p)
		}
	}
	if n := len(missing(nil)); n != levels() { // or nothing is ever missing
		t.Errorf("without any configuration %d levels of %d are missing", n, levels())
	}
}

// levels is how many levels all factors have.
func levels() (n int) {
	for _, f := range factors {
		n += len(f.levels)
	}
	return n
}

// missing returns the levels that no configuration has, and the pairs of the others that make sense
// and that none has.
func missing(all []configuration) (names []string) {
	seen, met := make(map[[2]int]bool), make(map[pair]bool)
	for _, c := range all {
		for f, l := range c {
			seen[[2]int{f, l}] = true
		}
		c.pairs(func(p pair) { met[p] = true })
	}
	for f := range factors {
		for l, level := range factors[f].levels {
			if !seen[[2]int{f, l}] {
				names = append(names, factors[f].name+": "+level.name)
				continue
			}
			for g := f + 1; g < len(factors); g++ {
				for m := range factors[g].levels {
					if p := (pair{f, l, g, m}); seen[[2]int{g, m}] && !met[p] && p.isPossible() {
						names = append(names, p.String())
					}
				}
			}
		}
	}
	return names
}

// isPossible reports that some configuration has a pair, of whatever weight.
func (p pair) isPossible() bool {
	for kinds := range 27 {
		c := make(configuration, len(factors))
		c[0], c[1], c[2] = kinds%3, kinds/3%3, kinds/9
		c[p.f], c[p.g] = p.l, p.m
		if c.isSound() {
			return true
		}
	}
	return false
}

func TestAWithdrawalIsNotAnsweredFromARowThatWasReadBeforeTheClaims(t *testing.T) {
	o := &options{requests: 1, ttl: [clients]int8{2, 2, 2}, handed: 2, peeks: rowAlwaysFirst}
	var stop atomic.Bool
	var steps atomic.Int64
	if why := newExploration(o, 100<<20).run(&stop, &steps); !strings.Contains(why, leftBehind.String()) {
		t.Errorf("this harms nobody, or is not noticed: %q", why)
	}
}

func TestAWorldConsistsOfBytes(t *testing.T) {
	if n := bytesOf(t, reflect.TypeFor[world]()); n != int(worldSize) {
		t.Errorf("%d bytes, of which %d are fields: what is between them would be compared", worldSize, n)
	}
}

// bytesOf counts the fields of a type, each of which has to be one byte.
func bytesOf(t *testing.T, of reflect.Type) (n int) {
	switch of.Kind() {
	case reflect.Struct:
		for i := range of.NumField() {
			n += bytesOf(t, of.Field(i).Type)
		}
	case reflect.Array:
		n = of.Len() * bytesOf(t, of.Elem())
	default:
		if n = int(of.Size()); n != 1 {
			t.Errorf("%v has %d bytes", of, n)
		}
	}
	return n
}
