package netproxy_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// client is a connection that speaks in lines.
type client struct {
	*net.TCPConn
	t      testing.TB
	reader *bufio.Reader
}

func dial(t testing.TB, addr string) client {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return client{c.(*net.TCPConn), t, bufio.NewReader(c)}
}

func (c client) say(s string) {
	c.t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		c.t.Fatal(err)
	}
}

func (c client) want(line string) {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	got, err := c.reader.ReadString('\n')
	if err != nil || strings.TrimSpace(got) != line {
		c.t.Fatalf("want %q, got %q, %v", line, got, err)
	}
}

func (c client) send(line string) {
	c.t.Helper()
	c.say(line + "\n")
	c.want(line)
}

func (c client) wantSilence() {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if got, err := c.reader.ReadString('\n'); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("want silence, got %q, %v", got, err)
	}
}

func (c client) wantReset() {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	if got, err := c.reader.ReadString('\n'); !errors.Is(err, syscall.ECONNRESET) {
		c.t.Fatalf("want a reset, got %q, %v", got, err)
	}
}
