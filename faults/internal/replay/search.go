package replay

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/faults/internal/history"
	"github.com/sqllock/sqllock/internal/claim"
)

// searcher searches for the order of the steps of one name.
type searcher struct {
	h        *gathered
	n        *name
	renewals []span // of claims
	acquires map[driver.ID][]*call
	lost     []*call // calls whose answers were lost, in the order of their beginnings
	until    time.Time
	unseen   bool // grants of which nobody knows are possible
}

// state is what a name may be like at some time, and how it became so.
type state struct {
	*world
	open      []*call // calls under way, whose answers are known
	unsure    []*read // what was seen meanwhile, and not explained yet
	past      []past  // worlds that may still be seen
	unflushed []*world
	last      int64 // when the world was changed
}

// past is a world that is over, and may be seen until the change is committed.
type past struct {
	*world
	until int64
}

// item is something that happened at a known time.
type item struct {
	at   int64
	kind kind
	g    *grant
	c    *call
	r    *read
}

// position is that among items of one time.
func (s *searcher) position(i *item) int {
	switch {
	case i.c != nil:
		return i.c.position
	case i.g == nil:
		return 0
	}
	for _, c := range s.acquires[i.g.acq] {
		if c.Granted && c.Got == i.g.token {
			return c.position
		}
	}
	return 0
}

type kind int

// In the order in which items of one time are looked at.
const (
	callBegins kind = iota
	readBegins
	crashed
	changed
	callEnds
	readEnds
)

func (i *item) String() string {
	switch {
	case i.g != nil:
		return i.g.String()
	case i.c != nil:
		return i.c.String()
	case i.r != nil:
		return i.r.what.String()
	}
	return "the crash of the server"
}

// most is how many states may be looked at at the same time.
const most = 4096

// search returns what no order explains, or nil.
func search(h *gathered, n *name, until time.Time) (stuck *item, unknown bool) {
	s := &searcher{h: h, n: n, until: until, acquires: make(map[driver.ID][]*call)}
	items := s.items()
	for _, c := range n.calls { // the clock of the database is that of the machine
		if c.known && c.Now != 0 && (c.Now < c.from-resolution || c.Now > c.to+resolution) {
			return &item{at: c.from, c: c}, false
		}
	}
	before := make([][]*state, len(items)+1) // each item
	before[0] = []*state{{world: &world{}}}
	for i := range items {
		if time.Now().After(until) {
			return nil, true
		}
		it := &items[i]
		next := s.step(before[i], it)
		if len(next) == 0 {
			next = s.rescue(before[i], it)
		}
		for back := 1; len(next) == 0 && back <= farthest; back *= 4 {
			next = s.again(items[:i+1], before, back)
		}
		if len(next) == 0 && time.Now().After(until) {
			return nil, true
		}
		if len(next) == 0 {
			return it, false
		}
		if len(next) > most {
			return nil, true
		}
		before[i+1] = next
	}
	return nil, false
}

// resolution is that of the clock of a database, and more.
const resolution = 2000

// farthest is how many items before one that nothing explains the search goes back.
const farthest = 256

// many is how many states are enough to try steps of which nobody knows.
const many = 64

// again does the last items anew, with all steps of which nobody knows between them. It goes back
// some items, or to the first of what was seen.
func (s *searcher) again(items []item, before [][]*state, back int) []*state {
	from := max(0, len(items)-1-back)
	states := before[from]
	for i := from; i < len(items); i++ {
		if time.Now().After(s.until) {
			return nil
		}
		all := states
		for _, st := range states {
			for _, to := range s.hidden(st, items[i].at) {
				if s.known(st.world, to.world) && len(all) < many {
					all = add(slices.Clone(all), to)
				}
			}
		}
		if states = s.step(all, &items[i]); len(states) == 0 {
			return nil
		}
	}
	return states
}

// items are all of a name, in the order of time.
func (s *searcher) items() (items []item) {
	add := func(at int64, k kind, g *grant, c *call, r *read) { items = append(items, item{at, k, g, c, r}) }
	for _, c := range s.n.calls {
		s.itemsOf(c, add)
	}
	for g, at := range s.n.at {
		if g.at = at; at != 0 {
			add(at, changed, &g, nil, nil)
		}
	}
	for _, r := range s.n.reads {
		add(r.from, readBegins, nil, nil, r)
		add(r.to, readEnds, nil, nil, r)
	}
	for _, c := range s.h.crashes {
		add(c.from, crashed, nil, nil, nil)
	}
	slices.SortStableFunc(items, func(a, b item) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.kind, b.kind), cmp.Compare(s.position(&a), s.position(&b)), compare(a.g, b.g))
	})
	return items
}

// compare gives grants of one time some order.
func compare(a, b *grant) int {
	if a == nil || b == nil {
		return 0
	}
	return cmp.Or(cmp.Compare(a.token, b.token), bytes.Compare(a.acq[:], b.acq[:]))
}

// itemsOf adds what is known of the times of a call.
func (s *searcher) itemsOf(c *call, add adder) {
	looks := func(to int64, ok func(w *world) bool) {
		r := &read{from: c.from, to: to, what: what{call: c}, ok: ok}
		add(r.from, readBegins, nil, nil, r)
		add(r.to, readEnds, nil, nil, r)
	}
	if c.what == history.Acquire {
		s.acquires[c.acq] = append(s.acquires[c.acq], c)
	}
	if c.what == history.Renew && c.Shared {
		s.renewals = append(s.renewals, span{c.from, min(c.to, c.from+15e6)})
	}
	if !c.known && c.what != history.Reading {
		s.lost = append(s.lost, c)
		for _, at := range s.instants(c) {
			add(at, changed, nil, c, nil)
		}
		return
	}
	switch c.what {
	case history.Acquire:
		s.itemsOfAcquire(c, add, looks)
	case history.Renew:
		s.itemsOfRenewal(c, add, looks)
	case history.Reading:
		if c.Holder != "" {
			g := &grant{token: c.Got, acq: id(c.Holder)}
			looks(c.Now, func(w *world) bool { return w.hasTerm(g) && w.row.Expires == c.Expires })
		}
	default:
		if c.what == history.Withdraw || c.Freed {
			add(c.from, callBegins, nil, c, nil)
			add(c.to, callEnds, nil, c, nil)
		} else if !c.Guarded {
			looks(c.to, func(w *world) bool { return !w.hasTerm(&grant{token: c.Token, acq: c.acq, shared: c.Shared}) })
		}
	}
}

// adder adds an item.
type adder func(at int64, k kind, g *grant, c *call, r *read)

// looker adds that some world until a time must explain a call.
type looker func(to int64, ok func(w *world) bool)

func (s *searcher) itemsOfAcquire(c *call, add adder, looks looker) {
	g := &grant{token: c.Got, acq: c.acq, slot: c.Slot, shared: c.Shared}
	switch {
	case c.Granted && !c.Found: // the grant is looked at
	case c.Granted:
		looks(c.Now, func(w *world) bool { return w.hasTerm(g) })
	case c.Waits:
		add(s.exactly(c), changed, nil, c, nil)
	case c.All && !c.Refused: // another name was in the way
	default:
		looks(c.Now, func(w *world) bool { return s.apply(w, c, c.Now, func(*world) bool { return true }) != nil })
	}
}

func (s *searcher) itemsOfRenewal(c *call, add adder, looks looker) {
	switch {
	case c.Status == "gone":
		looks(c.to, func(w *world) bool { return c.renew(w, c.to) == nil })
	case c.Status != "renewed": // nothing was done
	case s.isExact(c) && !c.Shared:
		add(s.exactly(c), changed, nil, c, nil)
	case s.isExact(c): // it locks its claim, not the row
		c.when = s.exactly(c)
		add(c.when, callBegins, nil, c, nil)
		add(c.to, callEnds, nil, c, nil)
	default:
		add(c.from, callBegins, nil, c, nil)
		add(c.to, callEnds, nil, c, nil)
	}
}

// exactly returns when a call took effect. It has told when it read the clock; a snapshot may tell
// it better.
func (s *searcher) exactly(c *call) int64 {
	for _, at := range s.instants(c) {
		if at >= c.from && at <= c.Now {
			return at
		}
	}
	return c.Now
}

// isExact reports that it is known when a renewal took effect.
func (s *searcher) isExact(c *call) bool { return c.exact || s.exactly(c) != c.Now }

// instants are the times at which a call may have taken effect, as snapshots tell.
func (s *searcher) instants(c *call) (all []int64) {
	switch c.what {
	case history.Acquire:
		all = s.n.entries[c.acq]
		if c.Shared { // a reader who joins others gets their token
			for _, end := range s.n.expiries[c.acq] {
				all = append(slices.Clone(all), end-c.TTL)
			}
		}
	case history.Renew:
		for _, end := range s.n.expiries[c.acq] {
			all = append(all, end-c.TTL)
		}
	}
	all = slices.DeleteFunc(slices.Clone(all), func(at int64) bool { return at < c.from })
	slices.Sort(all)
	return slices.Compact(all)
}

// step does an item in each state.
func (s *searcher) step(states []*state, it *item) (next []*state) {
	for _, st := range states {
		for _, to := range s.do(st, it) {
			next = add(next, to)
		}
	}
	return next
}

// do returns the states to which an item leads.
func (s *searcher) do(st *state, it *item) []*state {
	switch it.kind {
	case callBegins:
		to := *st
		to.open = append(slices.Clone(st.open), it.c)
		return []*state{&to}
	case readBegins:
		return []*state{st.reads(it.r)}
	case readEnds:
		if slices.Contains(st.unsure, it.r) {
			return nil
		}
		return []*state{st}
	case crashed:
		return st.crash(it.at)
	case changed:
		if it.g != nil {
			return s.grants(st, it.g)
		}
		return s.tries(st, it.c, it.at)
	}
	return s.ends(st, it.c)
}

// reads begins to look for a world that explains what was seen.
func (st *state) reads(r *read) *state {
	if r.ok(st.world) || slices.ContainsFunc(st.past, func(p past) bool { return p.until >= r.from && r.ok(p.world) }) {
		return st
	}
	to := *st
	to.unsure = append(slices.Clone(st.unsure), r)
	return &to
}

// becomes is the state after a change at a time, by a call that is over at another one.
func (st *state) becomes(r *result, at, until int64, used *call) *state {
	to := *st
	if used != nil {
		to.open = slices.DeleteFunc(slices.Clone(st.open), func(c *call) bool { return c == used })
	}
	if r.world == st.world {
		return &to
	}
	to.world, to.last = r.world, max(st.last, at)
	to.past = append(slices.DeleteFunc(slices.Clone(st.past), func(p past) bool { return p.until < at-1e6 }), past{st.world, until})
	if used != nil && used.what == history.Renew && used.Shared { // it may be seen before what was changed earlier
		for _, p := range to.past {
			if w := used.renew(p.world, cmp.Or(used.when, at)); w != nil {
				to.past = append(to.past, past{w, p.until})
			}
		}
	}
	to.unflushed = nil
	if !r.durable {
		to.unflushed = append(slices.Clone(st.unflushed), st.world)
	}
	to.unsure = slices.DeleteFunc(slices.Clone(st.unsure), func(q *read) bool { return q.ok(r.world) })
	return &to
}

// crash adds the states in which what was not flushed is undone.
func (st *state) crash(at int64) []*state {
	all := []*state{st}
	for _, w := range st.unflushed {
		to := st.becomes(&result{w, true}, at, at+1e6, nil)
		all = append(all, to)
	}
	return all
}

// add adds a state, unless there is one that may go on in the same ways.
func add(all []*state, st *state) []*state {
	for i, other := range all {
		switch {
		case other.covers(st):
			all[i] = other.remembers(st.past)
			return all
		case st.covers(other):
			all[i] = st.remembers(other.past)
			return all
		}
	}
	return append(all, st)
}

// remembers adds worlds that may still be seen.
func (st *state) remembers(more []past) *state {
	to := *st
	for _, p := range more {
		if !slices.ContainsFunc(to.past, func(q past) bool { return q.until >= p.until && q.world.same(p.world) }) {
			to.past = append(slices.Clone(to.past), p)
		}
	}
	return &to
}

// covers reports that all that may follow a state may follow this one, too.
func (st *state) covers(other *state) bool {
	for _, r := range st.unsure {
		if !slices.Contains(other.unsure, r) {
			return false
		}
	}
	return st == other || slices.Equal(st.open, other.open) && st.world.same(other.world)
}

// unknown are the calls that may take effect at a time in a world, and whose answers were lost. Of
// calls for the same there is one: they may be repeated.
func (s *searcher) unknown(w *world, at int64) (all []*call) {
	for _, c := range s.lost {
		if c.from > at {
			break
		}
		if c.to < at || w.vain(c) {
			continue
		}
		i := slices.IndexFunc(all, func(o *call) bool { return o.what == c.what && o.acq == c.acq && o.Waits == c.Waits })
		switch {
		case i < 0:
			all = append(all, c)
		case c.to > all[i].to:
			all[i] = c
		}
	}
	return all
}

// vain reports that a call has nothing to do: it is about a term that is over, or about nothing.
func (w *world) vain(c *call) bool {
	held := w.find(c.acq)
	switch c.what {
	case history.Renew, history.Release:
		return (w.row.Acq != c.acq || w.row.Version != c.Token) && (held == nil || held.Token != c.Token)
	case history.Withdraw:
		return w.row.Acq != c.acq && held == nil
	}
	return w.row.Acq == c.acq || held != nil && (held.State == claim.Holding || c.Waits)
}

// before returns the state, and those after some of the calls under way that free something.
func (s *searcher) before(st *state, at int64) []*state {
	all := []*state{st}
	for i := 0; i < len(all); i++ {
		for _, c := range all[i].open {
			if c.from > at || c.to < at {
				continue
			}
			now := min(at, max(all[i].last, c.from))
			if r := s.apply(all[i].world, c, now, func(to *world) bool { return s.known(all[i].world, to) }); r != nil {
				all = append(all, all[i].becomes(r, now, c.to, c))
			}
		}
	}
	return all
}

// known reports that each grant of a step is one of which somebody has told.
func (s *searcher) known(before, after *world) bool {
	if s.unseen || before == after {
		return true
	}
	if after.row.Version == before.row.Version {
		return true
	}
	acqs, ok := s.n.tokens[after.row.Version]
	return ok && (len(acqs) == 0 || slices.ContainsFunc(acqs, func(acq driver.ID) bool { return after.row.Acq == acq || after.find(acq) != nil }))
}

// grants looks for what has granted the name.
func (s *searcher) grants(st *state, g *grant) (next []*state) {
	if st.hasTerm(g) {
		return []*state{st}
	}
	for _, from := range s.before(st, g.at) {
		accept := func(to *world) bool { return to.hasTerm(g) && s.known(from.world, to) }
		if from.hasTerm(g) {
			next = append(next, from)
		}
		for _, c := range slices.Concat(s.acquiring(g), from.open, s.unknown(from.world, g.at)) {
			if c.from > g.at || c.to < g.at || c.what == history.Renew || c.what == history.Acquire && c.known && (!c.Granted || c.Found || c.Got != g.token) {
				continue
			}
			if r := s.apply(from.world, c, g.at, accept); r != nil {
				next = append(next, from.becomes(r, g.at, c.to, c))
			}
		}
		next = append(next, s.served(from, g.at, accept)...)
	}
	return next
}

// acquiring are the calls that may have acquired a grant.
func (s *searcher) acquiring(g *grant) (all []*call) {
	if g.acq != (driver.ID{}) {
		return s.acquires[g.acq]
	}
	for _, acq := range s.n.tokens[g.token] {
		all = append(all, s.acquires[acq]...)
	}
	return all
}

// served are the states after a visit that only serves the queue.
func (s *searcher) served(st *state, at int64, accept func(*world) bool) (next []*state) {
	lockers := []driver.ID{{}}
	for i := range st.claims {
		if c := &st.claims[i]; c.State == claim.Waiting && !slices.Contains(lockers, c.Locker) {
			lockers = append(lockers, c.Locker)
		}
	}
	for _, by := range lockers {
		if r := s.advance(st.world, by, at, accept); r != nil {
			next = append(next, st.becomes(r, at, at+10e6, nil))
		}
	}
	return next
}

// tries does a call at a time.
func (s *searcher) tries(st *state, c *call, at int64) (next []*state) {
	if !c.known {
		next = append(next, st)
	}
	for _, from := range s.before(st, at) {
		accept := func(to *world) bool { return s.known(from.world, to) }
		if r := s.apply(from.world, c, at, accept); r != nil {
			next = append(next, from.becomes(r, at, c.to, c))
		}
	}
	if len(next) > 0 || !c.Waits {
		return next
	}
	for _, p := range st.past { // an answer that needed no change
		if p.until >= c.from && s.apply(p.world, c, at, func(to *world) bool { return to == p.world }) != nil {
			return []*state{st}
		}
	}
	return nil
}

// ends does a call that is over, if that was not done before.
func (s *searcher) ends(st *state, c *call) (next []*state) {
	if !slices.Contains(st.open, c) {
		return []*state{st}
	}
	for _, from := range s.before(st, c.to) {
		if !slices.Contains(from.open, c) {
			next = append(next, from)
		} else if c.what == history.Renew && c.Shared && from.renewedBefore(c) {
			to := *from
			to.open = slices.DeleteFunc(slices.Clone(from.open), func(o *call) bool { return o == c })
			next = append(next, &to)
		}
	}
	return next
}

// renewedBefore reports that a claim was renewed in a world that was not over yet: whoever ended the
// term had read the clock before.
func (st *state) renewedBefore(c *call) bool {
	return slices.ContainsFunc(st.past, func(p past) bool { return p.until >= c.from && c.renew(p.world, cmp.Or(c.when, c.from)) != nil })
}

// rescue looks for steps of which nobody knows, and after which an item is possible: calls whose
// answers were lost, and visits that serve the queue.
func (s *searcher) rescue(states []*state, it *item) []*state {
	s.unseen = true
	defer func() { s.unseen = false }()
	const deepest, widest = 3, 512
	for range deepest {
		var more []*state
		for _, st := range states {
			for _, to := range s.hidden(st, it.at) {
				if len(more) < widest {
					more = add(more, to)
				}
			}
		}
		if next := s.step(more, it); len(next) > 0 {
			return next
		}
		states = more
	}
	return nil
}

// hidden are the states to which steps lead of which nobody knows.
func (s *searcher) hidden(st *state, at int64) (next []*state) {
	accept := func(*world) bool { return true }
	for _, c := range slices.Concat(st.open, s.unknown(st.world, at)) {
		for _, now := range slices.Compact([]int64{max(st.last, c.from), at}) {
			if c.from > at || now > at {
				continue
			}
			if r := s.apply(st.world, c, now, accept); r != nil {
				next = append(next, st.becomes(r, now, c.to, c))
			}
		}
	}
	next = append(next, s.served(st, at, accept)...)
	if slices.ContainsFunc(s.h.crashes, func(c span) bool { return c.from <= at && at <= c.to }) {
		next = append(next, st.crash(at)[1:]...)
	}
	if r := s.sweep(st.world, at, accept); r != nil {
		next = append(next, st.becomes(r, at, at+10e6, nil))
	}
	return next
}
