package delay

import (
	"sync"
	"time"
)

// deadline is a point in time that may be moved.
type deadline struct {
	mu    sync.Mutex
	at    time.Time // zero: none
	timer *time.Timer
	over  chan struct{} // closed when at has come
}

func newDeadline() *deadline { return &deadline{over: make(chan struct{})} }

func (d *deadline) set(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
	}
	d.at, d.timer = at, nil
	select {
	case <-d.over:
		d.over = make(chan struct{})
	default:
	}
	if at.IsZero() {
		return
	}
	over := d.over
	if left := time.Until(at); left > 0 {
		d.timer = time.AfterFunc(left, func() { d.expire(over) })
		return
	}
	close(over)
}

// expire closes the channel, unless the deadline was moved.
func (d *deadline) expire(over chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over != over || d.at.IsZero() || time.Now().Before(d.at) {
		return
	}
	select {
	case <-over:
	default:
		close(over)
	}
}

func (d *deadline) done() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.over
}

func (d *deadline) passed() bool {
	select {
	case <-d.done():
		return true
	default:
		return false
	}
}
