package quorum_test

import (
	"fmt"
	"slices"

	"github.com/sqllock/sqllock/internal/quorum"
)

// The model has three or five nodes, and acquisitions of one name by two clients. A client that crashes,
// or gives up, begins again with another acquisition while the messages of the former one are
// still under way. Each message can be late, and each can be lost: then no step ever delivers it.
// A node that restarts with its rows loses messages only.
const (
	maxNodes        = 5
	clients         = 2
	maxAcquisitions = 3
)

// rules are what an exploration is about.
type rules struct {
	nodes        int // 3 if it is 0
	need         int
	acquisitions int  // acquisitions in all
	forgets      int  // how often a node forgets all that it has stored
	heals        int  // how often a holder asks a node again
	late         bool // replies can be late; otherwise they are read at once, or lost
	// floor is a version that a node may draw in the place of the next one, if it is higher: that of
	// its clock, or the one that a client proposes.
	floor int64
	// clocks says that rows do not expire before the deadline of the holder. Otherwise any row
	// expires at any moment, and only the tokens have to be right.
	clocks bool

	// What can be wrong.
	noRaise      bool // versions that are too low count as raised
	raiseForeign bool // a raise does not look whose row it is
	countAbove   bool // a late reply with a version above the token counts for the grant
}

type phase uint8

const (
	idle phase = iota
	open
	held
	over
)

type world struct {
	rows         [maxNodes]row
	acquisitions [maxAcquisitions]acquisition
	forgets      int
	heals        int
	wrong        string
}

type row struct {
	acq     int // an acquisition, from 1, or 0
	version int64
}

type acquisition struct {
	phase    phase
	round    quorum.Round
	token    int64 // if it was granted
	floor    int64 // the highest token of those that were granted before it began
	requests [maxNodes]message
	raises   [maxNodes]message
	// raisedTo is the token of the raises, also when nobody has the name by it.
	raisedTo int64
	renewed  [maxNodes]bool // the row does not expire before the deadline
}

// message is a request to a node, or its reply.
type message struct {
	state   messageState
	version int64 // of a grant
}

type messageState uint8

const (
	none messageState = iota
	sent
	answered
)

// steps calls next with each world that can follow w, unless no acquisition can be granted any more.
func (r *rules) steps(w *world, next func(world)) {
	if !w.mayGrant(r) {
		return
	}
	for a := range r.acquisitions {
		r.clientSteps(w, a, next)
		for i := range r.nodes {
			r.replySteps(w, a, i, next)
			r.nodeSteps(w, a, i, next)
		}
	}
	for i := range r.nodes {
		if a := w.rows[i].acq; a != 0 && r.mayExpire(&w.acquisitions[a-1], i) {
			x := *w
			x.rows[i].acq = 0
			next(x)
		}
		if w.forgets < r.forgets && w.rows[i].version > 0 {
			x := *w
			x.rows[i] = row{}
			x.forgets++
			next(x)
		}
	}
}

func (w *world) mayGrant(r *rules) bool {
	for a := range r.acquisitions {
		if p := w.acquisitions[a].phase; p == idle || p == open {
			return true
		}
	}
	return false
}

// mayExpire reports whether the row of an acquisition on a node can expire now.
func (r *rules) mayExpire(a *acquisition, i int) bool {
	switch {
	case !r.clocks, a.phase == over:
		return true
	case a.phase == held:
		return !a.renewed[i]
	}
	return false // the deadline counts from before the first request, so the acquisition ends before
}

// clientSteps are those of a client by itself.
func (r *rules) clientSteps(w *world, a int, next func(world)) {
	switch t := &w.acquisitions[a]; {
	case t.phase == idle && w.mayBegin(a):
		x := *w
		y := &x.acquisitions[a]
		y.phase, y.round = open, quorum.NewRound(r.nodes, r.need)
		for i := range r.nodes {
			y.requests[i].state = sent
		}
		for i := range x.acquisitions {
			y.floor = max(y.floor, x.acquisitions[i].token)
		}
		next(x)
	case t.phase == open, t.phase == held: // it crashes, gives up or is at its deadline
		x := *w
		x.end(a)
		next(x)
	}
	if t := &w.acquisitions[a]; t.phase == held {
		r.renewals(w, a, next)
		r.healSteps(w, a, next)
	}
}

// mayBegin reports whether acquisition a is the next to begin, and a client is there to begin it.
func (w *world) mayBegin(a int) bool {
	busy := 0
	for i := range w.acquisitions {
		if p := w.acquisitions[i].phase; p == open || p == held {
			busy++
		}
	}
	return busy < clients && (a == 0 || w.acquisitions[a-1].phase != idle)
}

// end ends an acquisition. Nobody reads its replies any more.
func (w *world) end(a int) {
	t := &w.acquisitions[a]
	t.phase, t.round, t.renewed = over, quorum.Round{}, [maxNodes]bool{}
	for i := range maxNodes {
		if t.requests[i].state == answered {
			t.requests[i] = message{}
		}
	}
}

// renewals are those of a term that a quorum confirms. At most one node is missing.
func (r *rules) renewals(w *world, a int, next func(world)) {
	if !r.clocks {
		return
	}
	for missing := range r.nodes + 1 {
		x := *w
		t := &x.acquisitions[a]
		var replies [maxNodes]quorum.Reply
		for i := range r.nodes {
			t.renewed[i] = i != missing && x.rows[i].acq == a+1 && t.round.Version(i) != 0 && t.round.Version(i) == x.rows[i].version
			if replies[i] = quorum.No; t.renewed[i] {
				replies[i] = quorum.Yes
			}
		}
		if quorum.Judge(replies[:r.nodes], r.need) == quorum.Confirmed {
			next(x)
		}
	}
}

// healSteps ask a node again that does not keep the name for the term.
func (r *rules) healSteps(w *world, a int, next func(world)) {
	for i := range r.nodes {
		if t := &w.acquisitions[a]; w.heals < r.heals && w.rows[i].acq != a+1 && t.requests[i].state == none && t.raises[i].state == none {
			x := *w
			x.heals++
			x.acquisitions[a].round.Refuse(i)
			x.acquisitions[a].requests[i].state = sent
			next(x)
		}
	}
}

// nodeSteps are those in which a node executes a request.
func (r *rules) nodeSteps(w *world, a, i int, next func(world)) {
	if w.acquisitions[a].requests[i].state == sent {
		free, version := w.rows[i].acq == 0, w.rows[i].version
		r.answer(w, a, i, version+1, next)
		if free && r.floor > version+1 {
			r.answer(w, a, i, r.floor, next)
		}
	}
	if w.acquisitions[a].raises[i].state == sent {
		x := *w
		n, m, token := &x.rows[i], &x.acquisitions[a].raises[i], x.acquisitions[a].raisedTo
		m.state = none
		done := (n.acq == a+1 || r.raiseForeign && n.acq != 0) && n.version <= token
		if done {
			n.version = token
		}
		next(x) // the reply is lost, or refuses
		if done && x.acquisitions[a].reads() {
			x.acquisitions[a].round.Raise(i, true)
			x.decide(r, a)
			next(x)
		}
	}
}

// answer is the step in which a node executes a request, and draws a version if its row is free.
func (r *rules) answer(w *world, a, i int, version int64, next func(world)) {
	x := *w
	n, m := &x.rows[i], &x.acquisitions[a].requests[i]
	if n.acq == 0 {
		n.acq, n.version = a+1, version
	}
	m.state = none
	next(x) // the reply is lost, or refuses
	if n.acq == a+1 && x.acquisitions[a].reads() {
		*m = message{answered, n.version}
		if !r.late {
			x.read(r, a, i)
		}
		next(x)
	}
}

// reads reports whether the client still reads replies.
func (t *acquisition) reads() bool { return t.phase == open || t.phase == held }

// replySteps are those in which a client reads a reply. The model has no replies that refuse: they
// lead to the end of the acquisition only, which comes at any time. The reply to a raise is read at
// once, or lost: a term that begins later has the same token.
func (r *rules) replySteps(w *world, a, i int, next func(world)) {
	if w.acquisitions[a].requests[i].state == answered {
		x := *w
		x.read(r, a, i)
		next(x)
	}
}

func (w *world) read(r *rules, a, i int) {
	m := &w.acquisitions[a].requests[i]
	w.acquisitions[a].round.Grant(i, m.version)
	*m = message{}
	w.decide(r, a)
}

// decide does what a client does when it has read a reply.
func (w *world) decide(r *rules, a int) {
	t := &w.acquisitions[a]
	if r.countAbove {
		t.round.CountAbove()
	}
	t.raisedTo = t.round.Token()
	for _, i := range t.round.ToRaise() {
		if r.noRaise {
			t.round.Raise(i, true)
		} else {
			t.raises[i].state = sent
		}
	}
	if t.phase == open && t.round.Outcome() == quorum.Granted {
		w.grant(r, a)
	}
}

// grant begins a term, and notes what is wrong with it.
func (w *world) grant(r *rules, a int) {
	t := &w.acquisitions[a]
	t.phase, t.token = held, t.round.Token()
	for i := range r.nodes {
		t.renewed[i] = t.round.Version(i) != 0
	}
	for b := range w.acquisitions {
		o := &w.acquisitions[b]
		switch {
		case b == a:
		case o.token == t.token:
			w.wrong = fmt.Sprintf("acquisitions %d and %d have the token %d", a, b, t.token)
		case r.clocks && o.phase == held:
			w.wrong = fmt.Sprintf("acquisitions %d and %d hold the name", a, b)
		}
	}
	if t.token <= t.floor && w.wrong == "" {
		w.wrong = fmt.Sprintf("acquisition %d has the token %d, and one before it had %d", a, t.token, t.floor)
	}
	if !r.clocks { // nothing that a holder does can make its token wrong
		w.end(a)
	}
}

func (m *message) key() uint64 {
	if m.state == answered {
		return 2 + uint64(m.version)
	}
	return uint64(m.state)
}

// normalize makes worlds equal that differ in nothing that matters. Where nobody waits for a raise
// any more, a row of an acquisition that is over is a free row: that it refuses others is no more than
// that their requests are lost.
func (w *world) normalize() {
	for i := range maxNodes {
		if a := w.rows[i].acq; a != 0 && w.acquisitions[a-1].phase == over && w.acquisitions[a-1].raises[i].state == none {
			w.rows[i].acq = 0
		}
	}
	for a := range w.acquisitions {
		t := &w.acquisitions[a]
		if t.phase == over {
			t.floor = 0
		}
		if t.raises == [maxNodes]message{} {
			t.raisedTo = 0
		}
	}
}

// key is the same for worlds that differ in the order of the nodes only.
func (w *world) key() [maxNodes + 1]uint64 {
	var key [maxNodes + 1]uint64
	for i := range maxNodes {
		k := uint64(w.rows[i].acq)<<4 | uint64(w.rows[i].version)
		for a := range w.acquisitions {
			t := &w.acquisitions[a]
			state, version := t.round.Node(i)
			k = k<<4 | t.requests[i].key()
			k = k<<4 | t.raises[i].key()
			k = k<<3 | uint64(state)
			k = k<<4 | uint64(version)
			k <<= 1
			if t.renewed[i] {
				k |= 1
			}
		}
		key[i] = k
	}
	slices.Sort(key[:maxNodes])
	k := uint64(w.forgets)<<2 | uint64(w.heals)
	for a := range w.acquisitions {
		t := &w.acquisitions[a]
		k = k<<2 | uint64(t.phase)
		k = k<<4 | uint64(t.token)
		k = k<<4 | uint64(t.floor)
		k = k<<4 | uint64(t.raisedTo)
	}
	key[maxNodes] = k
	return key
}
