package delay_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/sqllock/sqllock/bench/internal/delay"
)

// echo listens and sends all data back.
func echo(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c) }()
		}
	}()
	return l.Addr().String()
}

func dial(t *testing.T, d time.Duration) net.Conn {
	c, err := delay.Dialer(d)(context.Background(), "tcp", echo(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestARoundTripTakesTheDelayLonger(t *testing.T) {
	const d = 5 * time.Millisecond
	c := dial(t, d)
	var took []time.Duration
	for range 20 {
		began := time.Now()
		if _, err := c.Write([]byte("ping")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	// The fastest is the one that the machine has not held up.
	if fastest := slices.Min(took); fastest < d || fastest > 3*d {
		t.Errorf("the fastest round trip took %v, want little more than %v", fastest, d)
	}
}

func TestADelayDoesNotLimitDataInFlight(t *testing.T) {
	c := dial(t, 50*time.Millisecond)
	began := time.Now()
	const n = 100
	for range n {
		if _, err := c.Write([]byte("ping")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond) // a separate piece
	}
	if _, err := io.ReadFull(c, make([]byte, 4*n)); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("%d messages of which none waits for another took %v", n, took)
	}
}

func TestAReadEndsAtItsDeadlineAndWorksAgainAfterIt(t *testing.T) {
	c := dial(t, time.Millisecond)
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4)
	if _, err := c.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Read returned %v, want os.ErrDeadlineExceeded", err)
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, b); err != nil {
		t.Errorf("after the deadline was taken away: %v", err)
	}
}
