//go:build !unix

package supervise

import (
	"os"
	"syscall"
)

var (
	ending    = []os.Signal{os.Interrupt, syscall.SIGTERM}
	forwarded []os.Signal
)

func isEndSignal(os.Signal) bool { return true }

func isStop(os.Signal) bool { return false }

func (s *Signals) suspend(bool) {}

// CatchStop returns a channel on which nothing comes: no signal stops a process.
func CatchStop() (came <-chan os.Signal, release func()) { return nil, func() {} }

// InterruptGroup does nothing: there are no process groups.
func InterruptGroup() {}
