//go:build !unix

package main

import "os"

// screenOf takes no file for a terminal.
func screenOf(*os.File) (screen, bool) { return screen{}, false }
