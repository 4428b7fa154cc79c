//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is the terminal that CMD reads from. It lets one process group read,
// and sends its keys to that one: CMD has a group of its own, so it must be made
// known there.
type terminal struct {
	fd  int
	own int // our process group
}

// newTerminal returns nil if stdin is not our terminal. If it is and CMD shall
// read from something else, as in a pipe, the terminal stays with our group: the
// others in the pipe may need it.
func newTerminal(stdin *os.File) *terminal {
	t := &terminal{fd: int(stdin.Fd()), own: unix.Getpgrp()}
	if _, err := t.foreground(); err != nil {
		return nil
	}
	return t
}

// foreground returns the process group that has the terminal.
func (t *terminal) foreground() (int, error) {
	return unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
}

// handOver gives the terminal to a group, if we have it.
func (t *terminal) handOver(group int) bool {
	if fg, err := t.foreground(); err != nil || fg != t.own {
		return false
	}
	return unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group) == nil
}

// detach lets us write to the terminal, and take it back, while CMD has it: the
// system may stop whoever does that unless he ignores the signal. CMD inherits
// what is ignored, so it must have been started before.
func (t *terminal) detach() { signal.Ignore(syscall.SIGTTOU) }

// takeBack gives the terminal back to our own group.
func (t *terminal) takeBack(group int) {
	if fg, err := t.foreground(); err != nil || fg != group {
		return // somebody else has it now
	}
	_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, t.own)
}
