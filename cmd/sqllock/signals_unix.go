//go:build unix

package main

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
	// passing are further ones that a running command may want to have.
	passing = []os.Signal{syscall.SIGWINCH, syscall.SIGCONT, syscall.SIGTSTP}
)

// asksToEnd tells the signals that a command takes as the order to end from
// those that may mean anything to it.
func asksToEnd(sig os.Signal) bool {
	return slices.Contains([]os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}, sig)
}

// suspend stops this process, or its whole process group, as a terminal's
// stop key would, and returns when it is continued. Where nobody would continue
// it, it returns at once.
//
// The signal is SIGSTOP because Go cannot give SIGTSTP its default effect back.
// What that one does by itself is up to us then: not to stop a group without a
// shell above it that does job control. Such a shell makes groups; the first
// group of a session has none above it.
func (s *signals) suspend(wholeGroup bool) {
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

// interruptGroup does to us, and to whoever else is in our process group, what
// the interrupt key would have done if CMD had not had the terminal: a loop or a
// script that runs us ends too. Shells go by how we die, not by our exit code.
func interruptGroup() {
	signal.Reset(syscall.SIGINT)
	if syscall.Kill(0, syscall.SIGINT) == nil {
		time.Sleep(time.Second) // it ends us, but not in this very moment
	}
}
