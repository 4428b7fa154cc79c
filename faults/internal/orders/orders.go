//go:build linux

// Package orders has the orders for the clients of a fault run. They come on standard
// input, one a line.
package orders

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sqllock/sqllock/faults/internal/history"
)

// The orders.
const (
	// stop: begin nothing new, end in order.
	stop = "stop"
	// aim is followed by an operation and a time of package history. The next holder that
	// makes such a write stops the process with SIGSTOP between its read and its write,
	// unless the time has passed.
	aim = "aim"
)

// Stop is the order to end.
func Stop() string { return stop }

// Aim is the order to stop in the middle of a write, if it comes to that in time.
func Aim(at string, within time.Duration) string {
	return fmt.Sprintf("%s %s %d", aim, at, history.Now()+int64(within))
}

// Orders are those that this process got. It is safe for concurrent use.
type Orders struct{ aimed atomic.Pointer[target] }

// target is where the process is to stop.
type target struct {
	at    string
	until int64
}

// Obey reads orders until there are no more, and calls end for the order to end. It uses
// standard input until the process ends. It ends the process when the other end is
// closed: a client must not outlive its run.
func (o *Orders) Obey(end func()) {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var t target
		if in.Text() == stop {
			end()
		} else if _, err := fmt.Sscanf(in.Text(), aim+" %s %d", &t.at, &t.until); err == nil {
			o.aimed.Store(&t)
		}
	}
	os.Exit(3)
}

// Aimed returns the operation in which the process is to stop, "" if in none.
func (o *Orders) Aimed() string {
	if t := o.aimed.Load(); t != nil && t.until > history.Now() {
		return t.at
	}
	return ""
}

// Reach stops the process once, if an order aims at the operation at. It returns when the
// process continues.
func (o *Orders) Reach(at string) {
	t := o.aimed.Load()
	if t != nil && t.at == at && o.aimed.CompareAndSwap(t, nil) && t.until > history.Now() {
		// The signal is for this thread: one for the process may reach another thread first,
		// and this one would go on for a while.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGSTOP)
	}
}
