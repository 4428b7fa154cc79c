package demo

import (
	"context"
	"sync"
	"time"
)

// Meeting makes a rare race certain. Some programs go wrong only if several workers read
// before one of them writes. The workers wait for each other here, between the read and
// the write, where a real program calls something slow. A Meeting can be used several
// times. It is safe for concurrent use.
type Meeting struct {
	members int
	timeout time.Duration

	mu      sync.Mutex
	waiting int
	over    chan struct{} // closed when all have come
}

// Meeting returns a meeting of n.
func (d *Demo) Meeting(n int) *Meeting {
	// Under a lock the worker is alone, so it only waits for some milliseconds. That is
	// enough time for another worker to get in by mistake.
	timeout := 5 * time.Millisecond
	if d.Unsafe {
		timeout = longest
	}
	return &Meeting{members: n, timeout: timeout, over: make(chan struct{})}
}

// Wait waits until all have come, with the lock for a few milliseconds at most.
// It returns an error if ctx ends.
func (m *Meeting) Wait(ctx context.Context) error {
	over := m.come()
	defer m.leave(over)
	t := time.NewTimer(m.timeout)
	defer t.Stop()
	select {
	case <-over:
	case <-t.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// come joins the meeting, and ends it if all members are there.
func (m *Meeting) come() (over chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	over = m.over
	m.waiting++
	if m.waiting == m.members {
		m.waiting, m.over = 0, make(chan struct{})
		close(over)
	}
	return over
}

// leave removes a member from the meeting.
func (m *Meeting) leave(over chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over == over {
		m.waiting--
	}
}
