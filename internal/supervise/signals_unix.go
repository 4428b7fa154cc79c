//go:build unix

package supervise

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

var (
	// ending are the signals that end a process which does not handle them.
	ending = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}
	// forwarded are more signals that a running command may want.
	forwarded = []os.Signal{syscall.SIGWINCH, syscall.SIGCONT, syscall.SIGTSTP}
)

// isEndSignal reports that a command understands the signal as the order to end. Other signals
// can mean anything to it.
func isEndSignal(sig os.Signal) bool {
	return slices.Contains([]os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}, sig)
}

func isStop(sig os.Signal) bool { return sig == syscall.SIGTSTP }

// suspend stops this process, or its whole process group, as the stop key of a terminal does,
// and returns when it is continued. It returns at once if nobody would continue it.
//
// The signal is SIGSTOP, because Go cannot give SIGTSTP its default effect back. The kernel
// would not let SIGTSTP stop a group that has no job-control shell above it, so suspend checks
// that itself: such a shell makes groups, and the first group of a session has none above it.
func (s *Signals) suspend(wholeGroup bool) {
	session, err := unix.Getsid(0)
	if err != nil || session == unix.Getpgrp() {
		return
	}
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	pid := os.Getpid()
	if wholeGroup {
		pid = 0
	}
	if syscall.Kill(pid, syscall.SIGSTOP) == nil {
		<-continued
	}
}

// CatchStop catches the signal that would stop this process, until release is called. Who gets it
// calls [Suspend].
func CatchStop() (came <-chan os.Signal, release func()) {
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, syscall.SIGTSTP)
	return ch, func() { signal.Stop(ch) }
}

// InterruptGroup sends SIGINT to the process group of this process, this process included. It
// does what the interrupt key would have done if the command had not had the terminal: a loop
// or a script that runs this program ends too. Shells look at how a process dies, not at its
// exit code.
func InterruptGroup() {
	signal.Reset(syscall.SIGINT)
	if syscall.Kill(0, syscall.SIGINT) == nil {
		time.Sleep(time.Second) // the signal ends this process, but not at once
	}
}
