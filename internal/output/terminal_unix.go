//go:build unix

package output

import (
	"os"

	"golang.org/x/sys/unix"
)

// TerminalSize returns the size of a terminal; ok is false if f is none.
func TerminalSize(f *os.File) (rows, columns int, ok bool) {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0, false
	}
	if size.Row == 0 || size.Col == 0 { // the terminal does not know it
		return 24, 80, true
	}
	return int(size.Row), int(size.Col), true
}

// Foreground reports that this process may write to a terminal: it has the terminal, and not a
// job of the shell that was started after it.
func Foreground(f *os.File) bool {
	group, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
