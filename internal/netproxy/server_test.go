package netproxy_test

import (
	"bufio"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/netproxy"
)

// server echoes lines and remembers them.
type server struct {
	t        testing.TB
	listener net.Listener
	running  sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
	lines []string
}

// setUp starts a server and a proxy before it.
func setUp(t testing.TB) (*server, *netproxy.Proxy) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, listener: l}
	s.running.Go(s.accept)
	t.Cleanup(s.close)
	return s, netproxy.New(t, l.Addr().String())
}

func (s *server) close() {
	_ = s.listener.Close()
	s.mu.Lock()
	for _, c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.running.Wait()
}

func (s *server) accept() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns = append(s.conns, c)
		s.mu.Unlock()
		s.running.Go(func() { s.echo(c) })
	}
}

func (s *server) echo(c net.Conn) {
	defer c.Close()
	for r := bufio.NewReader(c); ; {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		s.mu.Lock()
		s.lines = append(s.lines, strings.TrimSpace(line))
		s.mu.Unlock()
		_, _ = io.WriteString(c, line)
	}
}

// heard waits until exactly these lines have arrived.
func (s *server) heard(want ...string) {
	s.t.Helper()
	eventually(s.t, strings.Join(want, ", "), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return slices.Equal(s.lines, want)
	})
}

func (s *server) accepted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// push sends data to every client without a request.
func (s *server) push(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		_, _ = io.WriteString(c, line)
	}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 5 s: %s", what)
		}
	}
}
