//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "peers: the clocks and signals that this needs are those of Linux")
	os.Exit(2)
}
