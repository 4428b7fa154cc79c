package sqllock

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/batch"
)

// claims are the claims that waiters of this Locker have in the database. While there are
// claims, one goroutine keeps them alive and finds out which of them are granted. It
// learns of a grant from a release of this Locker that handed the name over, from a push
// of the database, or by polling all names at once.
type claims struct {
	locker   *Locker
	requests *batch.Batcher[driver.AcquireRequest, driver.AcquireResult]

	mu        sync.Mutex
	byAcq     map[driver.ID]*claim
	byName    map[string][]*claim // in the order in which they came
	fresh     []*claim            // that no request was sent for
	next      time.Duration       // when something else is due, or earlier
	carrying  int                 // claims whose waiters hold leases, so that a deadlock is possible
	running   bool
	wake      chan struct{}
	contended map[string]time.Duration // names that many want, and until when that counts
	some      atomic.Bool              // there are such names
	listener  listener
	poll      poll
	deadlocks deadlockCheck

	wg sync.WaitGroup
}

// claim is the row of one waiter. The fields that change are guarded by claims.mu.
type claim struct {
	req      driver.AcquireRequest
	kind     batch.Kind
	timeout  time.Duration
	queuedAt time.Duration

	due          time.Duration                                               // when to send the next request, or to deliver pendingReply
	inFlight     bool                                                        // a request, or the confirmation of a grant, is under way
	again        bool                                                        // the reply to it may be older than what we were told since
	sent         *batch.Pending[driver.AcquireRequest, driver.AcquireResult] // the last request
	pendingReply *reply                                                      // delivered when no request is in flight, or when due
	done         bool                                                        // the reply is in result, or the waiter has left
	left         bool
	backoff      *backoff
	row          rowVersion // as it was read last

	// What the acquisition has to know in the end.
	requests     int
	knownHeld    bool
	unknown      bool
	unknownSince time.Duration
	holder       driver.Holder
	holderLeft   time.Duration // until that holder expired, at the time of the reply
	lastErr      error

	result chan reply // a grant, or an error that ends the wait; buffered
}

const (
	// The database takes a Locker that waits for alive for as long as a lease, within these
	// bounds. For that long a waiter that has died can block others, and for that long the
	// row keeps a name that was handed over. A waiter sends three requests in that time,
	// and so learns of the hand-over in time.
	minClaimLife = 500 * time.Millisecond
	maxClaimLife = 5 * time.Second
)

func newClaims(l *Locker) *claims {
	cs := &claims{locker: l, byAcq: make(map[driver.ID]*claim), byName: make(map[string][]*claim), wake: make(chan struct{}, 1),
		contended: make(map[string]time.Duration)}
	cs.poll.next = never
	cs.listener.noPush = l.mode.listener == nil
	if l.mode.queues {
		cs.requests = newBatcher(l, batch.Options[driver.AcquireRequest, driver.AcquireResult]{
			Send:        cs.send,
			SortKey:     func(r *driver.AcquireRequest) string { return r.Name },
			DistinctKey: func(r *driver.AcquireRequest) string { return string(r.Acq[:]) },
			MaxInFlight: 1,
		})
	}
	return cs
}

// available reports whether waiters have claims in the database.
func (cs *claims) available() bool { return cs.locker.mode.queues && !cs.locker.cfg.barging }

// hasWaiter reports whether a waiter of this Locker has a claim on name.
func (cs *claims) hasWaiter(name string) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return len(cs.byName[name]) > 0
}

// wants reports whether a waiter of this Locker has a claim that is an acquisition's.
func (cs *claims) wants(acq driver.ID) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.byAcq[acq] != nil
}

const (
	// contendedFor is for how long a name counts as one that many want.
	contendedFor = 100 * time.Millisecond
	// maxContended is how many such names are known at most.
	maxContended = 1000
)

// noteContended notes that many want a name, which this Locker gives up just now: it was handed
// over to this Locker, or this Locker hands it over.
func (cs *claims) noteContended(name string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if len(cs.contended) >= maxContended {
		clear(cs.contended)
	}
	cs.contended[name] = cs.locker.clock.Now() + contendedFor
	cs.some.Store(true)
}

// isContended reports whether many want a name, as far as is known. Who locks it then waits in
// its queue without a look whether it is free.
func (cs *claims) isContended(name string) bool {
	if !cs.some.Load() {
		return false
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	until, ok := cs.contended[name]
	delete(cs.contended, name)
	cs.some.Store(len(cs.contended) > 0)
	return ok && cs.locker.clock.Now() < until
}

func (cs *claims) send(ctx context.Context, reqs []driver.AcquireRequest) ([]driver.AcquireResult, error) {
	defer cs.locker.keeper.noteUse()
	res, err := cs.locker.mode.Acquire(ctx, reqs)
	if err != nil {
		return nil, err
	}
	for i := range res {
		cs.locker.noteCrash(reqs[i].Name, res[i].Crashed)
	}
	return res, nil
}

// add makes a claim for an acquisition.
func (cs *claims) add(a *acquisition, carries []driver.ID) *claim {
	trusted := a.opts.trustedTTL()
	life := min(max(trusted, minClaimLife), maxClaimLife)
	c := &claim{
		req:      a.req,
		kind:     batch.Kind{Group: ttlGroup(a.opts.ttl), Large: len(a.req.Value) > 0},
		timeout:  cs.locker.cfg.timeout(a.opts.ttl),
		queuedAt: cs.locker.clock.Now(),
		backoff:  newBackoff(&cs.locker.cfg),
		unknown:  a.unknown, unknownSince: a.unknownSince,
		result: make(chan reply, 1),
	}
	c.req.Life, c.req.Carries = life, carries
	c.req.Handed = max(a.req.TTL-trusted+life, a.opts.minHold+a.opts.lockDelay) // MinHold counts whoever ends the lease
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.fresh = append(cs.fresh, c)
	cs.byAcq[c.req.Acq] = c
	if len(carries) > 0 {
		cs.carrying++
	}
	cs.byName[c.req.Name] = append(cs.byName[c.req.Name], c)
	cs.poll.lookSoon(cs.locker.cfg.pollMin(), c.queuedAt)
	if !cs.running {
		cs.running = true
		cs.wg.Go(cs.run)
	}
	cs.wakeUp()
	return c
}

// wakeUp wakes the goroutine; the caller holds mu.
func (cs *claims) wakeUp() {
	wake(cs.wake)
}

// withdraw ends the claim of a waiter that leaves. It reports false if the wait is over:
// then the reply is in result.
func (cs *claims) withdraw(c *claim) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c.done {
		return false
	}
	cs.leave(c)
	return true
}

// leave ends a claim whose waiter gets no grant, and cleans it up unless something of it is under
// way; the caller holds mu.
func (cs *claims) leave(c *claim) {
	c.left = true
	cs.forget(c)
	cs.recall(c)
	if !c.inFlight {
		cs.cleanUp(c)
	}
}

// forget ends a claim in this process; the caller holds mu.
func (cs *claims) forget(c *claim) {
	c.done = true
	delete(cs.byAcq, c.req.Acq)
	if len(c.req.Carries) > 0 {
		cs.carrying--
	}
	others := slices.DeleteFunc(cs.byName[c.req.Name], func(other *claim) bool { return other == c })
	if len(others) == 0 {
		delete(cs.byName, c.req.Name)
	} else {
		cs.byName[c.req.Name] = others
	}
}

// cleanUp removes the claim of a waiter that has left, and what it may have been granted,
// from the database; the caller holds mu.
func (cs *claims) cleanUp(c *claim) {
	r := driver.ReleaseRequest{Name: c.req.Name, Acq: c.req.Acq, Shared: c.req.Together()}
	switch {
	case c.unknown: // a request may still arrive
		cs.locker.cleanup.add(r, c.req.TTL)
	case c.requests > 0:
		cs.locker.cleanup.addOnce(r, c.req.TTL)
	}
}

// answer gives a waiter its reply; the caller holds mu. If a request of the claim is in
// flight, the reply waits for it a little: if that request arrived after the name was
// released, it would leave a claim that no waiter has.
func (cs *claims) answer(c *claim, r reply) {
	cs.recall(c)
	if !c.inFlight {
		cs.forget(c)
		c.result <- r
	} else if c.pendingReply == nil {
		c.pendingReply = &r
		cs.schedule(c, cs.locker.clock.Now()+batch.SlowAfter)
		cs.wakeUp()
	}
}

// answerNow gives a waiter its reply although a request of the claim is in flight. The
// outcome of that request counts as unknown, so it is cleaned up if it arrives late.
func (cs *claims) answerNow(c *claim) {
	c.unknown, c.unknownSince = true, c.pendingReply.Before
	cs.forget(c)
	c.result <- *c.pendingReply
}

// fail ends a wait with an error; the caller holds mu.
func (cs *claims) fail(c *claim, err error) {
	cs.leave(c)
	c.result <- reply{Err: err}
}

// handedOver notes that a release of this Locker, sent at before, has handed the name over
// to one of its waiters.
func (cs *claims) handedOver(grant driver.HandOver, before time.Duration) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.byAcq[grant.Acq]
	if c == nil { // it has left, and its grant is cleaned up
		return
	}
	cs.answer(c, reply{Before: before, After: cs.locker.clock.Now(), Result: driver.AcquireResult{
		Granted: true, Found: true, Version: grant.Version, Slot: grant.Slot, Remaining: grant.Remaining, Now: grant.Now,
	}})
}

// recheck sends requests for name again: for the first claim and, if that is shared or for a
// permit, for those that could enter with it.
func (cs *claims) recheck(name string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	now := cs.locker.clock.Now()
	for i, c := range cs.byName[name] {
		if i > 0 && !c.req.Together() {
			break
		}
		cs.requestAnew(c, now)
		cs.wakeUp()
		if !c.req.Together() {
			break
		}
	}
}

// join waits for what is in flight. The statements of the Locker have ended.
func (cs *claims) join() {
	cs.wg.Wait()
	if cs.requests != nil {
		cs.requests.Close()
	}
}

// run serves the claims until there are none.
func (cs *claims) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-cs.wake:
		case <-cs.locker.base.Done():
			return
		}
		next, more := cs.runDue()
		if !more {
			return
		}
		timer.Reset(next)
	}
}

// runDue sends the requests that are due, and returns when to do so again.
func (cs *claims) runDue() (next time.Duration, more bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	now := cs.locker.clock.Now()
	cs.requestFresh()
	if len(cs.byAcq) == 0 {
		cs.running = cs.listener.keepOpen(now)
		return time.Second, cs.running
	}
	if cs.next <= now {
		cs.requestDue(now)
	}
	cs.listener.start(cs, now)
	at := min(cs.next, cs.poll.runDue(cs, now), cs.deadlocks.runDue(cs, now))
	return max(min(at-now, time.Second), 0), true
}

// requestFresh sends the first requests of claims; the caller holds mu. It looks at no others:
// there may be thousands, and a claim comes with each hand-over.
func (cs *claims) requestFresh() {
	for _, c := range cs.fresh {
		if !c.done && !c.inFlight {
			cs.request(c)
		}
	}
	clear(cs.fresh)
	cs.fresh = cs.fresh[:0]
}

// requestDue sends the requests, and delivers the replies, that are due; the caller holds
// mu.
func (cs *claims) requestDue(now time.Duration) {
	due := false
	cs.next = never
	for _, c := range cs.byAcq {
		due = due || !c.inFlight && c.due <= now
	}
	for _, c := range cs.byAcq {
		switch {
		case c.pendingReply != nil && c.due <= now:
			cs.answerNow(c)
		case c.pendingReply != nil:
			cs.next = min(cs.next, c.due)
		case c.inFlight:
		case due && c.due <= now+c.req.Life/6: // claims that are due soon join the batch
			cs.request(c)
		default:
			cs.next = min(cs.next, c.due)
		}
	}
}

// schedule sets when the next request is sent; the caller holds mu.
func (cs *claims) schedule(c *claim, due time.Duration) {
	c.due = due
	cs.next = min(cs.next, due)
}

// requestAnew sends the next request now, or as soon as the one under way is answered: that may have
// looked before what we were told has happened; the caller holds mu.
func (cs *claims) requestAnew(c *claim, now time.Duration) {
	c.again = c.inFlight
	cs.schedule(c, now)
}

// request sends the request of a claim; the caller holds mu.
func (cs *claims) request(c *claim) {
	c.inFlight, c.again = true, false
	c.requests++
	c.sent = &batch.Pending[driver.AcquireRequest, driver.AcquireResult]{
		Request: c.req, Kind: c.kind, Timeout: c.timeout,
		Done: func(a batch.Reply[driver.AcquireResult]) { cs.noteResult(c, a) },
	}
	cs.requests.Add(c.sent)
}

// recall takes the request of a claim back if the batcher has not sent it, because another one is
// in flight; the caller holds mu.
func (cs *claims) recall(c *claim) {
	if c.inFlight && cs.requests.Withdraw(c.sent) {
		c.inFlight = false
		c.requests--
	}
}

// noteResult acts on the reply to the request of one claim.
func (cs *claims) noteResult(c *claim, a batch.Reply[driver.AcquireResult]) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c.inFlight = false
	fault := driver.Fault(0)
	if a.Err != nil {
		fault = cs.locker.mode.Classify(a.Err)
		if fault == driver.Unclear && !c.unknown {
			c.unknown, c.unknownSince = true, a.Before
		}
	}
	r := reply{Before: a.Before, After: a.After, Result: a.Result, Err: a.Err}
	switch {
	case c.left:
		cs.cleanUp(c)
	case c.done: // what this request did is cleaned up after Unlock
	case c.pendingReply != nil:
		cs.answer(c, *c.pendingReply)
	case a.Err == nil && a.Result.Granted && a.Result.Found && c.unknown:
		c.inFlight = true
		cs.locker.inflight.add()
		cs.wg.Go(func() { cs.confirm(c, &a.Result) })
	case a.Err == nil && a.Result.Granted:
		cs.answer(c, r)
	case a.Err == nil && a.Result.Permits != 0:
		cs.fail(c, permitsError(&c.req, &a.Result))
	case fault == driver.Refused:
		cs.fail(c, a.Err)
	case a.Err != nil:
		c.lastErr = a.Err
		c.kind.Isolated = c.kind.Isolated || a.SharedBatch
		cs.schedule(c, cs.locker.clock.Now()+c.backoff.next())
		cs.wakeUp()
	default:
		cs.noteHolder(c, &a)
	}
}

// confirm confirms a grant of an earlier request whose reply was lost.
func (cs *claims) confirm(c *claim, grant *driver.AcquireResult) {
	defer cs.locker.inflight.done()
	r := cs.locker.confirmGrant(c.req, grant, c.timeout)
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c.inFlight = false
	switch {
	case c.left:
		cs.cleanUp(c)
	case c.done:
	case r.Err == nil && r.Result.Granted:
		cs.answer(c, r)
	case c.pendingReply != nil:
		cs.answer(c, *c.pendingReply)
	default:
		c.lastErr = r.Err
		cs.schedule(c, cs.locker.clock.Now()+c.backoff.next())
		cs.wakeUp()
	}
}

// noteHolder notes who holds the name, and schedules the next request: to keep the claim
// alive, or when the name may be free; the caller holds mu.
func (cs *claims) noteHolder(c *claim, a *batch.Reply[driver.AcquireResult]) {
	now := cs.locker.clock.Now()
	c.knownHeld, c.lastErr = true, nil
	c.holder = a.Result.Holder
	c.holderLeft = timeLeft(c.holder.Until, a.Result.Now)
	due := now + c.req.Life/3
	if a.Result.Ahead == 0 {
		switch {
		case c.holderLeft > 0: // it expires that long after the reply at the earliest
			due = min(due, now+c.holderLeft+time.Millisecond)
		default: // no holder is known
			due = min(due, now+c.backoff.next())
		}
	}
	if c.again {
		due = now
	}
	cs.schedule(c, due)
	cs.wakeUp()
}

// useGrant ends a wait with the reply to its claim. With neither a lease nor an error, the
// grant has expired before it could be used.
func (a *acquisition) useGrant(ctx context.Context, c *claim, r reply) (*Lease, error) {
	a.copyClaim(c)
	a.handed = handedOver(&c.req, &r)
	if r.Err == nil && a.nearlyExpired(c, &r) {
		var err error
		grant := r.Result
		r, err = a.locker.await(ctx, func() reply { return a.locker.confirmGrant(a.req, &grant, c.timeout) })
		switch {
		case err != nil:
			a.locker.giveBack(a.req, a.unknown)
			return nil, a.waitError(err)
		case r.Err != nil && a.locker.mode.Classify(r.Err) != driver.Refused, r.Err == nil && !r.Result.Granted:
			return nil, nil
		case r.Err != nil:
			a.locker.giveBack(a.req, a.unknown)
		}
	}
	t, _, err := a.readReply(r)
	if t == nil {
		return nil, lockError(a.req.Name, err)
	}
	t.queued = !t.together()
	return a.beginTerm(ctx, t)
}

// nearlyExpired reports whether little is left of a grant that was handed over: the waiter
// has learned of it late, while a lock delay or a MinHold kept the row. It has to be
// renewed before it is used.
func (a *acquisition) nearlyExpired(c *claim, r *reply) bool {
	left := r.Result.Remaining - (a.req.TTL - a.opts.trustedTTL())
	return r.Result.Found && r.Before+left-a.locker.clock.Now() < min(a.opts.trustedTTL(), c.req.Life)/5
}

// copyClaim copies what the database has said about a claim that is over.
func (a *acquisition) copyClaim(c *claim) {
	a.locker.claims.mu.Lock() // an answer may come late
	defer a.locker.claims.mu.Unlock()
	a.requests += c.requests
	if c.knownHeld || c.lastErr != nil {
		a.knownHeld, a.holder, a.holderLeft, a.lastErr = a.knownHeld || c.knownHeld, c.holder, c.holderLeft, c.lastErr
	}
	if c.unknown {
		a.unknown, a.unknownSince = true, c.unknownSince
	}
}
