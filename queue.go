package sqllock

import "sync"

// queue holds the waiters of this process, in the order in which they came, one
// line per name. Only the head of a line asks the database, and nobody does
// while the process holds the name itself: so a name has one contender per
// process, however many goroutines wait.
type queue struct {
	mu    sync.Mutex
	lines map[string]*line
}

type line struct {
	held    *hold              // the process holds the name alone
	readers map[*hold]struct{} // it does so together with others
	waiters []*waiter
}

// waiter is one call of Lock that waits.
type waiter struct {
	name   string
	owner  string // explicit owner, or ""
	shared bool
	wake   chan struct{} // something changed: look again; buffered, one is enough
}

func newQueue() *queue { return &queue{lines: make(map[string]*line)} }

// join puts a waiter at the end of its line.
func (q *queue) join(name, owner string, shared bool) *waiter {
	w := &waiter{name: name, owner: owner, shared: shared, wake: make(chan struct{}, 1)}
	q.mu.Lock()
	defer q.mu.Unlock()
	ln := q.line(name)
	ln.waiters = append(ln.waiters, w)
	return w
}

// leave takes a waiter out of its line and lets the next one look.
func (q *queue) leave(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln := q.line(w.name)
	for i, x := range ln.waiters {
		if x == w {
			ln.waiters = append(ln.waiters[:i], ln.waiters[i+1:]...)
			break
		}
	}
	q.nudge(w.name, ln)
}

// look tells a waiter what it may do now: enter a hold of its own owner, ask the
// database, or neither: wait for its wake. Readers of this process enter together
// with those that it has already, a waiter that wants the name alone waits for them.
func (q *queue) look(w *waiter) (mine *hold, ask bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln := q.line(w.name)
	if mine = ln.ownedBy(w.owner); mine != nil {
		return mine, false
	}
	free := ln.held == nil && (w.shared || len(ln.readers) == 0)
	return nil, free && ln.waiters[0] == w
}

// ownedBy returns the hold that an explicit owner may enter, or nil.
func (ln *line) ownedBy(owner string) *hold {
	if ln.held != nil && ln.held.ownedBy(owner) {
		return ln.held
	}
	for h := range ln.readers {
		if h.ownedBy(owner) {
			return h
		}
	}
	return nil
}

// owned returns the hold of name that an explicit owner may enter, or nil.
func (q *queue) owned(name, owner string) *hold {
	q.mu.Lock()
	defer q.mu.Unlock()
	if ln := q.lines[name]; ln != nil {
		return ln.ownedBy(owner)
	}
	return nil
}

// quiet reports whether nobody of the process has name or waits for it.
func (q *queue) quiet(name string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lines[name] == nil
}

// alone reports whether the process holds name and nobody with it.
func (q *queue) alone(name string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln := q.lines[name]
	return ln != nil && ln.held != nil
}

// holds returns the holds that the process has on name.
func (q *queue) holds(name string) []*hold {
	q.mu.Lock()
	defer q.mu.Unlock()
	if ln := q.lines[name]; ln != nil {
		return ln.holds()
	}
	return nil
}

func (ln *line) holds() (all []*hold) {
	if ln.held != nil {
		all = append(all, ln.held)
	}
	for h := range ln.readers {
		all = append(all, h)
	}
	return all
}

// took notes that the process holds the name now, and returns the holds that it
// was believed to have before and that this one excludes. Waiters of the same
// explicit owner need not wait for their turn.
func (q *queue) took(h *hold) (old []*hold) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln := q.line(h.name)
	if h.shared {
		if ln.held != nil {
			old = append(old, ln.held)
		}
		ln.held = nil
		if ln.readers == nil {
			ln.readers = make(map[*hold]struct{})
		}
		ln.readers[h] = struct{}{}
	} else {
		old = ln.holds()
		ln.held, ln.readers = h, nil
	}
	for _, w := range ln.waiters {
		if h.ownedBy(w.owner) {
			w.nudge()
		}
	}
	return old
}

// freed notes that a hold is over and lets the head of the line look.
func (q *queue) freed(h *hold) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln := q.line(h.name)
	if ln.held == h {
		ln.held = nil
	}
	delete(ln.readers, h)
	q.nudge(h.name, ln)
}

// line returns the line of a name; the caller holds mu.
func (q *queue) line(name string) *line {
	ln := q.lines[name]
	if ln == nil {
		ln = &line{}
		q.lines[name] = ln
	}
	return ln
}

// nudge wakes the head of a line, or forgets an empty line; the caller holds mu.
func (q *queue) nudge(name string, ln *line) {
	switch {
	case len(ln.waiters) > 0:
		ln.waiters[0].nudge()
	case ln.held == nil && len(ln.readers) == 0:
		delete(q.lines, name)
	}
}

func (w *waiter) nudge() {
	rouse(w.wake)
}

// rouse leaves a token for whoever waits on wake, unless there is one.
func rouse(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}
