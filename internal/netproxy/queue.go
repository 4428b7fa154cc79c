package netproxy

import (
	"sync"
	"time"
)

// valve lets data through in one direction while it is open.
type valve struct {
	mu     sync.Mutex
	opened chan struct{} // closed while the gate is open
}

func newValve() *valve {
	g := &valve{opened: make(chan struct{})}
	close(g.opened)
	return g
}

func (g *valve) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !isClosed(g.opened) {
		close(g.opened)
	}
}

func (g *valve) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if isClosed(g.opened) {
		g.opened = make(chan struct{})
	}
}

// wait returns true when the gate is open, false when done is closed.
func (g *valve) wait(done <-chan struct{}) bool {
	g.mu.Lock()
	opened := g.opened
	g.mu.Unlock()
	select {
	case <-opened:
		return true
	case <-done:
		return false
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// piece is data on its way, or the end of it.
type piece struct {
	due  time.Time
	data []byte
	end  error // io.EOF after an orderly close, else reset the connection
}

// A queue holds the data of one direction of a connection that is not delivered yet. It
// has no limit: if a frozen proxy left data in the kernel's buffers, the data would be
// lost when the client closes its socket.
type queue struct {
	wake chan struct{} // holds a value after a put

	mu     sync.Mutex
	pieces []piece
}

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1)} }

func (q *queue) put(p piece) {
	q.mu.Lock()
	q.pieces = append(q.pieces, p)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// next waits for a piece and until it is due. It returns false when done is
// closed.
func (q *queue) next(done <-chan struct{}) (piece, bool) {
	for {
		p, ok := q.take()
		if ok {
			return p, sleep(time.Until(p.due), done)
		}
		select {
		case <-q.wake:
		case <-done:
			return piece{}, false
		}
	}
}

func (q *queue) take() (piece, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.pieces) == 0 {
		return piece{}, false
	}
	p := q.pieces[0]
	q.pieces = q.pieces[1:]
	return p, true
}

// sleep returns false if done was closed before d had passed.
func sleep(d time.Duration, done <-chan struct{}) bool {
	if d <= 0 {
		return !isDone(done)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-done:
		return false
	}
}

func isDone(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
