package claim_test

import (
	"flag"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/claim"
)

var (
	exploreStates = flag.Int("explore.states", 40_000, "worlds that each configuration visits, the nearest first")
	exploreWalks  = flag.Int("explore.walks", 1_500, "random walks of each configuration, beyond those worlds")
	exploreSeed   = flag.Uint64("explore.seed", 1, "of the random walks")
)

// fairEvery is each how manieth world is continued fairly.
const fairEvery = 16

const (
	x = claim.Exclusive
	s = claim.Shared
	p = claim.Permit
)

// explorations combine kinds of access, TTLs, options and faults. Each pair of two
// features is in one of them.
var explorations = []options{
	{name: "exclusive", kinds: [clients]claim.Kind{x, x, x}, ttl: [clients]int8{2, 2, 2}, again: 2, renews: 1},
	{name: "exclusive, two TTLs, faults", kinds: [clients]claim.Kind{x, x, x}, ttl: [clients]int8{3, 2, 2}, again: 1, renews: 1, faults: 2},
	{name: "exclusive, a death and a fault", kinds: [clients]claim.Kind{x, x, x}, ttl: [clients]int8{2, 3, 2}, again: 2, deaths: 1, faults: 1},
	{name: "exclusive, a crash", kinds: [clients]claim.Kind{x, x, x}, ttl: [clients]int8{2, 2, 2}, again: 2, renews: 1, crashes: 1},
	{name: "exclusive, MinHold, LockDelay", kinds: [clients]claim.Kind{x, x, x}, ttl: [clients]int8{2, 2, 2}, minHold: [clients]int8{2, 0, 1}, delay: [clients]int8{0, 1, 0}, again: 1, renews: 1, faults: 1},
	{name: "exclusive, revoked", kinds: [clients]claim.Kind{x, x, x}, ttl: [clients]int8{2, 2, 2}, again: 1, renews: 1, revokes: 1, faults: 1},
	{name: "readers", kinds: [clients]claim.Kind{s, s, s}, ttl: [clients]int8{2, 3, 2}, again: 1, renews: 1, faults: 1},
	{name: "readers and a writer", kinds: [clients]claim.Kind{s, s, x}, ttl: [clients]int8{2, 3, 2}, again: 1, renews: 1, faults: 1},
	{name: "a reader and writers, a death", kinds: [clients]claim.Kind{x, s, x}, ttl: [clients]int8{2, 2, 2}, again: 2, deaths: 1},
	{name: "readers of two Lockers, a crash", kinds: [clients]claim.Kind{s, x, s}, ttl: [clients]int8{2, 2, 3}, again: 1, renews: 1, crashes: 1, faults: 1},
	{name: "readers, MinHold, LockDelay, a death", kinds: [clients]claim.Kind{s, x, s}, ttl: [clients]int8{2, 2, 2}, minHold: [clients]int8{0, 2, 0}, delay: [clients]int8{1, 0, 0}, again: 1, deaths: 1, renews: 1},
	{name: "readers, revoked", kinds: [clients]claim.Kind{s, x, s}, ttl: [clients]int8{2, 2, 2}, again: 1, renews: 1, revokes: 1},
	{name: "one permit", kinds: [clients]claim.Kind{p, p, p}, permits: 1, ttl: [clients]int8{2, 3, 2}, again: 1, renews: 1, faults: 1},
	{name: "two permits, a death", kinds: [clients]claim.Kind{p, p, p}, permits: 2, ttl: [clients]int8{2, 2, 3}, again: 2, deaths: 1},
	{name: "permits, a writer", kinds: [clients]claim.Kind{p, x, p}, permits: 2, ttl: [clients]int8{2, 2, 2}, delay: [clients]int8{0, 0, 1}, again: 1, renews: 1, faults: 1},
	{name: "permits and a reader, a crash", kinds: [clients]claim.Kind{p, s, p}, permits: 2, ttl: [clients]int8{2, 2, 2}, again: 1, renews: 1, crashes: 1},
	{name: "permit, reader, writer", kinds: [clients]claim.Kind{p, s, x}, permits: 1, ttl: [clients]int8{2, 2, 2}, minHold: [clients]int8{1, 0, 0}, again: 2, revokes: 1},
	{name: "detached", kinds: [clients]claim.Kind{x, x, x}, ttl: [clients]int8{2, 2, 2}, again: 1, renews: 1, detach: true, faults: 1},
	{name: "detached, MinHold, LockDelay, a death", kinds: [clients]claim.Kind{x, s, x}, ttl: [clients]int8{3, 2, 2}, minHold: [clients]int8{0, 0, 1}, delay: [clients]int8{1, 0, 0}, again: 1, detach: true, deaths: 1},
	{name: "detached, a crash, revoked", kinds: [clients]claim.Kind{x, p, x}, permits: 1, ttl: [clients]int8{2, 2, 2}, again: 1, detach: true, crashes: 1, revokes: 1},
}

// exploration visits the worlds that options lead to, the nearest first.
type exploration struct {
	o           *options
	seed        maphash.Seed
	from        map[uint64]uint64 // the world from which each was reached first
	transitions int
	complete    bool
}

func explore(o *options, limit int) (e *exploration, why string) {
	e = &exploration{o: o, seed: maphash.MakeSeed(), from: make(map[uint64]uint64)}
	first := start(o)
	e.from[e.hash(&first)] = 0
	var bad uint64
	for now, next := []world{first}, []world(nil); len(now) > 0; now, next = next, now[:0] {
		for i := range now {
			here := e.hash(&now[i])
			now[i].steps(o, func(_ func() string, w world) {
				w.normalize()
				e.transitions++
				h := e.hash(&w)
				if _, ok := e.from[h]; ok || why != "" {
					return
				}
				e.from[h] = here
				next = append(next, w)
				if why = w.broken(o); why == "" && h%fairEvery == 0 {
					why = w.fair(o, func(*world) {})
				}
				bad = h
			})
			if why != "" {
				return e, why + "\n" + e.path(bad)
			}
			if len(e.from) >= limit {
				return e, ""
			}
		}
	}
	e.complete = true
	return e, ""
}

// walkSteps is how long a random walk is at most: some steps can be repeated for ever.
const walkSteps = 150

// walk takes random steps from the start. It reports how the walk went if it ends badly.
func (e *exploration) walk(rng *rand.Rand) (why string) {
	var path []string
	w := start(e.o)
	for range walkSteps {
		var labels []func() string
		var worlds []world
		w.steps(e.o, func(label func() string, next world) {
			next.normalize()
			labels, worlds = append(labels, label), append(worlds, next)
		})
		if len(worlds) == 0 {
			return ""
		}
		e.transitions++
		i := rng.IntN(len(worlds))
		for worlds[i].now > w.now && len(worlds) > 1 && rng.IntN(4) > 0 { // ticks are the rarer steps
			i = rng.IntN(len(worlds))
		}
		path = append(path, fmt.Sprintf("%-36s ", labels[i]()))
		w = worlds[i]
		why := w.broken(e.o)
		if h := e.hash(&w); why == "" && e.from[h] == 0 {
			e.from[h] = 1
			if h%fairEvery == 0 {
				why = w.fair(e.o, func(*world) {})
			}
		}
		if why != "" {
			return why + "\n" + strings.Join(path, "\n") + "\n" + w.String()
		}
	}
	return ""
}

func (e *exploration) hash(w *world) uint64 { return maphash.Comparable(e.seed, *w) }

// path tells how a world was reached.
func (e *exploration) path(h uint64) string {
	var hashes []uint64
	for ; h != 0; h = e.from[h] {
		hashes = append(hashes, h)
	}
	slices.Reverse(hashes)
	var b strings.Builder
	w := start(e.o)
	for _, want := range hashes[1:] {
		found := false
		w.steps(e.o, func(label func() string, next world) {
			next.normalize()
			if !found && e.hash(&next) == want {
				found = true
				fmt.Fprintf(&b, "%-36s %s\n", label(), next.String())
				w = next
			}
		})
	}
	if w.broken(e.o) == "" {
		b.WriteString("and then fairly:\n")
		w.fair(e.o, func(next *world) { fmt.Fprintf(&b, "%-36s %s\n", "", next.String()) })
	}
	return b.String()
}

// normalize makes worlds equal that differ in nothing that matters.
func (w *world) normalize() {
	slices.SortFunc(w.packets[:], func(a, b packet) int { return slices.Compare(a.key(), b.key()) })
	if w.crashes == 0 {
		w.durable = tables{}
	}
	for i := range w.clients {
		if c := &w.clients[i]; c.phase != holding && c.phase != releasing && c.phase != detaching {
			c.trust, c.token, c.slot = 0, 0, 0
		}
	}
}

func (p *packet) key() []int8 {
	heard := int8(0)
	if p.heard {
		heard = 1
	}
	return []int8{-int8(p.op), p.acq, p.sent, p.token, int8(p.reply), p.remaining, p.replyToken, p.slot, heard}
}

func TestNoInterleavingBreaksAName(t *testing.T) {
	const ticks = 7
	began := time.Now()
	var states, transitions atomic.Int64
	t.Cleanup(func() {
		fmt.Printf("explored: %d configurations of %d clients on %d Lockers, up to %d requests each, %d ticks, seed %d: %d states, %d transitions, %v\n",
			len(explorations), clients, lockers, requests, ticks, *exploreSeed, states.Load(), transitions.Load(), time.Since(began).Round(time.Second))
	})
	for i := range explorations {
		o := &explorations[i]
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			o.handed, o.beat, o.end = 1, 2, ticks
			e, why := explore(o, *exploreStates)
			nearest := len(e.from)
			rng := rand.New(rand.NewPCG(*exploreSeed, uint64(i)))
			for n := 0; n < *exploreWalks && why == "" && !e.complete; n++ {
				why = e.walk(rng)
			}
			if why != "" {
				t.Fatal(why)
			}
			states.Add(int64(len(e.from)))
			transitions.Add(int64(e.transitions))
			t.Logf("%d states, the nearest %d of them all; %d transitions; complete: %v", len(e.from), nearest, e.transitions, e.complete)
		})
	}
}
