package sqllock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// queue holds, for each name, the waiters of this Locker in the order in which they came.
// Only the first waiter of a name sends requests, and none does while the Locker holds the
// name. So each Locker has at most one request per name, however many goroutines wait.
type queue struct {
	mu    sync.Mutex
	names map[string]*nameState
	spare *nameState // empty; nil if there is none
}

// nameState is what the Locker knows of one name. It is guarded by queue.mu.
type nameState struct {
	exclusive *term              // the exclusive term that this Locker has
	together  map[*term]struct{} // its shared terms, or its permits
	waiters   []*waiter
}

// waiter is a call of Lock, RLock or Acquire that waits.
type waiter struct {
	name     string
	owner    string        // explicit owner that may re-enter, or ""
	together bool          // shared, or with a permit
	wake     chan struct{} // something changed: check again; has a buffer of one
}

func newQueue() *queue { return &queue{names: make(map[string]*nameState)} }

// join adds a waiter at the end of the queue of name.
func (q *queue) join(name, owner string, together bool) *waiter {
	w := &waiter{name: name, owner: owner, together: together, wake: make(chan struct{}, 1)}
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.state(name)
	s.waiters = append(s.waiters, w)
	return w
}

// leave removes a waiter from the queue. If it was the first, it wakes the one that is now. For others
// nothing has changed: they keep their pauses.
func (q *queue) leave(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.state(w.name)
	i := slices.Index(s.waiters, w)
	s.waiters = slices.Delete(s.waiters, i, i+1)
	if i == 0 {
		q.wakeFirst(w.name, s)
	}
}

// check tells a waiter what to do: re-enter a term of its own owner, send a request
// because it is the first, or wait until it is woken. Readers may enter while the Locker
// has readers of the name, and holders of permits beside others; a waiter that wants the name
// exclusively waits for them.
func (q *queue) check(w *waiter) (mine *term, first bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.state(w.name)
	if mine = s.ownedBy(w.owner); mine != nil {
		return mine, false
	}
	free := s.exclusive == nil && (w.together || len(s.together) == 0)
	return nil, free && s.waiters[0] == w
}

// ownedBy returns the term that an explicit owner may re-enter, or nil.
func (s *nameState) ownedBy(owner string) *term {
	if s.exclusive != nil && s.exclusive.ownedBy(owner) {
		return s.exclusive
	}
	for t := range s.together {
		if t.ownedBy(owner) {
			return t
		}
	}
	return nil
}

// ownedBy returns the term of name that an explicit owner may re-enter, or nil.
func (q *queue) ownedBy(name, owner string) *term {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.names[name]; s != nil {
		return s.ownedBy(owner)
	}
	return nil
}

// unused reports whether this Locker neither holds name nor has waiters for it.
func (q *queue) unused(name string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.names[name] == nil
}

// heldExclusively reports whether this Locker has an exclusive term of name.
func (q *queue) heldExclusively(name string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.names[name]
	return s != nil && s.exclusive != nil
}

// terms returns the terms of name that this Locker has.
func (q *queue) terms(name string) []*term {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.names[name]; s != nil {
		return s.terms()
	}
	return nil
}

func (s *nameState) terms() (all []*term) {
	if s.exclusive != nil {
		all = append(all, s.exclusive)
	}
	for t := range s.together {
		all = append(all, t)
	}
	return all
}

// granted notes a new term. It returns the earlier terms that the new one excludes, and
// wakes the waiters of the same explicit owner, who can re-enter. If one of them is later, the new
// one is over already: its grant was noted late. Then granted changes nothing, and returns false.
func (q *queue) granted(t *term) (old []*term, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.state(t.name)
	for _, other := range s.terms() {
		if other == s.exclusive || t.excludes(other) {
			old = append(old, other)
		}
	}
	if slices.ContainsFunc(old, func(other *term) bool { return other.token > t.token && other.remaining() > 0 }) {
		return nil, false
	}
	for _, other := range old {
		s.forget(other)
	}
	switch {
	case !t.together():
		s.exclusive = t
	case s.together == nil:
		s.together = map[*term]struct{}{t: {}}
	default:
		s.together[t] = struct{}{}
	}
	s.wakeOwner(t)
	return old, true
}

// back notes that a term goes on which seemed to end, and wakes the waiters of the same explicit
// owner, who can re-enter.
func (q *queue) back(t *term) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.names[t.name]; s != nil {
		s.wakeOwner(t)
	}
}

// wakeOwner wakes the waiters of the explicit owner of a term.
func (s *nameState) wakeOwner(t *term) {
	if !t.ownerGiven { // nobody can re-enter, and there may be thousands
		return
	}
	for _, w := range s.waiters {
		if t.ownedBy(w.owner) {
			w.wakeUp()
		}
	}
}

// ended notes that a term is over, and wakes the first waiter.
func (q *queue) ended(t *term) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.state(t.name)
	s.forget(t)
	q.wakeFirst(t.name, s)
}

// forget removes a term.
func (s *nameState) forget(t *term) {
	if s.exclusive == t {
		s.exclusive = nil
	}
	delete(s.together, t)
}

// state returns the state of a name; the caller holds mu.
func (q *queue) state(name string) *nameState {
	s := q.names[name]
	if s == nil {
		if s = q.spare; s == nil {
			s = new(nameState)
		}
		q.spare = nil
		q.names[name] = s
	}
	return s
}

// wakeFirst wakes the first waiter, or forgets a name that is not used; the caller holds mu.
func (q *queue) wakeFirst(name string, s *nameState) {
	switch {
	case len(s.waiters) > 0:
		s.waiters[0].wakeUp()
	case s.exclusive == nil && len(s.together) == 0:
		delete(q.names, name)
		*s = nameState{}
		q.spare = s
	}
}

func (w *waiter) wakeUp() {
	wake(w.wake)
}

// wake wakes the goroutine that waits on ch, or the next one to do so.
func wake(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// waitInQueue waits in the queue of this process. It waits for pause before its first
// request, if pause is not 0.
func (a *acquisition) waitInQueue(ctx context.Context, backoff *backoff, pause time.Duration) (*Lease, error) {
	l := a.locker
	owner := a.owner
	if a.opts.permits != 0 { // it re-enters nothing
		owner = ""
	}
	w := l.queue.join(a.req.Name, owner, a.opts.together())
	defer l.queue.leave(w)
	claims := l.claims.available() && !a.opts.hasTries
	for {
		mine, first := l.queue.check(w)
		if mine != nil {
			lease, err := a.reenter(ctx, mine)
			if lease != nil || errors.Is(err, ErrUpgrade) { // else that term ends just now, and wakes this waiter
				a.abandon()
				return lease, err
			}
		}
		if (a.knownHeld || !first) && a.reportsWait() {
			a.noteWaiting(a.heldError())
		}
		switch {
		case claims && (a.knownHeld || a.contended || !first): // the name is held, or another waiter is first
			return a.waitWithClaim(ctx, w)
		case !first:
			pause = never
		case pause == 0:
			lease, next, err := a.requestOnce(ctx, backoff)
			if lease != nil || err != nil {
				return lease, err
			}
			pause = next
		}
		if err := l.sleep(ctx, w.wake, pause); err != nil {
			a.abandon()
			return nil, a.waitError(err)
		}
		pause = 0
	}
}

// waitWithClaim waits with a claim in the database. If the grant of a claim has expired
// before it could be used, it waits with a new claim.
func (a *acquisition) waitWithClaim(ctx context.Context, w *waiter) (*Lease, error) {
	for {
		lease, err := a.waitForClaim(ctx, w, a.locker.claims.add(a, carriedBy(ctx)))
		if lease != nil || err != nil {
			return lease, err
		}
	}
}

// waitForClaim waits until claim c is granted. With neither a lease nor an error, the
// grant has expired before it could be used.
func (a *acquisition) waitForClaim(ctx context.Context, w *waiter, c *claim) (*Lease, error) {
	l := a.locker
	for {
		if mine, _ := l.queue.check(w); mine != nil {
			lease, err := a.reenter(ctx, mine)
			if lease != nil || errors.Is(err, ErrUpgrade) {
				if !l.claims.withdraw(c) {
					r := <-c.result
					a.copyClaim(c)
					a.abandon()
					l.giveBackLate(&a.req, r)
				}
				return lease, err
			}
		}
		select {
		case r := <-c.result:
			return a.useGrant(ctx, c, r)
		case <-w.wake:
			continue
		case <-ctx.Done():
		case <-l.inflight.closing:
		}
		if !l.claims.withdraw(c) {
			lease, err := a.useGrant(ctx, c, <-c.result)
			if lease != nil || err != nil {
				return lease, err
			}
			a.abandon()
		} else {
			a.copyClaim(c)
		}
		if ctx.Err() != nil {
			return nil, a.waitError(endOf(ctx))
		}
		return nil, ErrClosed
	}
}
