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
type cleanup struct {
	mode    mode
	certain bool // the mode frees for certain, or not yet: no late packet can arrive
	clock   clock.Clock
	log     *events
	onFreed func(name string) // called when something was

	mu      sync.Mutex
	pending map[driver.AbandonRequest]*cleanupItem
	running bool
	wake    chan struct{} // has a token in it when something was added

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

type cleanupItem struct {
	req     driver.AbandonRequest
	until   time.Duration
	next    time.Duration
	pause   time.Duration
	ttl     time.Duration
	once    bool   // nothing of it is under way any more: it is over when it was freed
	onFreed func() // if not nil: called once it was freed, for which there is no limit
	freed   bool   // what is left is to catch a late packet
}

// undoPause is the first pause between two tries. They grow, but while the name has
// not been freed once, somebody may be waiting for it.
const (
	cleanupPause    = 20 * time.Millisecond
	maxCleanupPause = 500 * time.Millisecond

	cleanupBatch = 256 // requests in a statement, at most
)

func newCleanup(m mode, certain bool, c clock.Clock, e *events, onFreed func(name string)) *cleanup {
	ctx, cancel := context.WithCancel(context.Background())
	return &cleanup{mode: m, certain: certain, clock: c, log: e, onFreed: onFreed, pending: make(map[driver.AbandonRequest]*cleanupItem),
		wake: make(chan struct{}, 1), ctx: ctx, cancel: cancel}
}

// add sees to it that the acquisition holds nothing in the end. A request of it
// was sent at most now.
func (c *cleanup) add(r driver.AbandonRequest, ttl time.Duration) { c.put(r, ttl, false, nil) }

// once is add for an acquisition of which no request is under way.
func (c *cleanup) addOnce(r driver.AbandonRequest, ttl time.Duration) { c.put(r, ttl, true, nil) }

// guarded is add for what a transaction guards: it goes on for as long as that takes, and
// then calls then.
func (c *cleanup) addGuarded(r driver.AbandonRequest, ttl time.Duration, onFreed func()) {
	c.put(r, ttl, false, onFreed)
}

func (c *cleanup) put(r driver.AbandonRequest, ttl time.Duration, once bool, onFreed func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil { // closed: the database's expiry does it
		return
	}
	if old := c.pending[r]; old != nil { // what was not clear is not yet
		once = once && old.once
		if onFreed == nil {
			onFreed = old.onFreed
		}
	}
	now := c.clock.Now()
	c.pending[r] = &cleanupItem{req: r, until: now + ttl, next: now, pause: cleanupPause, ttl: ttl, once: once, onFreed: onFreed}
	if !c.running {
		c.running = true
		c.wg.Go(c.run)
	}
	wake(c.wake)
}

// drain waits until everything was freed once, or ctx ends, and returns how much
// was not.
func (c *cleanup) drain(ctx context.Context) int {
	for {
		n := c.unfinished()
		if n == 0 || sleep(ctx, cleanupPause/4) != nil {
			return n
		}
	}
}

func (c *cleanup) unfinished() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, item := range c.pending {
		if !item.freed {
			n++
		}
	}
	return n
}

// close stops what is under way and joins it. What is left expires.
func (c *cleanup) close() {
	c.mu.Lock()
	c.cancel()
	c.mu.Unlock()
	c.wg.Wait()
}

func (c *cleanup) run() {
	for {
		due, wait, more := c.due()
		if !more {
			return
		}
		for batch := range slices.Chunk(due, cleanupBatch) {
			c.runBatch(batch)
		}
		if len(due) > 0 {
			continue
		}
		select {
		case <-time.After(wait):
		case <-c.wake:
		case <-c.ctx.Done():
		}
	}
}

// due returns what is to be freed now and else how long that takes. When nothing
// is left it says so, and run ends.
func (c *cleanup) due() (due []*cleanupItem, wait time.Duration, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending) == 0 || c.ctx.Err() != nil {
		c.running = false
		return nil, 0, false
	}
	now := c.clock.Now()
	wait = time.Second
	for _, item := range c.pending {
		if item.next <= now {
			due = append(due, item)
		} else {
			wait = min(wait, item.next-now)
		}
	}
	return due, wait, true
}

// free tries once, all together; if that fails, each by itself.
func (c *cleanup) runBatch(batch []*cleanupItem) {
	slices.SortFunc(batch, func(a, b *cleanupItem) int { return cmp.Compare(a.req.Name, b.req.Name) })
	err := c.send(batch)
	if err != nil && len(batch) > 1 {
		for i, item := range batch {
			c.noteResult(item, c.send(batch[i:i+1]))
		}
		return
	}
	for _, item := range batch {
		c.noteResult(item, err)
	}
}

func (c *cleanup) send(batch []*cleanupItem) error {
	reqs := make([]driver.AbandonRequest, len(batch))
	timeout := maxStatementTimeout
	for i, item := range batch {
		reqs[i] = item.req
		timeout = min(timeout, item.ttl/3)
	}
	ctx, cancel := context.WithTimeout(c.ctx, timeout)
	defer cancel()
	return c.mode.Abandon(ctx, reqs)
}

// settle notes what came of one request, and plans its next try.
func (c *cleanup) noteResult(item *cleanupItem, err error) {
	if err != nil && c.ctx.Err() == nil {
		c.log.note(slog.LevelDebug, "sqllock: a request without a reply is not undone yet", "name", item.req.Name, "error", err)
	}
	if err == nil {
		c.onFreed(item.req.Name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending[item.req] != item { // it was added anew meanwhile
		return
	}
	item.freed = item.freed || err == nil
	if item.freed && item.onFreed != nil {
		item.onFreed()
		item.onFreed = nil
	}
	now := c.clock.Now()
	certain := c.certain || item.once
	if now >= item.until && !c.certain && item.onFreed == nil || certain && item.freed {
		delete(c.pending, item.req)
		return
	}
	// The last try comes when the TTL is over, not before.
	item.next = now + item.pause
	if !c.certain && item.onFreed == nil {
		item.next = min(item.next, item.until)
	}
	item.pause *= 2
	if !item.freed { // a transaction may keep it from being freed, until it ends
		item.pause = min(item.pause, maxCleanupPause)
	}
}
