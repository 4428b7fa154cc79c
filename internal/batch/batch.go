// Package batch gathers the requests of many callers into statements.
package batch

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/internal/clock"
)

const (
	// SlowAfter is how long a statement may take before another one may start beside it.
	// A batch of hundreds takes less when the database is near and healthy.
	SlowAfter = 20 * time.Millisecond

	// maxLarge is how many large requests share a statement at most.
	maxLarge = 16

	// partSize is how many requests are sent together again after their batch has failed.
	// If that fails too, each of them is sent in a statement of its own.
	partSize = 32
)

// Options configure a [Batcher]. Only Follow, Splits and Late are optional.
type Options[Q, R any] struct {
	// Send runs one statement for reqs. It returns one result for each, in their order.
	Send func(ctx context.Context, reqs []Q) ([]R, error)

	// SortKey orders the requests of one batch. Requests that have the same DistinctKey
	// are never sent in one batch.
	SortKey, DistinctKey func(*Q) string

	// Follow answers a request by the reply to another one that has the same DistinctKey.
	// It reports false if that reply does not say enough. Without Follow, such requests
	// wait for the next statement.
	Follow func(sent *Q, reply Reply[R], req *Q) (Reply[R], bool)

	// Splits reports whether a part of a batch may succeed when the whole batch has failed
	// with err. Without it, batches are not split.
	Splits func(err error) bool

	// Late gets the replies whose callers have left, or in whose statement the driver has
	// panicked. It must not block.
	Late func(*Q, Reply[R])

	// Began is called before a request is accepted that may outlive its caller, Ended when
	// it has been answered or withdrawn.
	Began, Ended func()

	Clock clock.Clock
	Base  context.Context // of every statement

	MaxFast     int // statements in flight that are not slow
	MaxInFlight int // statements in flight
	MaxSize     int // requests in one statement
}

// Batcher gathers requests of one type and sends them in batches. It is safe for
// concurrent use.
//
// If no statement is in flight, a request is sent at once, on the goroutine of its caller.
// Otherwise it waits until that statement is answered, and leaves together with all requests
// that came meanwhile, on a goroutine of the Batcher: more callers make larger batches.
//
// A statement can be slow because somebody has locked a row, or because the network is slow.
// A slow statement delays other requests for [SlowAfter]: then the next statement starts
// beside it, up to MaxInFlight of them.
//
// A caller runs the statement itself only if the last statement was quick, carried one
// request, and no other request came meanwhile. Else the caller could not leave a database
// that is slow, and the first of many callers would not wait a moment for the others.
type Batcher[Q, R any] struct {
	opts Options[Q, R]

	mu         sync.Mutex
	pending    []*Pending[Q, R]
	closed     bool
	inFlight   int          // statements, and senders between two of them
	statements []*statement // in flight
	slow       int          // of these
	quiet      bool         // callers may run statements themselves, see end
	watchdog   *time.Timer
	watching   bool       // the watchdog is set
	idle       *direct[Q] // to be used again
	wg         sync.WaitGroup

	calls sync.Pool // of *call
}

// New returns a Batcher. Call Close when done with it.
func New[Q, R any](o Options[Q, R]) *Batcher[Q, R] {
	if o.Splits == nil {
		o.Splits = func(error) bool { return false }
	}
	if o.Late == nil {
		o.Late = func(*Q, Reply[R]) {}
	}
	return &Batcher[Q, R]{opts: o}
}

// Kind says which requests can be sent together: those of the same Kind.
type Kind struct {
	Group    int  // of time-outs that are alike
	Flags    int  // what else makes statements differ
	Isolated bool // the request has failed in a batch, perhaps because of another one
	Large    bool // a few of them make a large statement
}

// Pending is a request that was not answered yet.
type Pending[Q, R any] struct {
	Request Q
	Kind    Kind
	Timeout time.Duration // of the statement

	// Done is called with the reply, on a goroutine of the Batcher. It must not block. It
	// is not called for a request that was withdrawn before it was sent.
	Done func(Reply[R])

	followers []*Pending[Q, R] // while it is sent: those that its reply may be enough for
}

// Reply is the outcome of one request.
type Reply[R any] struct {
	Result      R
	Before      time.Duration // read before the statement was sent
	After       time.Duration // read when it was answered
	Err         error
	SharedBatch bool // other requests were in the statement: the error may be theirs
}

// call is a pending request whose caller waits. It is reused when the reply was taken.
type call[Q, R any] struct {
	Pending[Q, R]
	settled  atomic.Bool // by the reply, or by the caller who left
	reply    Reply[R]
	answered chan struct{}
}

func (b *Batcher[Q, R]) newCall() *call[Q, R] {
	if c, ok := b.calls.Get().(*call[Q, R]); ok {
		c.settled.Store(false)
		return c
	}
	c := &call[Q, R]{answered: make(chan struct{}, 1)}
	c.Done = func(r Reply[R]) {
		if c.settled.CompareAndSwap(false, true) {
			c.reply = r
			c.answered <- struct{}{}
		} else {
			b.opts.Late(&c.Request, r)
		}
	}
	return c
}

// TryDirect sends a request if its statement can run on the caller's goroutine, and returns
// the reply. Otherwise it returns false, and has not sent the request. The caller cannot
// leave before timeout.
func (b *Batcher[Q, R]) TryDirect(req Q, timeout time.Duration) (Reply[R], bool) {
	s := b.beginDirect(nil, nil, timeout)
	if s == nil {
		return Reply[R]{}, false
	}
	return b.sendDirect(s, req), true
}

// Do sends a request and waits for the reply. It returns false when ctx or ending is over
// before the reply has come. A request that was sent by then goes on, and Late gets its
// reply. Only a request that is alone in a statement on the goroutine of its caller cannot
// go on: Do then waits until SlowAfter is over, and cancels the statement.
func (b *Batcher[Q, R]) Do(ctx context.Context, ending <-chan struct{}, req Q, kind Kind, timeout time.Duration) (Reply[R], bool) {
	if s := b.beginDirect(ctx.Done(), ending, timeout); s != nil {
		r := b.sendDirect(s, req)
		if r.Err != nil && s.left() {
			b.opts.Late(&s.reqs[0], r)
			return Reply[R]{}, false
		}
		return r, true
	}
	c := b.newCall()
	c.Request, c.Kind, c.Timeout = req, kind, timeout
	b.Add(&c.Pending)
	select {
	case <-c.answered:
	case <-ctx.Done():
		if b.cancel(c) {
			return Reply[R]{}, false
		}
	case <-ending:
		if b.cancel(c) {
			return Reply[R]{}, false
		}
	}
	return b.takeReply(c), true
}

// takeReply returns the reply to a call, which is reused.
func (b *Batcher[Q, R]) takeReply(c *call[Q, R]) Reply[R] {
	r := c.reply
	b.calls.Put(c)
	return r
}

// cancel stops waiting for a reply. It reports false if the reply has come.
func (b *Batcher[Q, R]) cancel(c *call[Q, R]) bool {
	if c.settled.CompareAndSwap(false, true) {
		b.Withdraw(&c.Pending)
		return true
	}
	<-c.answered
	return false
}

// Add sends a request as soon as possible, and does not block.
func (b *Batcher[Q, R]) Add(p *Pending[Q, R]) {
	b.opts.Began()
	b.enqueue(p)
}

func (b *Batcher[Q, R]) enqueue(p *Pending[Q, R]) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		p.Done(Reply[R]{Err: b.opts.Base.Err()})
		b.opts.Ended()
		return
	}
	defer b.mu.Unlock()
	b.pending = append(b.pending, p)
	b.start()
}

// start starts a sender if a request is pending and limits permit it; the caller holds mu.
func (b *Batcher[Q, R]) start() {
	if len(b.pending) > 0 && b.mayStart() {
		b.inFlight++
		b.wg.Go(b.sendAll)
	}
}

// mayStart reports whether limits permit another statement; the caller holds mu.
func (b *Batcher[Q, R]) mayStart() bool {
	return b.inFlight < b.opts.MaxInFlight && b.inFlight-b.slow < b.opts.MaxFast
}

// Withdraw removes a request that was not sent: Done is not called any more. It reports false if
// the request was sent, or is unknown.
func (b *Batcher[Q, R]) Withdraw(p *Pending[Q, R]) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.pending, p)
	if i < 0 {
		return false
	}
	b.pending = slices.Delete(b.pending, i, i+1)
	b.opts.Ended()
	return true
}

// sendAll sends batches until nothing is pending, or another sender has replaced it.
func (b *Batcher[Q, R]) sendAll() {
	s := new(statement)
	for batch := b.next(s); batch != nil; batch = b.next(s) {
		if len(batch) == 1 && len(batch[0].followers) == 0 {
			if !b.sendOne(s, batch[0]) {
				return
			}
			continue
		}
		b.send(batch)
		b.mu.Lock()
		b.end(s, false)
		b.mu.Unlock()
	}
}

// next removes a batch from the pending requests, which s is to send: the first one, and all
// that can be sent with it. It returns nil if the sender must end, because nothing is
// pending or because another sender has replaced it.
func (b *Batcher[Q, R]) next(s *statement) []*Pending[Q, R] {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.pending) == 0 || b.inFlight-b.slow > b.opts.MaxFast {
		b.inFlight--
		return nil
	}
	b.begin(s)
	return b.take()
}

// take removes a batch from the pending requests; the caller holds mu.
func (b *Batcher[Q, R]) take() []*Pending[Q, R] {
	kind := b.pending[0].Kind
	size := b.opts.MaxSize
	switch {
	case kind.Isolated:
		size = 1
	case kind.Large:
		size = min(size, maxLarge)
	}
	batch := make([]*Pending[Q, R], 0, min(size, len(b.pending)))
	taken := make(map[string]*Pending[Q, R], min(size, len(b.pending)))
	left := b.pending[:0]
	for _, p := range b.pending {
		key := b.opts.DistinctKey(&p.Request)
		twin := taken[key]
		switch {
		case p.Kind == kind && twin != nil && b.opts.Follow != nil && !kind.Isolated:
			twin.followers = append(twin.followers, p)
		case p.Kind != kind || twin != nil || len(batch) == size:
			left = append(left, p)
		default:
			taken[key] = p
			batch = append(batch, p)
		}
	}
	clear(b.pending[len(left):])
	b.pending = left
	return batch
}

// send sends one batch and hands out the replies.
func (b *Batcher[Q, R]) send(batch []*Pending[Q, R]) {
	slices.SortStableFunc(batch, func(p, q *Pending[Q, R]) int {
		return cmp.Compare(b.opts.SortKey(&p.Request), b.opts.SortKey(&q.Request))
	})
	reqs := make([]Q, len(batch))
	timeout := batch[0].Timeout
	for i, p := range batch {
		reqs[i] = p.Request
		timeout = min(timeout, p.Timeout)
	}
	ctx, cancel := context.WithTimeout(b.opts.Base, timeout)
	defer cancel()
	res, r := b.run(ctx, reqs)
	if r.Err != nil && len(batch) > 1 && b.opts.Splits(r.Err) {
		b.sendInParts(batch)
		return
	}
	r.SharedBatch = len(batch) > 1
	for i, p := range batch {
		if r.Err == nil {
			r.Result = res[i]
		}
		b.deliver(p, r)
	}
}

// sendOne sends one request and hands out the reply. It reports false if the sender must
// end. That is known before the caller has its reply: if it sends its next request at once,
// nothing is in flight.
func (b *Batcher[Q, R]) sendOne(s *statement, p *Pending[Q, R]) (more bool) {
	ctx, cancel := context.WithTimeout(b.opts.Base, p.Timeout)
	defer cancel()
	res, r := b.run(ctx, []Q{p.Request})
	if r.Err == nil {
		r.Result = res[0]
	}
	b.mu.Lock()
	b.end(s, true)
	more = len(b.pending) > 0
	if !more {
		b.inFlight--
	}
	b.mu.Unlock()
	b.deliver(p, r)
	return more
}

// run runs a statement. What it returns is the reply to each request, but for the result.
func (b *Batcher[Q, R]) run(ctx context.Context, reqs []Q) (res []R, r Reply[R]) {
	r.Before = b.opts.Clock.Now()
	res, r.Err = b.opts.Send(ctx, reqs)
	r.After = b.opts.Clock.Now()
	return res, r
}

// sendInParts sends a batch again that has failed as a whole, until the request that
// causes the failure is alone.
func (b *Batcher[Q, R]) sendInParts(batch []*Pending[Q, R]) {
	size := partSize
	if len(batch) <= partSize {
		size = 1
	}
	for part := range slices.Chunk(batch, size) {
		b.send(part)
	}
}

// deliver hands out a reply, to the followers of the request too if it is enough for them.
func (b *Batcher[Q, R]) deliver(p *Pending[Q, R], r Reply[R]) {
	if len(p.followers) == 0 {
		p.Done(r)
		b.opts.Ended()
		return
	}
	sent, followers := p.Request, p.followers
	p.followers = nil
	p.Done(r) // from now on p may be in use again
	b.opts.Ended()
	for _, p := range followers {
		if reply, ok := b.opts.Follow(&sent, r, &p.Request); ok {
			p.Done(reply)
			b.opts.Ended()
		} else {
			b.enqueue(p)
		}
	}
}

// Close waits for the statements that are in flight. Requests that are added later get an
// error: they come from an Unlock of a lease that was held when the Locker's Close gave up
// waiting.
func (b *Batcher[Q, R]) Close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.wg.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.watchdog != nil {
		b.watchdog.Stop()
	}
	if b.idle != nil {
		b.idle.cancel()
	}
}
