// Package delay simulates a distant server. The client gets the data of the server a
// fixed time after its arrival, so that each round trip takes that much longer. Nothing
// else changes. The delay is in the client's connection, not in a separate process:
// forwarding over loopback sockets costs more than the measured calls, and the timers of
// the runtime are too coarse for a millisecond.
package delay

import (
	"context"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/sqllock/sqllock/bench/internal/platform"
)

// Dialer returns a function that connects with the delay; 0 is no delay.
func Dialer(d time.Duration) func(ctx context.Context, network, addr string) (net.Conn, error) {
	var plain net.Dialer
	if d == 0 {
		return plain.DialContext
	}
	line := lineOf(d)
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		inner, err := plain.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: inner, ready: make(chan struct{}, 1), deadline: newDeadline()}
		go c.receive(line)
		return c, nil
	}
}

// A piece is the result of one read.
type piece struct {
	due  time.Time
	to   *conn
	data []byte
	err  error
}

// line hands over pieces when they are due. All wait equally long, so that the
// first to come is the first to go.
type line struct {
	delay time.Duration
	queue chan piece
}

var (
	linesMu sync.Mutex
	lines   = make(map[time.Duration]*line)
)

// lineOf returns the line for a delay. It lives as long as the process.
func lineOf(d time.Duration) *line {
	linesMu.Lock()
	defer linesMu.Unlock()
	if lines[d] == nil {
		lines[d] = &line{delay: d, queue: make(chan piece, 1<<16)}
		go lines[d].run()
	}
	return lines[d]
}

// run sleeps in its own thread, for precision.
func (l *line) run() {
	runtime.LockOSThread()
	platform.FineTimer()
	for p := range l.queue {
		if left := time.Until(p.due); left > 0 {
			platform.Sleep(left)
		}
		p.to.deliver(p)
	}
}

// A conn is a connection with delayed reads. Several goroutines may use it, but only one
// at a time may read.
type conn struct {
	net.Conn
	ready    chan struct{} // holds a value after a delivery
	deadline *deadline

	mu   sync.Mutex
	data []byte
	err  error // after the data
}

func (c *conn) receive(l *line) {
	buf := make([]byte, 64<<10)
	for {
		n, err := c.Conn.Read(buf)
		l.queue <- piece{time.Now().Add(l.delay), c, append([]byte(nil), buf[:n]...), err}
		if err != nil {
			return
		}
	}
}

func (c *conn) deliver(p piece) {
	c.mu.Lock()
	c.data = append(c.data, p.data...)
	c.err = p.err
	c.mu.Unlock()
	c.wake()
}

func (c *conn) wake() {
	select {
	case c.ready <- struct{}{}:
	default:
	}
}

func (c *conn) Read(b []byte) (int, error) {
	for {
		if c.deadline.passed() {
			return 0, os.ErrDeadlineExceeded
		}
		c.mu.Lock()
		n, err := copy(b, c.data), c.err
		c.data = c.data[n:]
		left := len(c.data) > 0
		c.mu.Unlock()
		switch {
		case n > 0 || len(b) == 0:
			if left || err != nil {
				c.wake()
			}
			return n, nil
		case err != nil:
			c.wake()
			return 0, err
		}
		select {
		case <-c.ready:
		case <-c.deadline.done():
		}
	}
}

// SetReadDeadline concerns the late reads; the inner ones always wait.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.deadline.set(t)
	return nil
}

func (c *conn) SetDeadline(t time.Time) error {
	c.deadline.set(t)
	return c.SetWriteDeadline(t)
}
