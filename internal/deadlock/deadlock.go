// Package deadlock finds waits that lead to each other, and which of them to end.
package deadlock

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sqllock/sqllock/driver"
)

// Deadlock is a wait to be ended, and a cycle of which it is the youngest and the first.
type Deadlock struct {
	Acq   driver.ID
	Cycle []driver.Waiter
}

// maxCycleSteps bounds the search after its first pass. The next check finds the cycles
// that are left.
const maxCycleSteps = 1 << 22

// Find returns those of the waits that are mine and that are the youngest of a cycle. In each set of
// waits that lead to each other it takes the youngest; then the youngest of those that
// still lead to each other without it; and so on, until there is no cycle.
func Find(waits []driver.Waiter, mine func(driver.ID) bool) (found []Deadlock, steps int) {
	g := newGraph(waits)
	g.findOver()
	todo := g.components(g.left(g.nodes()))
	for limit := g.steps + maxCycleSteps; len(todo) > 0 && g.steps < limit; {
		set := todo[0]
		if left := g.left(set); len(left) < len(set) {
			todo = append(todo[1:], g.components(left)...)
			continue
		}
		victim := g.youngest(set)
		if mine(waits[victim].Acq) {
			found = append(found, Deadlock{waits[victim].Acq, g.cycle(victim, set)})
		}
		g.over[victim] = true
		g.findOver()
		todo = append(todo[1:], g.components(g.left(set))...)
	}
	return found, g.steps
}

// graph says who waits for whom. Its nodes are the waits, by their index, and after
// them the acquisitions that waits carry. A wait leads to the holders that it waits for,
// and an acquisition to the waits that carry it. An earlier claim on the same name waits
// for the same holders.
type graph struct {
	waits []driver.Waiter
	next  [][]int
	over  []bool // of each node, that it ends without the end of any other wait that is left
	set   []int  // of each node, the set in which it was looked at last
	order []int  // in which the nodes of that were come to, from 1 on
	sets  int
	steps int
}

func newGraph(waits []driver.Waiter) *graph {
	g := &graph{waits: waits, next: make([][]int, len(waits))}
	nodes := make(map[driver.ID]int)
	for i := range waits {
		for _, acq := range waits[i].Carries {
			node, ok := nodes[acq]
			if !ok {
				node = len(g.next)
				nodes[acq] = node
				g.next = append(g.next, nil)
			}
			g.next[node] = append(g.next[node], i)
		}
	}
	for i := range waits {
		for _, acq := range waits[i].Holders {
			if node, ok := nodes[acq]; ok {
				g.next[i] = append(g.next[i], node)
			}
		}
	}
	g.set, g.order, g.over = make([]int, len(g.next)), make([]int, len(g.next)), make([]bool, len(g.next))
	return g
}

// findOver finds the nodes that are over, if any wait is for a permit. Such a wait ends with the
// first of the permits that are held, so a cycle alone does not say that it lasts.
func (g *graph) findOver() {
	if !slices.ContainsFunc(g.waits, func(w driver.Waiter) bool { return w.Kind == driver.KindPermit }) {
		return
	}
	for more := true; more; {
		more = false
		for node := range g.next {
			if !g.over[node] && g.isOver(node) {
				g.over[node], more = true, true
			}
		}
	}
}

// isOver reports that what a node leads to is over: all of it, or one of the holders that a wait
// for a permit leads to. A holder that no wait carries leads nowhere.
func (g *graph) isOver(node int) bool {
	g.steps += len(g.next[node])
	isOver := func(next int) bool { return g.over[next] }
	if node < len(g.waits) && g.waits[node].Kind == driver.KindPermit {
		return len(g.next[node]) < len(g.waits[node].Holders) || slices.ContainsFunc(g.next[node], isOver)
	}
	return !slices.ContainsFunc(g.next[node], func(next int) bool { return !isOver(next) })
}

// left returns the nodes of set that are not over.
func (g *graph) left(set []int) []int {
	return slices.DeleteFunc(slices.Clone(set), func(node int) bool { return g.over[node] })
}

func (g *graph) nodes() []int {
	all := make([]int, len(g.next))
	for i := range all {
		all[i] = i
	}
	return all
}

// within makes set the one that is looked at, and returns its mark.
func (g *graph) within(set []int) (mark int) {
	g.sets++
	for _, node := range set {
		g.set[node], g.order[node] = g.sets, 0
	}
	return g.sets
}

// components returns the largest parts of set of which every node leads to every other,
// by way of that part. (Tarjan, 1972.)
func (g *graph) components(set []int) (parts [][]int) {
	mark := g.within(set)
	const done = -1 // instead of an order: it is in a part
	count := 0
	var open []int
	var visit func(node int) (low int)
	visit = func(node int) (low int) {
		count++
		low = count
		g.order[node] = low
		mine, at := low, len(open)
		open = append(open, node)
		for _, next := range g.next[node] {
			g.steps++
			switch seen := g.order[next]; {
			case g.set[next] != mark || seen == done:
			case seen == 0:
				low = min(low, visit(next))
			default:
				low = min(low, seen)
			}
		}
		if low == mine {
			if len(open)-at > 1 { // else it does not lead to itself: a wait leads to acquisitions only
				parts = append(parts, slices.Clone(open[at:]))
			}
			for _, node := range open[at:] {
				g.order[node] = done
			}
			open = open[:at]
		}
		return low
	}
	for _, node := range set {
		if g.order[node] == 0 {
			visit(node)
		}
	}
	return parts
}

// youngest returns the wait of a set that came last.
func (g *graph) youngest(set []int) int {
	return slices.MaxFunc(set, func(a, b int) int {
		switch n := len(g.waits); {
		case a >= n || b >= n: // not a wait
			return cmp.Compare(b, a)
		default:
			a, b := &g.waits[a], &g.waits[b]
			return cmp.Or(cmp.Compare(a.Since, b.Since), bytes.Compare(a.Acq[:], b.Acq[:]))
		}
	})
}

// cycle returns the waits of a shortest way by which a wait leads to itself, within a
// set of which every node does.
func (g *graph) cycle(wait int, set []int) (cycle []driver.Waiter) {
	mark := g.within(set)
	from := make(map[int]int, len(set))
	for at, queue := wait, []int(nil); ; at, queue = queue[0], queue[1:] {
		for _, next := range g.next[at] {
			g.steps++
			if _, ok := from[next]; ok || g.set[next] != mark {
				continue
			}
			from[next] = at
			queue = append(queue, next)
		}
		if last, ok := from[wait]; ok {
			for node := last; node != wait; node = from[node] {
				if node < len(g.waits) {
					cycle = append(cycle, g.waits[node])
				}
			}
			cycle = append(cycle, g.waits[wait])
			slices.Reverse(cycle)
			return cycle
		}
	}
}

// Describe says who waits for what.
func Describe(cycle []driver.Waiter) string {
	var b strings.Builder
	for i, w := range cycle {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q waits for %q", w.Label, w.Name)
	}
	b.WriteString(", which the first holds")
	return b.String()
}
