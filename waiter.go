package sqllock

import (
	"context"
	"errors"
	"sync"
	"time"
)

// queue holds the waiters of this process, in the order in which they came, one
// line per name. Only the head of a line asks the database, and nobody does
// while the process holds the name itself: so a name has one contender per
// process, however many goroutines wait.
type queue struct {
	mu    sync.Mutex
	names map[string]*nameState
}

type nameState struct {
	exclusive *term              // the process holds the name alone
	readers   map[*term]struct{} // it does so together with others
	waiters   []*waiter
}

// waiter is one call of Lock that waits.
type waiter struct {
	name   string
	owner  string // explicit owner, or ""
	shared bool
	wake   chan struct{} // something changed: look again; buffered, one is enough
}

func newQueue() *queue { return &queue{names: make(map[string]*nameState)} }

// join puts a waiter at the end of its line.
func (q *queue) join(name, owner string, shared bool) *waiter {
	w := &waiter{name: name, owner: owner, shared: shared, wake: make(chan struct{}, 1)}
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.state(name)
	s.waiters = append(s.waiters, w)
	return w
}

// leave takes a waiter out of its line and lets the next one look.
func (q *queue) leave(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.state(w.name)
	for i, x := range s.waiters {
		if x == w {
			s.waiters = append(s.waiters[:i], s.waiters[i+1:]...)
			break
		}
	}
	q.wakeFirst(w.name, s)
}

// look tells a waiter what it may do now: enter a hold of its own owner, ask the
// database, or neither: wait for its wake. Readers of this process enter together
// with those that it has already, a waiter that wants the name alone waits for them.
func (q *queue) check(w *waiter) (mine *term, ask bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.state(w.name)
	if mine = s.ownedBy(w.owner); mine != nil {
		return mine, false
	}
	free := s.exclusive == nil && (w.shared || len(s.readers) == 0)
	return nil, free && s.waiters[0] == w
}

// ownedBy returns the hold that an explicit owner may enter, or nil.
func (s *nameState) ownedBy(owner string) *term {
	if s.exclusive != nil && s.exclusive.ownedBy(owner) {
		return s.exclusive
	}
	for t := range s.readers {
		if t.ownedBy(owner) {
			return t
		}
	}
	return nil
}

// owned returns the hold of name that an explicit owner may enter, or nil.
func (q *queue) ownedBy(name, owner string) *term {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.names[name]; s != nil {
		return s.ownedBy(owner)
	}
	return nil
}

// quiet reports whether nobody of the process has name or waits for it.
func (q *queue) unused(name string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.names[name] == nil
}

// alone reports whether the process holds name and nobody with it.
func (q *queue) heldExclusively(name string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.names[name]
	return s != nil && s.exclusive != nil
}

// holds returns the holds that the process has on name.
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
	for t := range s.readers {
		all = append(all, t)
	}
	return all
}

// took notes that the process holds the name now, and returns the holds that it
// was believed to have before and that this one excludes. Waiters of the same
// explicit owner need not wait for their turn.
func (q *queue) granted(t *term) (old []*term) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.state(t.name)
	if t.shared {
		if s.exclusive != nil {
			old = append(old, s.exclusive)
		}
		s.exclusive = nil
		if s.readers == nil {
			s.readers = make(map[*term]struct{})
		}
		s.readers[t] = struct{}{}
	} else {
		old = s.terms()
		s.exclusive, s.readers = t, nil
	}
	for _, w := range s.waiters {
		if t.ownedBy(w.owner) {
			w.wakeUp()
		}
	}
	return old
}

// freed notes that a hold is over and lets the head of the line look.
func (q *queue) ended(t *term) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.state(t.name)
	if s.exclusive == t {
		s.exclusive = nil
	}
	delete(s.readers, t)
	q.wakeFirst(t.name, s)
}

// line returns the line of a name; the caller holds mu.
func (q *queue) state(name string) *nameState {
	s := q.names[name]
	if s == nil {
		s = &nameState{}
		q.names[name] = s
	}
	return s
}

// nudge wakes the head of a line, or forgets an empty line; the caller holds mu.
func (q *queue) wakeFirst(name string, s *nameState) {
	switch {
	case len(s.waiters) > 0:
		s.waiters[0].wakeUp()
	case s.exclusive == nil && len(s.readers) == 0:
		delete(q.names, name)
	}
}

func (w *waiter) wakeUp() {
	wake(w.wake)
}

// rouse leaves a token for whoever waits on wake, unless there is one.
func wake(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// stand waits in line.
func (l *Locker) stand(ctx context.Context, w *waiter, a *acquisition) (*Lease, error) {
	for {
		lease, err := l.standOnce(ctx, w, a)
		if lease != nil || err != nil {
			return lease, err
		}
	}
}

// standOnce is stand. Without a lease and without an error the wait goes on.
func (l *Locker) standOnce(ctx context.Context, w *waiter, a *acquisition) (*Lease, error) {
	c := l.claims.add(a, carriedBy(ctx))
	for {
		if mine, _ := l.queue.check(w); mine != nil {
			lease, err := mine.reenter(ctx, a.opts.shared)
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
		}
		a.copyClaim(c)
		if ctx.Err() != nil {
			return nil, a.waitError(endOf(ctx))
		}
		return nil, ErrClosed
	}
}

// queueUp waits for nap first, if it is not 0.
func (l *Locker) queueUp(ctx context.Context, a *acquisition, o lockOptions, pause backoff, nap time.Duration) (*Lease, error) {
	w := l.queue.join(a.req.Name, a.owner, o.shared)
	defer l.queue.leave(w)
	lines := l.claims.available() && !o.hasTries
	for {
		mine, ask := l.queue.check(w)
		if mine != nil {
			lease, err := mine.reenter(ctx, o.shared)
			if lease != nil || errors.Is(err, ErrUpgrade) { // else it ends just now, and wakes us
				a.abandon()
				return lease, err
			}
		}
		switch {
		case lines && (a.knownHeld || !ask): // nobody has to ask who knows that others do
			return l.stand(ctx, w, a)
		case !ask:
			nap = never
		case nap == 0:
			lease, next, err := l.requestOnce(ctx, a, o, &pause)
			if lease != nil || err != nil {
				return lease, err
			}
			nap = next
		}
		if err := l.sleep(ctx, w.wake, nap); err != nil {
			a.abandon()
			return nil, a.waitError(err)
		}
		nap = 0
	}
}
