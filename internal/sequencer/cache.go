package sequencer

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"
)

// State is what is known about a term.
type State uint8

const (
	Unknown State = iota
	Current
	Stale
)

// Verdict is what one query says about a term.
type Verdict struct {
	State State
	// Floor is the token below which all tokens of the name are stale, or 0. It comes from
	// the row and never from the sequencer, which anybody can make up.
	Floor int64
	// All is Floor for the name, whatever the slot: tokens of permits rise in each slot apart.
	All int64
	// Left is the time from the query until a current term expires unless it is renewed.
	Left time.Duration
}

// ErrCallerLeft is returned by Check when its context has ended.
var ErrCallerLeft = errors.New("the caller did not wait for the result")

// Cache remembers the verdicts of a query for a bounded number of names, the most recently
// checked ones. It is safe for concurrent use and starts no goroutine.
type Cache struct {
	query    func(context.Context, Term) (Verdict, error)
	now      func() time.Duration
	maxAge   time.Duration
	maxNames int

	mu      sync.Mutex
	terms   map[line]*list.Element // of *knownTerm
	recent  *list.List             // the last one checked in front
	pending map[Term]*pendingCheck
}

// line is where tokens rise from term to term: a name, or one of its slots from 1 on.
type line struct {
	name string
	slot int
}

func (t Term) line() line {
	if t.Permit {
		return line{t.Name, 1 + t.Slot}
	}
	return line{t.Name, 0}
}

// knownTerm is what the database has said about a line.
type knownTerm struct {
	line    line
	floor   int64         // all lower tokens are stale
	all     int64         // of the line of a name: those of all of its lines
	current Term          // was current when the database was asked last
	until   time.Duration // when the database must be asked again
}

// pendingCheck is a query that is in flight. The other fields are set before done is closed.
type pendingCheck struct {
	done       chan struct{}
	state      State
	err        error
	callerLeft bool // the caller that sent the query did not wait for the result
}

// NewCache returns a cache of a query, which may be called concurrently. A term that was
// current is called current for maxAge without another query.
func NewCache(query func(context.Context, Term) (Verdict, error), now func() time.Duration, maxAge time.Duration, maxNames int) *Cache {
	return &Cache{
		query: query, now: now, maxAge: maxAge, maxNames: maxNames,
		terms: make(map[line]*list.Element), recent: list.New(), pending: make(map[Term]*pendingCheck),
	}
}

// Check returns the state of a term. Callers that check the same term at the same time
// share one query. It returns the error of the query, or ErrCallerLeft.
func (c *Cache) Check(ctx context.Context, t Term) (State, error) {
	for {
		state, p, first := c.recall(t)
		switch {
		case p == nil:
			return state, nil
		case first:
			return c.send(ctx, t, p)
		}
		select {
		case <-p.done:
		case <-ctx.Done():
			return Unknown, ErrCallerLeft
		}
		switch {
		case p.callerLeft, p.state == Current: // query again; or recall the result, unless it is too old
		default:
			return p.state, p.err
		}
	}
}

// recall returns the state if it is remembered, or else the pending check. If first, the
// caller sends the query.
func (c *Cache) recall(t Term) (state State, p *pendingCheck, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.terms[line{t.Name, 0}]; at != nil && t.Permit {
		c.recent.MoveToFront(at)
		if t.Token < at.Value.(*knownTerm).all {
			return Stale, nil, false
		}
	}
	if at := c.terms[t.line()]; at != nil {
		c.recent.MoveToFront(at)
		switch known := at.Value.(*knownTerm); {
		case t.Token < known.floor:
			return Stale, nil, false
		case t == known.current && c.now() < known.until:
			return Current, nil, false
		}
	}
	if p := c.pending[t]; p != nil {
		return Unknown, p, false
	}
	p = &pendingCheck{done: make(chan struct{})}
	c.pending[t] = p
	return Unknown, p, true
}

// send sends the query, for all callers that check the same term meanwhile.
func (c *Cache) send(ctx context.Context, t Term, p *pendingCheck) (State, error) {
	defer func() {
		c.mu.Lock()
		delete(c.pending, t)
		c.mu.Unlock()
		close(p.done)
	}()
	began := c.now()
	p.callerLeft = true // if the query does not return
	v, err := c.query(ctx, t)
	if err != nil {
		p.err, p.callerLeft = err, ctx.Err() != nil
		return Unknown, err
	}
	p.state, p.callerLeft = c.remember(t, v, began), false
	return p.state, nil
}

// remember keeps a verdict, and returns the state that it means beside the verdicts that
// came after the query began.
func (c *Cache) remember(t Term, v Verdict, began time.Duration) State {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.known(t.line(), v.Floor)
	if known == nil { // there is nothing to remember
		return v.State
	}
	if t.Permit {
		if name := c.known(line{t.Name, 0}, v.All); name != nil {
			name.all = max(name.all, v.All)
			known.floor = max(known.floor, name.all)
		}
	} else {
		known.all = max(known.all, v.All)
	}
	switch {
	case t.Token < known.floor:
		return Stale
	case v.State == Current:
		known.current, known.until = t, began+min(c.maxAge, v.Left)
	}
	return v.State
}

// known returns what is known about a line, whose floor is raised, or nil if that is nothing; the
// caller holds mu.
func (c *Cache) known(l line, floor int64) *knownTerm {
	at := c.terms[l]
	if at == nil {
		if floor == 0 {
			return nil
		}
		at = c.recent.PushFront(&knownTerm{line: l})
		c.terms[l] = at
		if c.recent.Len() > c.maxNames {
			delete(c.terms, c.recent.Remove(c.recent.Back()).(*knownTerm).line)
		}
	}
	known := at.Value.(*knownTerm)
	known.floor = max(known.floor, floor)
	return known
}
