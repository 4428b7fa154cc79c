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

// InterruptGroup does nothing: there are no process groups.
func InterruptGroup() {}
