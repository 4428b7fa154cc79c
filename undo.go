package sqllock

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/clock"
)

// undo frees what requests without a reply may have taken, or may take yet when
// a late packet arrives. Each is freed by its acq, again and again with growing
// pauses, until its TTL is over.
type undo struct {
	mode  mode
	sure  bool // the mode frees for certain, or not yet: no late packet can arrive
	clock clock.Clock
	log   *events
	freed func(name string) // called when something was

	mu      sync.Mutex
	pending map[driver.AbandonRequest]*undoing
	running bool
	wake    chan struct{} // has a token in it when something was added

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

type undoing struct {
	req   driver.AbandonRequest
	until time.Duration
	next  time.Duration
	pause time.Duration
	ttl   time.Duration
	once  bool   // nothing of it is under way any more: it is over when it was freed
	then  func() // if not nil: called once it was freed, for which there is no limit
	freed bool   // what is left is to catch a late packet
}

// undoPause is the first pause between two tries. They grow, but while the name has
// not been freed once, somebody may be waiting for it.
const (
	undoPause    = 20 * time.Millisecond
	maxUndoPause = 500 * time.Millisecond

	undoBatch = 256 // requests in a statement, at most
)

func newUndo(m mode, sure bool, c clock.Clock, e *events, freed func(name string)) *undo {
	ctx, cancel := context.WithCancel(context.Background())
	return &undo{mode: m, sure: sure, clock: c, log: e, freed: freed, pending: make(map[driver.AbandonRequest]*undoing),
		wake: make(chan struct{}, 1), ctx: ctx, cancel: cancel}
}

// add sees to it that the acquisition holds nothing in the end. A request of it
// was sent at most now.
func (u *undo) add(r driver.AbandonRequest, ttl time.Duration) { u.start(r, ttl, false, nil) }

// once is add for an acquisition of which no request is under way.
func (u *undo) once(r driver.AbandonRequest, ttl time.Duration) { u.start(r, ttl, true, nil) }

// guarded is add for what a transaction guards: it goes on for as long as that takes, and
// then calls then.
func (u *undo) guarded(r driver.AbandonRequest, ttl time.Duration, then func()) {
	u.start(r, ttl, false, then)
}

func (u *undo) start(r driver.AbandonRequest, ttl time.Duration, once bool, then func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ctx.Err() != nil { // closed: the database's expiry does it
		return
	}
	if old := u.pending[r]; old != nil { // what was not clear is not yet
		once = once && old.once
		if then == nil {
			then = old.then
		}
	}
	now := u.clock.Now()
	u.pending[r] = &undoing{req: r, until: now + ttl, next: now, pause: undoPause, ttl: ttl, once: once, then: then}
	if !u.running {
		u.running = true
		u.wg.Go(u.run)
	}
	rouse(u.wake)
}

// drain waits until everything was freed once, or ctx ends, and returns how much
// was not.
func (u *undo) drain(ctx context.Context) int {
	for {
		n := u.left()
		if n == 0 || nap(ctx, undoPause/4) != nil {
			return n
		}
	}
}

func (u *undo) left() (n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, p := range u.pending {
		if !p.freed {
			n++
		}
	}
	return n
}

// close stops what is under way and joins it. What is left expires.
func (u *undo) close() {
	u.mu.Lock()
	u.cancel()
	u.mu.Unlock()
	u.wg.Wait()
}

func (u *undo) run() {
	for {
		due, wait, more := u.due()
		if !more {
			return
		}
		for batch := range slices.Chunk(due, undoBatch) {
			u.free(batch)
		}
		if len(due) > 0 {
			continue
		}
		select {
		case <-time.After(wait):
		case <-u.wake:
		case <-u.ctx.Done():
		}
	}
}

// due returns what is to be freed now and else how long that takes. When nothing
// is left it says so, and run ends.
func (u *undo) due() (due []*undoing, wait time.Duration, more bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.pending) == 0 || u.ctx.Err() != nil {
		u.running = false
		return nil, 0, false
	}
	now := u.clock.Now()
	wait = time.Second
	for _, p := range u.pending {
		if p.next <= now {
			due = append(due, p)
		} else {
			wait = min(wait, p.next-now)
		}
	}
	return due, wait, true
}

// free tries once, all together; if that fails, each by itself.
func (u *undo) free(batch []*undoing) {
	slices.SortFunc(batch, func(a, b *undoing) int { return cmp.Compare(a.req.Name, b.req.Name) })
	err := u.send(batch)
	if err != nil && len(batch) > 1 {
		for i, p := range batch {
			u.settle(p, u.send(batch[i:i+1]))
		}
		return
	}
	for _, p := range batch {
		u.settle(p, err)
	}
}

func (u *undo) send(batch []*undoing) error {
	reqs := make([]driver.AbandonRequest, len(batch))
	timeout := maxStatementTimeout
	for i, p := range batch {
		reqs[i] = p.req
		timeout = min(timeout, p.ttl/3)
	}
	ctx, cancel := context.WithTimeout(u.ctx, timeout)
	defer cancel()
	return u.mode.Abandon(ctx, reqs)
}

// settle notes what came of one request, and plans its next try.
func (u *undo) settle(p *undoing, err error) {
	if err != nil && u.ctx.Err() == nil {
		u.log.note(slog.LevelDebug, "sqllock: a request without a reply is not undone yet", "name", p.req.Name, "error", err)
	}
	if err == nil {
		u.freed(p.req.Name)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.pending[p.req] != p { // it was added anew meanwhile
		return
	}
	p.freed = p.freed || err == nil
	if p.freed && p.then != nil {
		p.then()
		p.then = nil
	}
	now := u.clock.Now()
	sure := u.sure || p.once
	if now >= p.until && !u.sure && p.then == nil || sure && p.freed {
		delete(u.pending, p.req)
		return
	}
	// The last try comes when the TTL is over, not before.
	p.next = now + p.pause
	if !u.sure && p.then == nil {
		p.next = min(p.next, p.until)
	}
	p.pause *= 2
	if !p.freed { // a transaction may keep it from being freed, until it ends
		p.pause = min(p.pause, maxUndoPause)
	}
}
