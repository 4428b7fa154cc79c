//go:build !unix

package output

import "os"

// TerminalSize takes no file for a terminal.
func TerminalSize(*os.File) (rows, columns int, ok bool) { return 0, 0, false }
