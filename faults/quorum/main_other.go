//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "quorum: it runs on Linux only, as the faults do")
	os.Exit(2)
}
