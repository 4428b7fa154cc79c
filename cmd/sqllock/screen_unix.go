//go:build unix

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// screenOf returns the size of the terminal that a file is.
func screenOf(f *os.File) (screen, bool) {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return screen{}, false
	}
	s := screen{rows: int(size.Row), columns: int(size.Col)}
	if s.rows == 0 || s.columns == 0 { // a terminal that does not know
		s = screen{rows: 24, columns: 80}
	}
	return s, true
}
