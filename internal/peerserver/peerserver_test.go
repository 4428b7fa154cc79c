package peerserver_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/peerserver"
)

// These tests need no server: a fake listener sends the replies.
func TestAServerIsReadyAfterTheExpectedReply(t *testing.T) {
	for name, c := range map[string]struct {
		server          peerserver.Server
		ready, not      string
		version, probes string
	}{
		"Redis":     {peerserver.Redis(false), "redis_version:7.0.15\r\n", "-LOADING wait\r\n", "7.0.15", "INFO server\r\n"},
		"ZooKeeper": {peerserver.ZooKeeper(time.Second), "Zookeeper version: 3.8.0-x, built\nMode: standalone\n", "This ZooKeeper instance is not currently serving requests\n", "3.8.0", "srvr"},
	} {
		t.Run(name, func(t *testing.T) {
			version, err := c.server.Probe(says(t, c.probes, c.ready))
			if err != nil || version != c.version {
				t.Errorf("a ready one: %q, %v", version, err)
			}
			if _, err := c.server.Probe(says(t, c.probes, c.not)); err == nil {
				t.Error("one that is not ready is taken for ready")
			}
		})
	}
}

func TestEtcdIsReadyWhenItIsHealthy(t *testing.T) {
	for health, ready := range map[string]bool{`{"health":"true"}`: true, `{"health":"false"}`: false} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/health" {
				fmt.Fprint(w, health)
			} else {
				fmt.Fprint(w, `{"etcdserver":"3.4.23","etcdcluster":"3.4.0"}`)
			}
		}))
		version, err := peerserver.Etcd().Probe(server.Listener.Addr().String())
		server.Close()
		if ready != (err == nil) || ready && version != "3.4.23" {
			t.Errorf("%s: %q, %v", health, version, err)
		}
	}
}

func TestAMissingServerIsNotReady(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, s := range []peerserver.Server{peerserver.Redis(true), peerserver.Etcd(), peerserver.ZooKeeper(time.Second)} {
		if _, err := s.Probe(addr); err == nil {
			t.Errorf("%s: no error", s.Program)
		}
	}
}

func TestRedisFlushesOnlyOnRequest(t *testing.T) {
	for always, want := range map[bool]string{true: "--appendonly yes --appendfsync always", false: "--appendonly no"} {
		argv, err := peerserver.Redis(always).Serve("redis-server", "dir", 1)
		if err != nil || !strings.HasSuffix(strings.Join(argv, " "), want) {
			t.Errorf("%v: %q, %v", always, argv, err)
		}
	}
}

// says listens for one question and sends the answer.
func says(t *testing.T, question, answer string) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		request := make([]byte, len(question))
		if _, err := io.ReadFull(conn, request); err != nil || string(request) != question {
			t.Errorf("asked %q, %v", request, err)
			return
		}
		fmt.Fprint(conn, answer)
		if conn, ok := conn.(*net.TCPConn); ok {
			_ = conn.CloseWrite() // and read the rest, so that the answer is not reset
			_, _ = io.Copy(io.Discard, conn)
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String()
}
