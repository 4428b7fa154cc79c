package netproxy

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// errCut ends a connection to drop its reply.
var errCut = errors.New("netproxy: cut after the reply")

// conn is one client's connection and the one to the server behind it. Each
// direction has a goroutine that reads into a queue at once and one that
// delivers from it when the proxy's gate allows.
type conn struct {
	proxy    *Proxy
	id       int
	up, down *queue
	ctx      context.Context // ends when the connection is over
	cancel   context.CancelFunc

	// sent is set between data to the server and its reply.
	sent atomic.Bool
	// cut is set when the next reply must be dropped.
	cut atomic.Bool
	// finished counts the directions that have delivered their end.
	finished atomic.Int32

	mu             sync.Mutex
	client, server *net.TCPConn // server is nil until dialled
}

func newConn(p *Proxy, id int, client *net.TCPConn) *conn {
	c := &conn{proxy: p, id: id, client: client, up: newQueue(), down: newQueue()}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// run serves the connection until it is over and all of its goroutines have ended.
func (c *conn) run() {
	var sides sync.WaitGroup
	defer c.proxy.remove(c)
	defer sides.Wait()
	sides.Go(func() { c.read(c.client, c.up, nil) })
	server := c.dial()
	if server == nil {
		c.abort()
		return
	}
	sides.Go(func() { c.read(server, c.down, c.replied) })
	sides.Go(func() { c.deliver(c.down, c.proxy.down, c.client, c.up, nil) })
	c.deliver(c.up, c.proxy.up, server, c.down, c.request)
}

// dial connects to the server; a frozen network lets no such packet through. It
// returns nil if it cannot or if the connection is over.
func (c *conn) dial() *net.TCPConn {
	if !c.proxy.up.wait(c.ctx.Done()) {
		return nil
	}
	var d net.Dialer
	server, err := d.DialContext(c.ctx, "tcp", c.proxy.target)
	if err != nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		_ = server.Close()
		return nil
	}
	c.server = server.(*net.TCPConn)
	return c.server
}

// read appends to q the data that src sends, until src ends. If arrived is not nil, read
// calls it for each piece. An error of arrived ends the stream.
func (c *conn) read(src *net.TCPConn, q *queue, arrived func() error) {
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 && arrived != nil {
			if end := arrived(); end != nil {
				n, err = 0, end
			}
		}
		if n > 0 {
			q.put(piece{due: c.proxy.due(), data: append([]byte(nil), buf[:n]...)})
		}
		if err != nil {
			q.put(piece{due: c.proxy.due(), end: err})
			return
		}
	}
}

// deliver writes the data in q to dst while the valve is open. If check is not nil,
// deliver calls it before each write; if it returns false, deliver ends the connection.
// If dst does not accept data, deliver reports that to the sender through back, the queue
// of the other direction, after the data that is already in it.
func (c *conn) deliver(q *queue, g *valve, dst *net.TCPConn, back *queue, check func([]byte) bool) {
	done := c.ctx.Done()
	for {
		p, ok := q.next(done)
		if !ok || !g.wait(done) {
			return
		}
		if p.end != nil {
			c.end(p.end, dst)
			continue
		}
		// The check may have shut the gate: wait again.
		if check != nil && (!check(p.data) || !g.wait(done)) {
			c.abort()
			return
		}
		if _, err := dst.Write(p.data); err != nil {
			back.put(piece{due: c.proxy.due(), end: err})
			<-done
			return
		}
	}
}

// end passes on the end of one direction. After an orderly end, the other direction
// continues.
func (c *conn) end(reason error, dst *net.TCPConn) {
	if reason != io.EOF {
		c.abort()
		return
	}
	_ = dst.CloseWrite()
	if c.finished.Add(1) == 2 {
		c.close()
	}
}

// request is asked about data to the server, before it is written.
func (c *conn) request(b []byte) bool {
	switch c.proxy.judge(c.id, b) {
	case Cut:
		return false
	case CutAfterReply:
		c.cut.Store(true)
	}
	c.sent.Store(true)
	return true
}

// replied notes that data came from the server.
func (c *conn) replied() error {
	if c.sent.Swap(false) {
		c.proxy.countRoundTrip()
	}
	if c.cut.Load() {
		return errCut
	}
	return nil
}

// abort resets both sides, unless the connection is over.
func (c *conn) abort() {
	c.finish(func(side *net.TCPConn) {
		_ = side.SetLinger(0) // makes Close send RST
	})
}

// close ends a connection that both sides have ended.
func (c *conn) close() { c.finish(func(*net.TCPConn) {}) }

func (c *conn) finish(before func(side *net.TCPConn)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		return
	}
	c.cancel()
	for _, side := range []*net.TCPConn{c.client, c.server} {
		if side != nil {
			before(side)
			_ = side.Close()
		}
	}
}
