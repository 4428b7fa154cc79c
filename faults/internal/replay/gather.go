package replay

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/faults/internal/history"
	"github.com/sqllock/sqllock/internal/claim"
)

// never is the end of what has not ended.
const never = math.MaxInt64

// late is how long after a call whose answer was lost it may take effect. The faults keep nothing
// back for longer.
const late = 10_000_000

// Times here are microseconds on the clock of the database, which is that of the machine.

// call is what one call of a store requests of a name.
type call struct {
	history.Request
	what     string
	acq      driver.ID
	locker   driver.ID
	from, to int64
	known    bool  // what it has answered
	exact    bool  // the answer tells when it took effect
	when     int64 // when a renewal of a claim took effect, if that is known
	event    int64
	position int // among all calls; a visit serves its requests in their order
}

// grant is a term of which somebody has seen the token. The acquisition may be unknown.
type grant struct {
	at, token int64
	acq       driver.ID
	slot      int
	shared    bool
}

// span is a time.
type span struct{ from, to int64 }

// name is all that is known of a name.
type name struct {
	name      string
	calls     []*call
	at        map[grant]int64       // when each was, or 0; the keys have no time
	tokens    map[int64][]driver.ID // of whom each token that somebody has seen may be
	reads     []*read
	guards    []span
	expiries  map[driver.ID][]int64 // that somebody has seen
	entries   map[driver.ID][]int64 // when claims entered the queue
	looks     int
	snapshots int
}

// gathered is a history.
type gathered struct {
	clock   clock
	byName  map[string]*name
	beats   map[driver.ID][]beat
	crashes []span // of the server, at some time between
	leases  map[string]*lease
}

// beat is until when a Locker counted as alive at a time.
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
		n = &name{name: what, at: make(map[grant]int64), tokens: make(map[int64][]driver.ID), expiries: make(map[driver.ID][]int64), entries: make(map[driver.ID][]int64)}
		h.byName[what] = n
	}
	return n
}

// gather sorts the events by names.
func gather(events []history.Event) *gathered {
	h := &gathered{clock: clockOf(events), byName: make(map[string]*name), beats: make(map[driver.ID][]beat), leases: make(map[string]*lease)}
	open := make(map[string]history.Event)
	for _, e := range events {
		switch {
		case e.Op == history.Rows:
			h.addRows(e)
		case e.Op == history.Fault && crashes[e.Reason]:
			h.addCrash(e)
		case e.Op == history.Look || e.Op == history.Done:
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
		slices.SortStableFunc(n.calls, func(a, b *call) int {
			return cmp.Or(cmp.Compare(a.event, b.event), cmp.Compare(a.position, b.position))
		})
		for i, c := range n.calls {
			c.position = i + 1
		}
		n.observe()
		n.anonymous()
	}
	return h
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
	for i := range before.Requests {
		c := &call{Request: before.Requests[i], what: before.Reason, from: before.Wall, event: before.T, position: i}
		c.acq, c.locker = id(c.Acq), id(before.Locker)
		if after.Err == "" && i < len(after.Requests) {
			c.Answer, c.known, c.to = after.Requests[i].Answer, true, after.Wall
			c.exact = !slices.ContainsFunc(after.Requests, func(a history.Request) bool { return a.Status != after.Requests[i].Status })
		} else if after.T != never {
			c.to = after.Wall + late
		} else {
			c.to = before.Wall + late
		}
		n := h.of(c.Name)
		n.calls = append(n.calls, c)
	}
}

func (h *gathered) addLease(before, after history.Event) {
	l := &lease{Event: after, unlock: never}
	h.leases[after.Lease] = l
	n := h.of(after.Name)
	n.looks++
	from, to := h.clock.wall(before.T), h.clock.wall(after.T)
	n.reads = append(n.reads, &read{from: from - slack, to: to + slack, what: what{event: &l.Event}, ok: func(w *world) bool { return w.has(l, 0) }})
}

func (h *gathered) addLook(e history.Event) {
	l := h.leases[e.Lease]
	if e.Op != history.Look || !e.OK || e.Left <= 0 || l == nil || e.Until >= l.unlock {
		return
	}
	n := h.of(l.Name)
	n.looks++
	at := h.clock.wall(e.T)
	n.reads = append(n.reads, &read{from: at - slack, to: h.clock.wall(e.Until) + slack, what: what{event: &e}, ok: func(w *world) bool { return w.has(l, at-slack) }})
}

// slack is by how much a time of a client is converted wrongly at most.
const slack = 500

func (h *gathered) addRows(e history.Event) {
	from, to := e.Wall, h.clock.wall(e.Until)
	for locker, until := range e.Beats {
		h.beats[id(locker)] = append(h.beats[id(locker)], beat{from, until})
	}
	for i := range e.Names {
		r := &e.Names[i]
		n := h.of(r.Name)
		n.snapshots++
		w := worldOf(r)
		n.reads = append(n.reads, &read{from: from, to: to, what: what{event: &e, row: r}, ok: func(other *world) bool { return other.shows(w) }})
		n.see(w)
	}
}

// see notes what a snapshot tells of times.
func (n *name) see(w *world) {
	n.token(w.row.Version)
	if w.row.Acq != (driver.ID{}) {
		n.granted(grant{token: w.row.Version, acq: w.row.Acq}, w.row.Since)
		n.expires(w.row.Acq, w.row.Expires)
	}
	for i := range w.claims {
		c := &w.claims[i]
		if c.State == claim.Waiting {
			n.entries[c.Acq] = append(n.entries[c.Acq], c.Seq)
			continue
		}
		n.expires(c.Acq, c.Expires)
		n.granted(grant{token: c.Token, acq: c.Acq, slot: c.Slot, shared: c.Kind == claim.Shared}, c.Since)
	}
}

func (n *name) expires(acq driver.ID, at int64) {
	if !slices.Contains(n.expiries[acq], at) {
		n.expiries[acq] = append(n.expiries[acq], at)
	}
}

// granted notes a grant. The first that is told of it knows best when it was.
func (n *name) granted(g grant, at int64) {
	if n.at[g] == 0 {
		n.at[g] = at
	}
	n.token(g.token)
	if !slices.Contains(n.tokens[g.token], g.acq) {
		n.tokens[g.token] = append(n.tokens[g.token], g.acq)
	}
}

// token notes that a term had a token.
func (n *name) token(token int64) {
	if _, ok := n.tokens[token]; !ok && token != 0 {
		n.tokens[token] = nil
	}
}

// observe notes what answers tell of grants, after the snapshots.
func (n *name) observe() {
	shared := make(map[driver.ID]bool)
	for _, c := range n.calls {
		if c.what == history.Acquire {
			shared[c.acq] = c.Shared
		}
	}
	for _, c := range n.calls {
		if c.Granted {
			g := grant{token: c.Got, acq: c.acq, slot: c.Slot, shared: c.Shared}
			n.expires(c.acq, c.Expires)
			switch {
			case !c.Shared && c.Found:
				n.granted(g, c.Got)
			case !c.Shared:
				n.granted(g, min(c.Got, c.Now)) // several at one moment have rising tokens
			case c.Found:
				n.granted(g, 0)
			default:
				n.granted(g, c.Now)
			}
		}
		if c.Holder != "" {
			n.expires(id(c.Holder), c.Expires)
			n.granted(grant{token: c.Got, acq: id(c.Holder)}, c.Got)
		}
		for _, next := range c.Next {
			acq := id(next.Acq)
			n.expires(acq, next.Expires)
			at := min(next.Token, next.Now)
			if shared[acq] {
				at = next.Now
			}
			n.granted(grant{token: next.Token, acq: acq, slot: next.Slot, shared: shared[acq]}, at)
		}
	}
}

// anonymous adds the tokens of which nobody knows who got them first. A term begins at its token.
func (n *name) anonymous() {
	begun := make(map[int64]bool)
	for g, at := range n.at {
		begun[g.token] = begun[g.token] || at == g.token || at != 0 && !g.shared
	}
	for token := range n.tokens {
		if !begun[token] {
			n.at[grant{token: token}] = token
		}
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

func clockOf(events []history.Event) (c clock) {
	for _, e := range events {
		if e.Wall != 0 {
			c.t, c.ahead = append(c.t, e.T), append(c.ahead, e.Wall-e.T/1000)
		}
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
