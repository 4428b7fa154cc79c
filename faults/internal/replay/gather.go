package replay

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/faults/internal/history"
)

// never is the end of what has not ended.
const never = math.MaxInt64

// late is how long after the end of a call whose answer was lost it may take effect. The faults keep
// nothing back for longer.
const late = 10_000_000

// longest is how long a call takes at most. It is for those of clients that were killed.
const longest = 20_000_000

// Times here are microseconds on the clock of the database, which is that of the machine.

// call is what one call of a store requests of a name.
type call struct {
	history.Request
	*stored
	acq     driver.ID
	used    bool // it has made a change
	excused bool // it has made none, and there is nothing to compare with its answer
}

// stored is a call of a store.
type stored struct {
	what     string
	locker   driver.ID
	from, to int64
	known    bool  // what it has answered
	vain     bool  // its error says that it has done nothing
	event    int64 // ns
	calls    []*call
}

// span is a time.
type span struct{ from, to int64 }

// name is all that is known of a name.
type name struct {
	name    string
	calls   []*call // in the order in which they began
	byAcq   map[driver.ID][]*call
	changes []*change
	reads   []*read
	guards  []span
}

// change is a change of a row, with its number.
type change struct {
	history.Change
	number int
}

// gathered is a history.
type gathered struct {
	clock   clock
	byName  map[string]*name
	beats   map[driver.ID][]beat
	stores  map[driver.ID][]*stored // by Locker, in the order in which they began
	crashes []span                  // of the server, at some time between
	leases  map[string]*lease
	noted   bool // the history has changes
}

// beat is until when a Locker counts as alive from a time on.
type beat struct{ at, until int64 }

// lease is what a client was granted.
type lease struct {
	history.Event
	unlock int64 // ns
}

func (h *gathered) names() []string { return slices.Sorted(maps.Keys(h.byName)) }

func (h *gathered) of(what string) *name {
	n := h.byName[what]
	if n == nil {
		n = &name{name: what, byAcq: make(map[driver.ID][]*call)}
		h.byName[what] = n
	}
	return n
}

// gather sorts the events by names.
func gather(events []history.Event) *gathered {
	h := &gathered{
		clock: clockOf(events), byName: make(map[string]*name), beats: make(map[driver.ID][]beat), stores: make(map[driver.ID][]*stored),
		leases: make(map[string]*lease),
	}
	open := make(map[string]history.Event)
	number := 0
	for _, e := range events {
		switch {
		case e.Op == history.Changed:
			h.noted = true
			for _, c := range e.Changes {
				number++
				h.addChange(&change{c, number})
			}
		case e.Op == history.Rows:
			h.addRows(e)
		case e.Op == history.Fault && crashes[e.Reason]:
			h.addCrash(e)
		case e.Op == history.Look:
			h.addLook(e)
		case e.ID == "":
		case !e.Ret:
			open[e.ID] = e
		default:
			h.addReturn(open[e.ID], e)
			delete(open, e.ID)
		}
		if e.Op == history.Unlock && !e.Ret {
			if l := h.leases[e.Lease]; l != nil {
				l.unlock = e.T
			}
		}
	}
	for _, e := range open {
		h.addReturn(e, history.Event{T: never, Err: "the process has ended"})
	}
	for _, n := range h.byName {
		slices.SortStableFunc(n.calls, func(a, b *call) int { return cmp.Compare(a.event, b.event) })
		for _, c := range n.calls {
			n.byAcq[c.acq] = append(n.byAcq[c.acq], c)
		}
	}
	for _, all := range h.stores {
		slices.SortFunc(all, func(a, b *stored) int { return cmp.Compare(a.from, b.from) })
	}
	return h
}

func (h *gathered) addChange(c *change) {
	r := cmp.Or(c.New, c.Old)
	if c.Table != history.WaiterTable {
		n := h.of(r.Name)
		n.changes = append(n.changes, c)
		return
	}
	locker := id(r.Locker)
	until := int64(0)
	if c.New != nil {
		until = r.Expires
	}
	h.beats[locker] = append(h.beats[locker], beat{c.At, until})
}

// addCrash adds the begin or the end of a crash.
func (h *gathered) addCrash(e history.Event) {
	if at := h.clock.wall(e.T); !e.Ret {
		h.crashes = append(h.crashes, span{at, never})
	} else if n := len(h.crashes); n > 0 {
		h.crashes[n-1].to = at
	}
}

// crashes are the faults that end the server: what it has not flushed is undone.
var crashes = map[string]bool{"server-kill": true, "promotion": true, "promotion-frozen": true}

// unflushed is for how long a server may keep what it need not flush at once.
const unflushed = 3_000_000

// crashed reports that a crash may have undone what was seen at some time between, and need not be
// flushed.
func (h *gathered) crashed(from, to int64) bool {
	return slices.ContainsFunc(h.crashes, func(c span) bool { return from <= c.to && to >= c.from-unflushed })
}

func (h *gathered) addReturn(before, after history.Event) {
	switch before.Op {
	case history.Requested:
		h.addCalls(before, after)
	case history.Lock:
		if after.Err == "" {
			h.addLease(before, after)
		}
	case history.Guarded:
		g := span{h.clock.wall(before.T), never}
		if after.Err == "" {
			g.to = h.clock.wall(after.T)
		}
		n := h.of(before.Name)
		n.guards = append(n.guards, g)
	}
}

func (h *gathered) addCalls(before, after history.Event) {
	s := &stored{what: before.Reason, locker: id(before.Locker), from: before.Wall, event: before.T}
	switch {
	case after.Err == "":
		s.known, s.to = true, after.Wall
	case after.T == never:
		s.to = before.Wall + longest + late
	case after.Refuse:
		s.vain, s.to = true, after.Wall
	default:
		s.to = after.Wall + late
	}
	h.stores[s.locker] = append(h.stores[s.locker], s)
	for i := range before.Requests {
		c := &call{Request: before.Requests[i], stored: s}
		c.acq = id(c.Acq)
		if s.known {
			c.Answer = after.Requests[i].Answer
		}
		s.calls = append(s.calls, c)
		n := h.of(c.Name)
		n.calls = append(n.calls, c)
	}
}

func (h *gathered) addLease(before, after history.Event) {
	l := &lease{Event: after, unlock: never}
	h.leases[after.Lease] = l
	n := h.of(after.Name)
	from, to := h.clock.wall(before.T), h.clock.wall(after.T)
	n.reads = append(n.reads, &read{
		from: from - slack, to: to + slack, what: what{event: &l.Event},
		ok: func(w *world) bool { return w.has(l, 0) },
	})
}

func (h *gathered) addLook(e history.Event) {
	l := h.leases[e.Lease]
	if !e.OK || e.Left <= 0 || l == nil || e.Until >= l.unlock {
		return
	}
	n := h.of(l.Name)
	at := h.clock.wall(e.T)
	n.reads = append(n.reads, &read{
		from: at - slack, to: h.clock.wall(e.Until) + slack, what: what{event: &e},
		ok: func(w *world) bool { return w.has(l, at-slack) },
	})
}

// slack is by how much a time of a client is converted wrongly at most.
const slack = 500

func (h *gathered) addRows(e history.Event) {
	from, to := e.Wall, h.clock.wall(e.Until)
	for i := range e.Names {
		r := &e.Names[i]
		n := h.of(r.Name)
		w := worldOf(r)
		n.reads = append(n.reads, &read{from: from - slack, to: to + slack, what: what{event: &e, row: r}, row: w})
	}
}

// id reads an ID, or none.
func id(text string) (id driver.ID) {
	if text != "" && id.UnmarshalText([]byte(text)) != nil {
		panic("bug: no ID: " + text)
	}
	return id
}

// clock converts between the clock of the history and that of the database.
type clock struct{ t, ahead []int64 } // at t, in ns, the database is so many µs ahead

// nearby is how many events before and after one tell its time, too.
const nearby = 16

// clockOf makes a clock of the events that have both times. The time of day was read after the
// other one, perhaps long after: so the least difference of some events is right.
func clockOf(events []history.Event) (c clock) {
	var all []int64
	for _, e := range events {
		if e.Wall != 0 {
			c.t, all = append(c.t, e.T), append(all, e.Wall-e.T/1000)
		}
	}
	for i := range all {
		c.ahead = append(c.ahead, slices.Min(all[max(0, i-nearby):min(len(all), i+nearby+1)]))
	}
	return c
}

func (c clock) at(t int64) int64 {
	if len(c.t) == 0 {
		return 0
	}
	i, _ := slices.BinarySearch(c.t, t)
	return c.ahead[min(i, len(c.t)-1)]
}

func (c clock) wall(t int64) int64 {
	if t == never {
		return never
	}
	return t/1000 + c.at(t)
}

func (c clock) raw(wall int64) int64 {
	if len(c.t) == 0 {
		return 0
	}
	return (wall - c.ahead[0]) * 1000
}
