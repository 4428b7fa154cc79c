package netproxy_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/leak"
	"github.com/sqllock/sqllock/internal/netproxy"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := leak.Check(); err != nil && code == 0 {
		fmt.Println(err)
		code = 1
	}
	os.Exit(code)
}

func TestItForwardsBothWaysAndPassesOnTheEnd(t *testing.T) {
	s, p := setUp(t)
	c := dial(t, p.Addr())
	c.send("one")
	c.send("two")
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if line, err := c.reader.ReadString('\n'); err != io.EOF {
		t.Fatalf("want EOF after the server's end, got %q, %v", line, err)
	}
	s.heard("one", "two")
	eventually(t, "no connection open", func() bool { return p.Conns() == 0 })
}

func TestItCountsConnectionsAndRoundTrips(t *testing.T) {
	_, p := setUp(t)
	a, b := dial(t, p.Addr()), dial(t, p.Addr())
	a.send("1")
	b.send("2")
	b.send("3")
	b.say("4\n5\n") // two requests, one journey
	b.want("4")
	b.want("5")
	if p.Conns() != 2 || p.Accepted() != 2 {
		t.Errorf("want 2 connections, got %d open, %d accepted", p.Conns(), p.Accepted())
	}
	// The two replies to 4 and 5 may come in two pieces; they are one round trip.
	if got := p.RoundTrips(); got != 4 {
		t.Errorf("want 4 round trips, got %d", got)
	}
}

func TestFrozenDataIsKeptAndDelivered(t *testing.T) {
	s, p := setUp(t)
	c := dial(t, p.Addr())
	c.send("before")
	p.Freeze()
	c.say("during\n")
	c.wantSilence()
	s.heard("before")
	p.Thaw()
	c.want("during")
	s.heard("before", "during")
}

func TestFrozenDataArrivesAfterItsSenderIsGone(t *testing.T) {
	for name, leave := range map[string]func(client){
		"closed": func(c client) { _ = c.Close() },
		"reset":  func(c client) { _ = c.SetLinger(0); _ = c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			s, p := setUp(t)
			c := dial(t, p.Addr())
			c.send("before")
			p.Freeze()
			c.say("late\n")
			time.Sleep(50 * time.Millisecond) // a reset overtakes data that the kernel has not sent
			leave(c)
			time.Sleep(50 * time.Millisecond)
			s.heard("before")
			p.Thaw()
			s.heard("before", "late")
			eventually(t, "no connection open", func() bool { return p.Conns() == 0 })
		})
	}
}

func TestAConnectionMadeWhileFrozenHangsAndThenWorks(t *testing.T) {
	s, p := setUp(t)
	p.Freeze()
	c := dial(t, p.Addr())
	c.say("hello\n")
	c.wantSilence()
	if n := s.accepted(); n != 0 {
		t.Errorf("the server saw %d connections through a frozen network", n)
	}
	p.Thaw()
	c.want("hello")
}

func TestFreezeDownLetsRequestsThrough(t *testing.T) {
	s, p := setUp(t)
	c := dial(t, p.Addr())
	p.FreezeDown()
	c.say("run this\n")
	s.heard("run this")
	c.wantSilence()
	p.Thaw()
	c.want("run this")
}

func TestFreezeUpLetsRepliesThrough(t *testing.T) {
	s, p := setUp(t)
	c := dial(t, p.Addr())
	c.send("hello")
	p.FreezeUp()
	s.push("news\n")
	c.want("news")
	c.say("request\n")
	c.wantSilence()
	s.heard("hello")
	p.Thaw()
	c.want("request")
}

func TestCutAfterReplyRunsTheRequestAndLosesTheReply(t *testing.T) {
	s, p := setUp(t)
	c, other := dial(t, p.Addr()), dial(t, p.Addr())
	c.send("begin")
	p.OnUp(func(_ int, b []byte) netproxy.Action {
		if bytes.Contains(b, []byte("commit")) {
			return netproxy.CutAfterReply
		}
		return netproxy.Pass
	})
	other.send("harmless")
	c.say("commit\n")
	c.wantReset()
	s.heard("begin", "harmless", "commit")
	other.send("still there")
}

func TestCutAfterNextReplyHappensOnce(t *testing.T) {
	s, p := setUp(t)
	c := dial(t, p.Addr())
	c.send("one")
	p.CutAfterNextReply()
	c.say("two\n")
	c.wantReset()
	s.heard("one", "two")
	dial(t, p.Addr()).send("three")
}

func TestCutKeepsTheRequestFromTheServer(t *testing.T) {
	s, p := setUp(t)
	c := dial(t, p.Addr())
	c.send("one")
	p.OnUp(func(conn int, _ []byte) netproxy.Action {
		if conn == 1 {
			return netproxy.Cut
		}
		return netproxy.Pass
	})
	c.say("two\n")
	c.wantReset()
	dial(t, p.Addr()).send("three")
	s.heard("one", "three")
}

func TestAHookThatFreezesKeepsItsData(t *testing.T) {
	s, p := setUp(t)
	c := dial(t, p.Addr())
	p.OnUp(func(_ int, b []byte) netproxy.Action {
		if bytes.Contains(b, []byte("grant")) {
			p.Freeze()
		}
		return netproxy.Pass
	})
	c.send("one")
	c.say("grant\n")
	c.wantSilence()
	s.heard("one")
	p.Thaw()
	c.want("grant")
}

func TestResetBreaksEveryOpenConnection(t *testing.T) {
	_, p := setUp(t)
	a, b := dial(t, p.Addr()), dial(t, p.Addr())
	a.send("1")
	b.send("2")
	p.Reset()
	a.wantReset()
	b.wantReset()
	dial(t, p.Addr()).send("3")
}

func TestLatencyDelaysEachWay(t *testing.T) {
	_, p := setUp(t)
	c := dial(t, p.Addr())
	c.send("quick")
	p.Latency(50 * time.Millisecond)
	start := time.Now()
	c.send("slow")
	if took := time.Since(start); took < 100*time.Millisecond {
		t.Errorf("want at least 100 ms, took %v", took)
	}
}

func TestAMissingTargetResetsTheConnection(t *testing.T) {
	s, p := setUp(t)
	_ = s.listener.Close()
	c, err := net.Dial("tcp", p.Addr())
	if err == nil { // else the reset came before connect had returned
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		_, err = c.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("want a reset, got %v", err)
	}
}

func TestCloseEndsFrozenAndIdleConnections(t *testing.T) {
	_, p := setUp(t)
	c := dial(t, p.Addr())
	c.send("1")
	p.Freeze()
	c.say("2\n")
	dial(t, p.Addr()).say("3\n")
	for range 2 {
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	c.wantReset()
	if p.Conns() != 0 {
		t.Errorf("%d connections left", p.Conns())
	}
	if _, err := net.Dial("tcp", p.Addr()); err == nil {
		t.Error("it still listens")
	}
}
