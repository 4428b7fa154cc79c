package sqllock

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/clock"
)

// cleanup undoes requests whose outcome is unknown. Such a request may have acquired a
// name, or may still acquire it when a late packet arrives. cleanup releases each
// acquisition by its acq, repeatedly and with growing pauses, until its TTL is over.
type cleanup struct {
	mode    mode
	certain bool // a release is certain in this mode: no late packet can arrive
	clock   clock.Clock
	log     *events
	onFreed func(name string) // called after a release

	mu      sync.Mutex
	pending map[driver.ReleaseRequest]*cleanupItem
	running bool
	round   int           // rises when Close begins to wait: older refusals do not count
	wake    chan struct{} // has a buffer of one; filled when an item was added

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

type cleanupItem struct {
	req     driver.ReleaseRequest
	until   time.Duration
	next    time.Duration
	pause   time.Duration
	ttl     time.Duration
	once    bool   // no request is in flight: done after one release
	onFreed func() // if not nil: called after the first release, for which there is no time limit
	freed   bool   // released once; repeated to catch a late packet

	round    int   // in which the last try began
	refusals int   // in a row, of tries that began in the current round
	refusal  error // the last of them
}

// cleanupPause is the first pause between two tries. Pauses grow. Until the name was
// released once they are at most maxCleanupPause, because callers may wait for it.
const (
	cleanupPause    = 20 * time.Millisecond
	maxCleanupPause = 500 * time.Millisecond

	cleanupBatch = 256 // requests in a statement, at most

	// finalRefusals is how often in a row the database must refuse a request before Close
	// gives it up. One refusal may be of the moment, such as that of a statement whose
	// tables have just been changed.
	finalRefusals = 2
)

func newCleanup(m mode, certain bool, c clock.Clock, e *events, onFreed func(name string)) *cleanup {
	ctx, cancel := context.WithCancel(context.Background())
	return &cleanup{mode: m, certain: certain, clock: c, log: e, onFreed: onFreed, pending: make(map[driver.ReleaseRequest]*cleanupItem),
		wake: make(chan struct{}, 1), ctx: ctx, cancel: cancel}
}

// add releases an acquisition whose last request was sent at most now.
func (c *cleanup) add(r driver.ReleaseRequest, ttl time.Duration) { c.put(r, ttl, false, nil) }

// addOnce is add for an acquisition without a request in flight.
func (c *cleanup) addOnce(r driver.ReleaseRequest, ttl time.Duration) { c.put(r, ttl, true, nil) }

// addGuarded is add for a term that a transaction guards. It goes on for as long as the
// transaction lasts, and then calls onFreed.
func (c *cleanup) addGuarded(r driver.ReleaseRequest, ttl time.Duration, onFreed func()) {
	c.put(r, ttl, false, onFreed)
}

func (c *cleanup) put(r driver.ReleaseRequest, ttl time.Duration, once bool, onFreed func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil { // closed: the rows expire
		return
	}
	if old := c.pending[r]; old != nil { // what was unknown stays unknown
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

// drain waits until each item was released once, the database has refused all that are
// left, or ctx ends. Its error says how many were not released.
func (c *cleanup) drain(ctx context.Context) error {
	c.retryNow()
	for {
		n, err := c.unfinished()
		if n == 0 {
			return nil
		}
		if err == nil && sleep(ctx, cleanupPause/4) != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("sqllock: close: %d requests without a reply are not cleaned up and will expire: %w", n, err)
		}
	}
}

// retryNow makes what was not released yet due. Refusals of tries that have begun before do
// not count any more.
func (c *cleanup) retryNow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.round++
	for _, item := range c.pending {
		if !item.freed {
			item.refusals, item.next, item.pause = 0, c.clock.Now(), cleanupPause
		}
	}
	wake(c.wake)
}

// unfinished returns how many items were not released, and an error if the database has
// refused all of them for good.
func (c *cleanup) unfinished() (n int, refusal error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting := false
	for _, item := range c.pending {
		if item.freed {
			continue
		}
		n++
		waiting = waiting || item.refusals < finalRefusals
		refusal = item.refusal
	}
	if waiting {
		refusal = nil
	}
	return n, refusal
}

// close ends the statements in flight and waits for them. The rows that are left expire.
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

// due returns the items that are due, and else how long that takes. It reports false if
// none is left: then run ends.
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
			item.round = c.round
			due = append(due, item)
		} else {
			wait = min(wait, item.next-now)
		}
	}
	return due, wait, true
}

// runBatch sends the items in one statement and, if that fails, each by itself.
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
	reqs := make([]driver.ReleaseRequest, len(batch))
	timeout := maxStatementTimeout
	for i, item := range batch {
		reqs[i] = item.req
		reqs[i].Settle = !item.once && !item.freed // what arrives later is seen by the next tries
		timeout = min(timeout, item.ttl/3)
	}
	ctx, cancel := context.WithTimeout(c.ctx, timeout)
	defer cancel()
	_, err := c.mode.Release(ctx, reqs)
	return err
}

// noteResult notes the outcome of one item and schedules its next try.
func (c *cleanup) noteResult(item *cleanupItem, err error) {
	if err != nil && c.ctx.Err() == nil {
		c.log.note(slog.LevelDebug, "sqllock: a request without a reply is not cleaned up yet", "name", item.req.Name, "error", err)
	}
	if err == nil {
		c.onFreed(item.req.Name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending[item.req] != item { // it was added again meanwhile
		return
	}
	item.freed = item.freed || err == nil
	switch {
	case err == nil || c.mode.Classify(err) != driver.Refused:
		item.refusals = 0
	case item.round == c.round:
		item.refusals, item.refusal = item.refusals+1, err
	}
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
	if !item.freed { // a transaction may block the release until it ends
		item.pause = min(item.pause, maxCleanupPause)
	}
}
