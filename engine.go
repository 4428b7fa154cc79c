package sqllock

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/internal/clock"
)

// collector gathers the requests of one kind of statement, of all callers of a
// Locker, and sends them in batches. If no statement is under way a request leaves
// at once; else it waits for that to come back, and leaves together with whatever
// came meanwhile: the more callers there are, the larger are the batches. A
// statement that is late, because of a row that somebody has locked or a network
// that is far away, holds up nobody for longer than that takes to see: another one
// then leaves beside it, for as long as fewer than lanes are under way.
type collector[Q, R any] struct {
	send  func(ctx context.Context, reqs []Q) ([]R, error)
	key   func(*Q) string // requests of one batch are sorted by it
	apart func(*Q) string // and distinct by this
	// follow answers a request that is not distinct from one that was answered, if that
	// says enough. If it is nil such requests wait for the next statement.
	follow func(first *Q, a answer[R], r *Q) (answer[R], bool)
	parts  func(error) bool    // whether a part of a batch may get through that failed so
	late   func(*Q, answer[R]) // gets the answers that nobody waits for any more; must not block
	clock  clock.Clock
	gate   *gate
	base   context.Context // of every statement
	swift  int             // statements under way that are not late, at most
	lanes  int             // statements under way, at most
	most   int             // requests in one, at most

	mu      sync.Mutex
	waiting []*call[Q, R]
	closed  bool
	flying  int // lanes in use
	overdue int // of these, with a statement that is late
	wg      sync.WaitGroup

	idle sync.Pool // of errands
}

// call is one request on its way. done is called with the answer, on a goroutine of
// the collector, and must not block; it is not called if the request was withdrawn
// before it was sent.
type call[Q, R any] struct {
	req     Q
	kind    kind
	timeout time.Duration // of the statement
	done    func(answer[R])

	followers []*call[Q, R] // while it is sent: those that its answer may be enough for
}

// kind tells which requests can be sent together.
type kind struct {
	group int  // by TTL: see group
	flags int  // what makes statements differ
	alone bool // the request has failed in a batch, perhaps for another's sake
	bulky bool // few of them make a large statement
}

// mostBulky is how many bulky requests are sent together.
const mostBulky = 16

// answer is what came of one request.
type answer[R any] struct {
	res    R
	before time.Duration // read before the statement was sent
	after  time.Duration // read when it was back
	err    error
	crowd  bool // others were in the same statement: the error may be theirs
}

// errand is a call whose caller waits for the answer. It is used again when that has
// come.
type errand[Q, R any] struct {
	call[Q, R]
	settled  atomic.Bool // by the answer, or by the caller who left
	got      answer[R]
	answered chan struct{}
}

// errand returns one that is not in use.
func (c *collector[Q, R]) errand() *errand[Q, R] {
	if e, ok := c.idle.Get().(*errand[Q, R]); ok {
		e.settled.Store(false)
		return e
	}
	e := &errand[Q, R]{answered: make(chan struct{}, 1)}
	e.done = func(a answer[R]) {
		if e.settled.CompareAndSwap(false, true) {
			e.got = a
			e.answered <- struct{}{}
		} else {
			c.late(&e.req, a)
		}
	}
	return e
}

// do sends a request and waits for the answer, or until ctx or ending is over: then
// it returns false. What is answered after that goes to late.
func (c *collector[Q, R]) do(ctx context.Context, ending <-chan struct{}, req Q, k kind, timeout time.Duration) (answer[R], bool) {
	e := c.errand()
	e.req, e.kind, e.timeout = req, k, timeout
	c.add(&e.call)
	if ctx == c.base { // statements end with it: an answer comes in any case
		<-e.answered
		return c.done(e), true
	}
	select {
	case <-e.answered:
	case <-ctx.Done():
		if c.desert(e) {
			return answer[R]{}, false
		}
	case <-ending:
		if c.desert(e) {
			return answer[R]{}, false
		}
	}
	return c.done(e), true
}

// done takes the answer from an errand, which may be used again.
func (c *collector[Q, R]) done(e *errand[Q, R]) answer[R] {
	a := e.got
	c.idle.Put(e)
	return a
}

// desert gives up the wait for an answer. It reports false if the answer has come.
func (c *collector[Q, R]) desert(e *errand[Q, R]) bool {
	if e.settled.CompareAndSwap(false, true) {
		c.withdraw(&e.call)
		return true
	}
	<-e.answered
	return false
}

// add sends a request as soon as it can.
func (c *collector[Q, R]) add(r *call[Q, R]) {
	c.gate.resume()
	c.put(r)
}

func (c *collector[Q, R]) put(r *call[Q, R]) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		r.done(answer[R]{err: c.base.Err()})
		c.gate.leave()
		return
	}
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, r)
	c.open()
}

// open opens a lane if somebody waits and there is room for one. c.mu is locked.
func (c *collector[Q, R]) open() {
	if len(c.waiting) > 0 && c.flying < c.lanes && c.flying-c.overdue < c.swift {
		c.flying++
		c.wg.Go(c.run)
	}
}

// withdraw takes a request back that was not sent.
func (c *collector[Q, R]) withdraw(r *call[Q, R]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.waiting, r); i >= 0 {
		c.waiting = slices.Delete(c.waiting, i, i+1)
		c.gate.leave()
	}
}

// run sends batches for as long as there are any, and nobody took over meanwhile.
func (c *collector[Q, R]) run() {
	for {
		batch := c.take()
		if batch == nil {
			return
		}
		landed := c.watch()
		c.fly(batch)
		landed()
	}
}

// lateAfter is how long a statement may take without another one beside it. A batch
// of hundreds takes less where the database is near and well.
const lateAfter = 20 * time.Millisecond

// watch lets others leave beside a statement that is late. The function that it
// returns is to be called when the statement is back.
func (c *collector[Q, R]) watch() (landed func()) {
	if c.lanes <= c.swift {
		return func() {}
	}
	var late, back bool
	timer := time.AfterFunc(lateAfter, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !back {
			late = true
			c.overdue++
			c.open()
		}
	})
	return func() {
		if timer.Stop() {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		back = true
		if late {
			c.overdue--
		}
	}
}

// take takes the next batch off those who wait: the first of them and all that can
// go with it. If there is none, or others took over, the lane is over.
func (c *collector[Q, R]) take() []*call[Q, R] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 || c.flying-c.overdue > c.swift {
		c.flying--
		return nil
	}
	first := c.waiting[0].kind
	most := c.most
	switch {
	case first.alone:
		most = 1
	case first.bulky:
		most = min(most, mostBulky)
	}
	batch := make([]*call[Q, R], 0, min(most, len(c.waiting)))
	names := make(map[string]*call[Q, R], min(most, len(c.waiting)))
	rest := c.waiting[:0]
	for _, r := range c.waiting {
		name := c.apart(&r.req)
		twin := names[name]
		switch {
		case r.kind == first && twin != nil && c.follow != nil && !first.alone:
			twin.followers = append(twin.followers, r)
		case r.kind != first || twin != nil || len(batch) == most:
			rest = append(rest, r)
		default:
			names[name] = r
			batch = append(batch, r)
		}
	}
	clear(c.waiting[len(rest):])
	c.waiting = rest
	return batch
}

// fly sends one batch and hands out the answers.
func (c *collector[Q, R]) fly(batch []*call[Q, R]) {
	slices.SortStableFunc(batch, func(a, b *call[Q, R]) int { return cmp.Compare(c.key(&a.req), c.key(&b.req)) })
	reqs := make([]Q, len(batch))
	timeout := batch[0].timeout
	for i, r := range batch {
		reqs[i] = r.req
		timeout = min(timeout, r.timeout)
	}
	ctx, cancel := context.WithTimeout(c.base, timeout)
	defer cancel()
	before := c.clock.Now()
	res, err := c.send(ctx, reqs)
	if err != nil && len(batch) > 1 && c.parts(err) {
		c.flyInParts(batch)
		return
	}
	after := c.clock.Now()
	for i, r := range batch {
		a := answer[R]{before: before, after: after, err: err, crowd: len(batch) > 1}
		if err == nil {
			a.res = res[i]
		}
		c.give(r, a)
	}
}

// partSize is how many requests are sent together again after their batch has
// failed, and of which each is sent alone if that fails too.
const partSize = 32

// flyInParts sends a batch again that has failed as a whole, so that a request which
// is to blame ends up alone.
func (c *collector[Q, R]) flyInParts(batch []*call[Q, R]) {
	size := partSize
	if len(batch) <= partSize {
		size = 1
	}
	for part := range slices.Chunk(batch, size) {
		c.fly(part)
	}
}

func (c *collector[Q, R]) give(r *call[Q, R], a answer[R]) {
	first, followers := r.req, r.followers
	r.followers = nil
	r.done(a) // after that r may be in use again
	c.gate.leave()
	for _, r := range followers {
		if b, ok := c.follow(&first, a, &r.req); ok {
			r.done(b)
			c.gate.leave()
		} else {
			c.put(r)
		}
	}
}

// join waits for what is under way. What is added after that, by an Unlock of a lease
// that was held when Close gave up, is answered with an error.
func (c *collector[Q, R]) join() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.wg.Wait()
}
