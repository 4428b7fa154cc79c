package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sqllock/sqllock/faults/internal/history"
)

// Coverage says which pairs have met in acquisitions that were granted: options, kinds, endings, users
// and events with each other, and leases of one name that were held at the same time.
type Coverage struct {
	Met      map[string]int  // how often
	Possible map[string]bool // pairs that can meet
}

// The options that count, and states in which a name may be that is requested together with others.
const (
	shortTTL, mediumTTL, longTTL = "TTL 1 s", "TTL 2 to 5 s", "TTL 10 to 30 s"

	later = "later in a batch"
)

var (
	optionNames = []string{shortTTL, mediumTTL, longTTL, "MinHold", "MaxHold", "LockDelay", "Value"}
	rareStates  = []string{"expired", "detached", "kept", "guarded", "other permits"}
)

// besides are leases of one name that are held at the same time, with TTLs of their own.
var (
	readers = pair("reader", "reader of another TTL")
	permits = pair("permit", "permit of another TTL")
	besides = []string{readers, permits}
)

// crashedWaiter is a rare state where processes are killed.
const crashedWaiter = "crashed waiter"

// leastFaults is how often a fault must have happened to count as an event of a cell.
const leastFaults = 3

// Cover says what has met in a history of a cell whose calls have options.
func Cover(events []history.Event, rules Rules, users []string) Coverage {
	r := build(events, rules)
	c := Coverage{Met: make(map[string]int), Possible: make(map[string]bool)}
	faults := make(map[string]int)
	for _, f := range r.faults {
		faults[f.kind]++
	}
	maps.DeleteFunc(faults, func(_ string, n int) bool { return n < leastFaults })
	c.allow(slices.Sorted(maps.Keys(faults)), users)
	for _, leases := range r.names {
		for _, l := range leases {
			if l.what != "" {
				r.meet(&c, l, faults)
			}
		}
		c.meetBeside(leases)
	}
	r.meetBatches(&c)
	maps.DeleteFunc(c.Met, func(pair string, _ int) bool { return !c.Possible[pair] })
	return c
}

func pair(a, b string) string { return a + " × " + b }

// allow notes which pairs can meet.
func (c *Coverage) allow(events, users []string) {
	both := func(as, bs []string) {
		for _, a := range as {
			for _, b := range bs {
				if !impossible(a, b) {
					c.Possible[pair(a, b)] = true
				}
			}
		}
	}
	for i, a := range optionNames {
		both([]string{a}, optionNames[i+1:])
	}
	both(history.Kinds, optionNames)
	both(history.Endings, optionNames)
	both(users, optionNames)
	both(optionNames, events)
	both(history.Kinds, events)
	both(history.Kinds, history.Endings)
	both(history.Endings, events)
	both(users, history.Kinds)
	both(users, events)
	for _, pair := range besides {
		c.Possible[pair] = true
	}
	both([]string{later}, rareStates)
	if slices.Contains(events, Kill) {
		both([]string{later}, []string{crashedWaiter})
	}
}

// impossible reports that the library does not take an option for a kind, or that a lease has one TTL,
// or that clients do not end what they have acquired so. A process that is killed ends nothing itself.
func impossible(a, b string) bool {
	isKind := slices.Contains(history.Kinds, a)
	switch {
	case isKind && b == history.BeyondMaxHold:
		return a == history.Once || a == history.Election
	case isKind && slices.Contains(history.Endings, b):
		return !slices.Contains(history.EndingsOf(a), b)
	case slices.Contains(history.Endings, a):
		return b == Kill
	case a == history.Shared, a == history.Permit:
		return b == "MinHold" || b == "Value"
	case a == history.Election:
		return b == "MinHold" || b == "MaxHold"
	}
	return strings.HasPrefix(a, "TTL") && strings.HasPrefix(b, "TTL")
}

// optionsOf returns which options a lease has.
func (l *lease) optionsOf() (has []string) {
	o := &l.options
	switch {
	case o.TTL < 2e9:
		has = append(has, shortTTL)
	case o.TTL < 10e9:
		has = append(has, mediumTTL)
	default:
		has = append(has, longTTL)
	}
	for i, there := range []bool{o.MinHold > 0, o.MaxHold > 0, o.Delay > 0, o.Value != ""} {
		if there {
			has = append(has, optionNames[3+i])
		}
	}
	return has
}

// meet counts what has met in one acquisition. Events are the faults that have hit its process from
// the call until it was unlocked.
func (r *run) meet(c *Coverage, l *lease, faults map[string]int) {
	has, ending := l.optionsOf(), l.endedBy()
	for i, a := range has {
		for _, b := range has[i+1:] {
			c.Met[pair(a, b)]++
		}
		c.Met[pair(l.what, a)]++
		c.Met[pair(l.options.User, a)]++
		if ending != "" {
			c.Met[pair(ending, a)]++
		}
	}
	c.Met[pair(l.options.User, l.what)]++
	if ending != "" {
		c.Met[pair(l.what, ending)]++
	}
	end := l.ret
	switch {
	case l.unlocked != never:
		end = l.unlocked
	case r.killed(l.proc) != never:
		end = max(end, r.killed(l.proc)+1)
	}
	hit := make(map[string]bool)
	for _, f := range r.faults {
		if f.hits(l.proc) && f.from < end && f.to > l.call && faults[f.kind] > 0 {
			hit[f.kind] = true
		}
	}
	for event := range hit {
		c.Met[pair(l.what, event)]++
		c.Met[pair(l.options.User, event)]++
		if ending != "" {
			c.Met[pair(ending, event)]++
		}
		for _, a := range has {
			c.Met[pair(a, event)]++
		}
	}
}

// meetBeside counts the readers of a name, and the permits of a semaphore, that were held at the same
// time as one with another TTL. The leases come in the order in which they were acquired.
func (c *Coverage) meetBeside(leases []*lease) {
	var open []*lease
	for _, l := range leases {
		if l.what == "" || l.believed() <= l.ret {
			continue
		}
		open = slices.DeleteFunc(open, func(other *lease) bool { return other.believed() <= l.ret })
		for _, other := range open {
			switch {
			case other.options.TTL == l.options.TTL:
			case l.shared && other.shared:
				c.Met[readers]++
			case l.permit && other.permit:
				c.Met[permits]++
			}
		}
		open = append(open, l)
	}
}

// meetBatches counts the rare states of names that were requested in one statement, behind others.
// What the tables said last tells the state.
func (r *run) meetBatches(c *Coverage) {
	var rows *history.Event
	guards := make(map[string]map[string]bool) // calls that guard a name, by name
	procs := make(map[string]string)           // of Lockers
	for i := range r.events {
		e := &r.events[i]
		if e.Locker != "" {
			procs[e.Locker] = e.Proc
		}
		switch {
		case e.Op == history.Rows:
			rows = e
		case e.Op == history.Guarded && !e.Ret:
			if guards[e.Name] == nil {
				guards[e.Name] = make(map[string]bool)
			}
			guards[e.Name][e.ID] = true
		case e.Op == history.Guarded:
			delete(guards[e.Name], e.ID)
		case e.Op == history.Requested && !e.Ret && e.Reason == history.Acquire && rows != nil && len(e.Requests) > 1:
			for k := range e.Requests[1:] {
				q := &e.Requests[1+k]
				if len(guards[q.Name]) > 0 {
					c.Met[pair(later, "guarded")]++
				}
				for _, state := range r.states(rows, q, procs) {
					c.Met[pair(later, state)]++
				}
			}
		}
	}
}

// states returns in which rare states a name was. procs are the processes of Lockers.
func (r *run) states(e *history.Event, q *history.Request, procs map[string]string) (all []string) {
	i := slices.IndexFunc(e.Names, func(row history.Row) bool { return row.Name == q.Name })
	now, ok := r.clock.wall(e.T)
	if i < 0 || !ok {
		return nil
	}
	row := &e.Names[i]
	switch {
	case row.Acq != "" && row.Expires <= now:
		all = append(all, "expired")
	case row.Acq != "" && row.Locker == "":
		all = append(all, "detached")
	case row.Acq == "" && row.Before > now:
		all = append(all, "kept")
	}
	if q.Permits != 0 && row.Permits != 0 && q.Permits != row.Permits {
		all = append(all, "other permits")
	}
	if slices.ContainsFunc(row.Claims, func(c history.Claim) bool { return !c.Holding && r.killed(procs[c.Locker]) <= e.T }) {
		all = append(all, crashedWaiter)
	}
	return all
}

// Add adds what has met in another cell.
func (c *Coverage) Add(other Coverage) {
	if c.Met == nil {
		c.Met, c.Possible = make(map[string]int), make(map[string]bool)
	}
	for pair, n := range other.Met {
		c.Met[pair] += n
	}
	maps.Copy(c.Possible, other.Possible)
}

// Missing returns the pairs that can meet and have not.
func (c *Coverage) Missing() (pairs []string) {
	for pair := range c.Possible {
		if c.Met[pair] == 0 {
			pairs = append(pairs, pair)
		}
	}
	slices.SortFunc(pairs, cmp.Compare[string])
	return pairs
}

// NotBeside returns those leases that were never held at the same time: each run with many cells must
// show them.
func (c *Coverage) NotBeside() []string {
	return slices.DeleteFunc(slices.Clone(besides), func(pair string) bool { return c.Met[pair] > 0 })
}

func (c *Coverage) String() string {
	return fmt.Sprintf("%d of %d pairs", len(c.Possible)-len(c.Missing()), len(c.Possible))
}

// Few reports that less than some hundredths of the pairs have met. There is no failure if none can.
func (c Coverage) Few(least int) []Failure {
	missing := c.Missing()
	if met := len(c.Possible) - len(missing); met*100 < len(c.Possible)*least {
		return []Failure{fail(Covered, 0, "%v have met, and less than %d in a hundred; not: %s", &c, least, strings.Join(missing, ", "))}
	}
	return nil
}
