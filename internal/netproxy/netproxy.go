// Package netproxy is a small TCP proxy that tests put in front of a database to simulate
// a bad network. It freezes and thaws, delays data, drops the reply to an executed
// request, resets connections, and counts round trips.
//
// The proxy keeps accepted data in memory without a limit until it is delivered, even if
// the sender has closed its connection. This is how a packet arrives late.
package netproxy

import (
	"errors"
	"net"
	"sync"
	"testing"
	"time"
)

// Action is the decision of a hook, set with [Proxy.OnUp], about a piece of data.
type Action int

const (
	// Pass forwards it.
	Pass Action = iota
	// Cut resets the connection instead of forwarding it: the server never
	// sees it.
	Cut
	// CutAfterReply forwards it, drops the server's reply and resets the
	// connection: the server did it, and the client cannot know.
	CutAfterReply
)

// Proxy forwards TCP connections to one target. It is safe for concurrent use.
type Proxy struct {
	target   string
	listener *net.TCPListener
	up, down *valve // client to server, server to client

	running sync.WaitGroup

	mu         sync.Mutex
	closed     bool
	conns      map[*conn]struct{}
	accepted   int
	roundTrips int
	latency    time.Duration
	onUp       func(conn int, b []byte) Action
	cutNext    bool
}

// New is [Listen] for a test: it fails the test if it cannot listen, and the
// test's clean-up closes the proxy.
func New(t testing.TB, target string) *Proxy {
	t.Helper()
	p, err := Listen(target)
	if err != nil {
		t.Fatalf("netproxy: %v", err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// Listen starts a proxy on a free port of 127.0.0.1 that forwards to target, a host:port.
// The proxy dials the target for each connection. If the target does not accept, the
// client's connection is reset.
func Listen(target string) (*Proxy, error) {
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		target: target, listener: l, up: newValve(), down: newValve(),
		conns: make(map[*conn]struct{}),
	}
	p.running.Go(p.accept)
	return p, nil
}

// Addr returns the host:port to connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Freeze stops forwarding both ways, as a network that swallows packets does:
// connections stay open, new ones are accepted and hang. Nothing is lost; Thaw
// delivers it.
func (p *Proxy) Freeze() {
	p.up.shut()
	p.down.shut()
}

// FreezeUp freezes only the direction from client to server.
func (p *Proxy) FreezeUp() { p.up.shut() }

// FreezeDown freezes only the direction from server to client: statements run, and their
// replies hang.
func (p *Proxy) FreezeDown() { p.down.shut() }

// Thaw ends Freeze, FreezeUp and FreezeDown. It delivers the kept data in order, also the
// data of clients that have gone.
func (p *Proxy) Thaw() {
	p.up.open()
	p.down.open()
}

// Latency delays each piece of data by d in either direction, so that a round
// trip takes 2·d longer. It applies to data that arrives after the call. The
// default is 0.
func (p *Proxy) Latency(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency = d
}

// OnUp makes the proxy call fn with all data from clients just before it is forwarded. A
// nil fn ends that. The first connection is 1. A piece of data is the result of one read:
// a short message is one piece, a long one can be several.
//
// Several connections call fn at the same time. It must not keep or change b, nor call
// [Proxy.Close]. It may freeze the proxy: then b is the first piece that is kept.
//
// With [CutAfterReply], the reply is the next data that the server sends. If the protocol
// prepares a statement first, that can be the reply to the preparation. Match data that
// only the execution has, or prepare the statement before.
func (p *Proxy) OnUp(fn func(conn int, b []byte) Action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onUp = fn
}

// CutAfterNextReply applies [CutAfterReply] once, to the next data of any client.
func (p *Proxy) CutAfterNextReply() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutNext = true
}

// Reset resets both sides of all open connections. Data that was not delivered is lost.
func (p *Proxy) Reset() {
	for _, c := range p.open() {
		c.abort()
	}
}

// Conns returns the number of open connections. A connection that its client closed while
// the proxy was frozen counts as open until the server can notice.
func (p *Proxy) Conns() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// Accepted returns the number of connections since the start.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// RoundTrips returns how often, since the start and over all connections, data to
// the server was followed by data from it.
func (p *Proxy) RoundTrips() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.roundTrips
}

// Close stops listening, resets all connections and returns when every goroutine
// of the proxy has ended. A second call does nothing.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.listener.Close()
	p.Reset()
	p.running.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// accept serves connections until the listener is closed.
func (p *Proxy) accept() {
	for {
		client, err := p.listener.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(time.Millisecond) // a client that is gone already, or no descriptors
			continue
		}
		if c := p.add(client); c != nil {
			p.running.Go(c.run)
		}
	}
}

// add registers a connection. It returns nil if the proxy is closed.
func (p *Proxy) add(client *net.TCPConn) *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = client.Close()
		return nil
	}
	p.accepted++
	c := newConn(p, p.accepted, client)
	p.conns[c] = struct{}{}
	return c
}

// remove forgets a connection that has ended.
func (p *Proxy) remove(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// open returns the connections of this moment.
func (p *Proxy) open() []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	var open []*conn
	for c := range p.conns {
		open = append(open, c)
	}
	return open
}

// judge returns the decision of the hook about data from a client.
func (p *Proxy) judge(conn int, b []byte) Action {
	p.mu.Lock()
	hook, cut := p.onUp, p.cutNext
	p.cutNext = false
	p.mu.Unlock()
	action := Pass
	if hook != nil {
		action = hook(conn, b)
	}
	if action == Pass && cut {
		action = CutAfterReply
	}
	return action
}

// countRoundTrip counts one.
func (p *Proxy) countRoundTrip() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.roundTrips++
}

// due returns when data that arrives now must be delivered.
func (p *Proxy) due() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Add(p.latency)
}
