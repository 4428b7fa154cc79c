package demo

import (
	"context"
	"sync"
	"time"
)

// Meeting makes a rare moment certain. Where a program goes wrong only if several
// happen to have read before one of them writes, they wait for each other here,
// between the read and the write. It stands where real programs call something
// slow. It may be used again and again. It is safe for concurrent use.
type Meeting struct {
	members int
	timeout time.Duration

	mu      sync.Mutex
	waiting int
	over    chan struct{} // closed when all have come
}

// Meeting returns a meeting of n.
func (d *Demo) Meeting(n int) *Meeting {
	// Under a lock nobody else can come, which nobody need wait for: then it is a
	// call that takes some milliseconds, time enough for whoever gets in by mistake.
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

// come joins the meeting, and ends it if nobody is missing.
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

// leave takes somebody out of a meeting that goes on.
func (m *Meeting) leave(over chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over == over {
		m.waiting--
	}
}
