//go:build !linux

// Package platform has the functions of the operating system that the benchmarks need. It
// is made for Linux. On other systems it compiles and measures less precisely.
package platform

import "time"

// Monotonic returns the time of a clock that is one for all processes, in ns. Here
// it is the one that people set.
func Monotonic() int64 { return time.Now().UnixNano() }

// CPUTime returns 0: not known.
func CPUTime() time.Duration { return 0 }

// ProcessTime returns 0: not known.
func ProcessTime(int) time.Duration { return 0 }

// FineTimer does nothing here.
func FineTimer() {}

// Sleep is time.Sleep.
func Sleep(d time.Duration) { time.Sleep(d) }

// InMemory is the file system that loses everything with the machine.
const InMemory = "tmpfs"

// Filesystem is not known.
func Filesystem(string) string { return "unknown" }
