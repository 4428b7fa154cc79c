package rowstore

import (
	"context"
	"sync"
)

// visitOrder makes visits of one name by one Locker follow each other: of two that meet at its
// row, one would have to begin again after a pause. It is safe for concurrent use.
type visitOrder struct {
	mu    sync.Mutex
	names map[string]*visited
}

// visited is a name that is visited.
type visited struct {
	free   chan struct{} // has an element while no visit is under way
	visits int           // under way, or waiting
}

func newVisitOrder() *visitOrder { return &visitOrder{names: make(map[string]*visited)} }

// begin waits until no other visit of the name is under way, and returns what ends this one.
// If ctx ends before, the error is [ErrLocked].
func (v *visitOrder) begin(ctx context.Context, name string) (end func(), err error) {
	n := v.enter(name)
	select {
	case <-n.free:
		return func() { n.free <- struct{}{}; v.leave(name, n) }, nil
	case <-ctx.Done():
		v.leave(name, n)
		return nil, ErrLocked
	}
}

func (v *visitOrder) enter(name string) *visited {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := v.names[name]
	if n == nil {
		n = &visited{free: make(chan struct{}, 1)}
		n.free <- struct{}{}
		v.names[name] = n
	}
	n.visits++
	return n
}

func (v *visitOrder) leave(name string, n *visited) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if n.visits--; n.visits == 0 {
		delete(v.names, name)
	}
}
