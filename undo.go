package sqllock

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// undo frees what requests without a reply may have taken, or may take yet when
// a late packet arrives. Each is freed by its acq, again and again with growing
// pauses, until its TTL is over.
type undo struct {
	mode  mode
	sure  bool // the mode frees for certain, or not yet: no late packet can arrive
	clock clock
	log   *events

	mu      sync.Mutex
	pending map[driver.AbandonRequest]*undoing
	running bool

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

type undoing struct {
	until time.Duration
	next  time.Duration
	pause time.Duration
	ttl   time.Duration
	freed bool // once; what is left is to catch a late packet
}

// undoPause is the first pause between two tries. They grow, but while the name has
// not been freed once, somebody may be waiting for it.
const (
	undoPause    = 20 * time.Millisecond
	maxUndoPause = 500 * time.Millisecond
)

func newUndo(m mode, sure bool, c clock, e *events) *undo {
	ctx, cancel := context.WithCancel(context.Background())
	return &undo{mode: m, sure: sure, clock: c, log: e, pending: make(map[driver.AbandonRequest]*undoing), ctx: ctx, cancel: cancel}
}

// add sees to it that the acquisition holds nothing in the end. A request of it
// was sent at most now.
func (u *undo) add(r driver.AbandonRequest, ttl time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ctx.Err() != nil { // closed: the database's expiry does it
		return
	}
	now := u.clock.now()
	u.pending[r] = &undoing{until: now + ttl, next: now, pause: undoPause, ttl: ttl}
	if !u.running {
		u.running = true
		u.wg.Go(u.run)
	}
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
		for _, r := range due {
			u.free(r)
		}
		if len(due) > 0 {
			continue
		}
		select {
		case <-time.After(wait):
		case <-u.ctx.Done():
		}
	}
}

// due returns what is to be freed now and else how long that takes. When nothing
// is left it says so, and run ends.
func (u *undo) due() (due []driver.AbandonRequest, wait time.Duration, more bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.pending) == 0 || u.ctx.Err() != nil {
		u.running = false
		return nil, 0, false
	}
	now := u.clock.now()
	wait = time.Second
	for r, p := range u.pending {
		if p.next <= now {
			due = append(due, r)
		} else {
			wait = min(wait, p.next-now)
		}
	}
	return due, wait, true
}

// free tries once, alone: names are distinct in a batch, and these need not be.
func (u *undo) free(r driver.AbandonRequest) {
	u.mu.Lock()
	p := u.pending[r]
	u.mu.Unlock()
	ctx, cancel := context.WithTimeout(u.ctx, min(p.ttl/3, maxStatementTimeout))
	defer cancel()
	err := u.mode.abandon(ctx, []driver.AbandonRequest{r})
	if err != nil && u.ctx.Err() == nil {
		u.log.note(slog.LevelDebug, "sqllock: a request without a reply is not undone yet", "name", r.Name, "error", err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	p.freed = p.freed || err == nil
	now := u.clock.now()
	if now >= p.until && !u.sure || u.sure && p.freed {
		if u.pending[r] == p { // not added anew meanwhile
			delete(u.pending, r)
		}
		return
	}
	// The last try comes when the TTL is over, not before.
	p.next = now + p.pause
	if !u.sure {
		p.next = min(p.next, p.until)
	}
	p.pause *= 2
	if !p.freed { // a transaction may keep it from being freed, until it ends
		p.pause = min(p.pause, maxUndoPause)
	}
}
