package batch

import (
	"context"
	"errors"
	"slices"
	"time"
)

// statement is a statement in flight. The Batcher looks after it: see watch. Its fields are
// guarded by Batcher.mu.
type statement struct {
	began time.Time
	slow  bool

	onSlow func() // if not nil: called once, with mu held, when the statement is slow
}

// begin notes that a statement is sent now; the caller holds mu.
func (b *Batcher[Q, R]) begin(s *statement) {
	s.began, s.slow = time.Now(), false
	b.statements = append(b.statements, s)
	if !b.watching {
		b.watchAfter(SlowAfter)
	}
}

// end notes that a statement was answered, which carried one request or more; the caller
// holds mu.
func (b *Batcher[Q, R]) end(s *statement, one bool) {
	i := slices.Index(b.statements, s)
	b.statements = slices.Delete(b.statements, i, i+1)
	b.quiet = one && !s.slow && len(b.pending) == 0
	if s.slow {
		b.slow--
	}
}

// watch finds the statements that have become slow, and lets others start beside them. One
// timer serves all statements: while many quick ones follow each other, it is set once in
// SlowAfter, not for each of them.
func (b *Batcher[Q, R]) watch() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watching = false
	next, now := SlowAfter, time.Now()
	quick := false
	for _, s := range b.statements {
		left := SlowAfter - now.Sub(s.began)
		switch {
		case s.slow:
		case left > 0:
			quick, next = true, min(next, left)
		default:
			s.slow, b.quiet = true, false
			b.slow++
			if s.onSlow != nil {
				s.onSlow()
			}
		}
	}
	if quick {
		b.watchAfter(next)
	}
	b.start()
}

// watchAfter has watch called after d; the caller holds mu.
func (b *Batcher[Q, R]) watchAfter(d time.Duration) {
	b.watching = true
	if b.watchdog == nil {
		b.watchdog = time.AfterFunc(d, b.watch)
	} else {
		b.watchdog.Reset(d)
	}
}

// direct is a statement with the request of one caller, on the goroutine of that caller.
//
// A goroutine that runs a statement cannot leave it. So a caller that wants to leave cancels
// its statement, but only a slow one: that costs the connection, and leaves the outcome
// unknown.
type direct[Q any] struct {
	statement
	reqs   [1]Q
	ctx    context.Context // of the statement
	cancel context.CancelFunc
	until  time.Time // the deadline of ctx

	caller   <-chan struct{} // closed when the caller wants to leave, as is ending
	ending   <-chan struct{} // both nil: the caller stays until ctx ends
	answered chan struct{}   // closed when it was answered; nil unless leave waits for it
}

// errAborted is the error of a statement whose driver has panicked, or ended the goroutine.
// The outcome is unknown.
var errAborted = errors.New("batch: the statement was aborted")

// beginDirect returns a statement for the caller to run, or nil if the request has to wait
// for others, or may have to.
func (b *Batcher[Q, R]) beginDirect(caller, ending <-chan struct{}, timeout time.Duration) *direct[Q] {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || !b.quiet || len(b.pending) > 0 || !b.mayStart() {
		return nil
	}
	b.inFlight++
	b.wg.Add(1)
	s := b.newDirect(timeout)
	s.caller, s.ending = caller, ending
	b.begin(&s.statement)
	return s
}

// newDirect returns a statement that ends timeout from now at the latest, and at most a
// thirty-second part of it earlier: statements that follow each other share their context.
// The caller holds mu.
func (b *Batcher[Q, R]) newDirect(timeout time.Duration) *direct[Q] {
	now := time.Now()
	if s := b.idle; s != nil {
		b.idle = nil
		if left := s.until.Sub(now); left <= timeout && left >= timeout-timeout/32 && s.ctx.Err() == nil {
			return s
		}
		s.cancel()
	}
	s := &direct[Q]{until: now.Add(timeout)}
	s.ctx, s.cancel = context.WithDeadline(b.opts.Base, s.until)
	s.onSlow = func() {
		if s.caller != nil || s.ending != nil {
			s.answered = make(chan struct{})
			b.wg.Go(s.leave)
		}
	}
	return s
}

// leave ends a slow statement when its caller wants to leave.
func (s *direct[Q]) leave() {
	select {
	case <-s.caller:
	case <-s.ending:
	case <-s.answered:
	}
	s.cancel()
}

// left reports whether the caller wants to leave.
func (s *direct[Q]) left() bool {
	select {
	case <-s.caller:
	case <-s.ending:
	default:
		return false
	}
	return true
}

// sendDirect runs the statement of one request.
func (b *Batcher[Q, R]) sendDirect(s *direct[Q], req Q) Reply[R] {
	s.reqs[0] = req
	r := Reply[R]{Err: errAborted}
	defer b.endDirect(s, &r)
	res, reply := b.run(s.ctx, s.reqs[:])
	if r = reply; r.Err == nil {
		r.Result = res[0]
	}
	return r
}

// endDirect ends the statement of one request, and has the requests sent that have gathered
// meanwhile. A driver may have panicked, and the caller may recover.
func (b *Batcher[Q, R]) endDirect(s *direct[Q], r *Reply[R]) {
	b.mu.Lock()
	b.end(&s.statement, true)
	b.inFlight--
	if s.answered != nil {
		close(s.answered)
	}
	if r.Err == nil && !s.slow && b.idle == nil && !b.closed { // else the context may be cancelled, or reqs still be in use
		b.idle, s.caller, s.ending = s, nil, nil
		clear(s.reqs[:])
	} else {
		s.cancel()
	}
	b.start()
	b.mu.Unlock()
	if r.Err == errAborted {
		b.opts.Late(&s.reqs[0], *r)
	}
	b.wg.Done()
}
