//go:build !unix

package output

import "os"

// TerminalSize takes no file for a terminal.
func TerminalSize(*os.File) (rows, columns int, ok bool) { return 0, 0, false }

// Foreground reports that this process may write to a terminal.
func Foreground(*os.File) bool { return true }
