//go:build unix

package supervise

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is the terminal from which the command reads. A terminal lets only its foreground
// process group read, and sends its keys to that group.
type terminal struct {
	fd  int
	own int // our process group
}

// newTerminal returns nil if stdin is not our terminal. If the command reads from something
// else, as in a pipe, the terminal stays with our group: the other processes of the pipe may
// need it.
func newTerminal(stdin *os.File) *terminal {
	if !isTerminal(stdin) {
		return nil
	}
	return &terminal{fd: int(stdin.Fd()), own: unix.Getpgrp()}
}

func (t *terminal) foreground() (group int, err error) {
	return unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
}

// isTerminal reports that a file is our terminal.
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err == nil
}

// moveForeground makes a group the foreground group if another one is. It leaves the terminal
// alone if a third group has it by now.
func (t *terminal) moveForeground(from, to int) bool {
	if group, err := t.foreground(); err != nil || group != from {
		return false
	}
	return unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, to) == nil
}

// ignoreStops lets us write to the terminal, and take it back, while the command has it: the
// kernel stops a background process that does so, unless it ignores SIGTTOU. If a process of our
// group reads from the terminal, as a pager does, the kernel sends SIGTTIN to all of the group.
func (t *terminal) ignoreStops() { signal.Ignore(syscall.SIGTTOU, syscall.SIGTTIN) }

// heedStops undoes ignoreStops for a command that is started: it would inherit what is ignored, but
// not what is caught. (signal.Reset does not bring back the default of these two, as of Go 1.26.)
func (t *terminal) heedStops() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTTOU, syscall.SIGTTIN)
}
