//go:build !unix

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "matrix: servers can be started on Unix only")
	os.Exit(2)
}
