package sqllock

import (
	"context"
	"sync"
)

// gate counts what is under way in a Locker, so that Close can refuse what is
// new and join what is not.
type gate struct {
	mu     sync.Mutex
	n      int
	shut   bool
	idle   chan struct{} // closed when n gets to 0, if somebody waits
	ending chan struct{} // closed by close
}

func newGate() *gate { return &gate{ending: make(chan struct{})} }

// enter counts something new in, unless the gate is shut.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.shut {
		g.n++
	}
	return !g.shut
}

// resume counts something in that belongs to what was let in before.
func (g *gate) resume() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n++
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n--
	if g.n == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// close shuts the gate and tells those who wait inside.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.shut {
		g.shut = true
		close(g.ending)
	}
}

// wait returns when nothing is under way, or with the cause of ctx.
func (g *gate) wait(ctx context.Context) error {
	g.mu.Lock()
	if g.n == 0 {
		g.mu.Unlock()
		return nil
	}
	if g.idle == nil {
		g.idle = make(chan struct{})
	}
	idle := g.idle
	g.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
