//go:build !linux

// Package platform has what the benchmarks ask of the operating system. They are
// made for Linux; elsewhere they build, and measure less well.
package platform

import "time"

// Monotonic returns the time of a clock that is one for all processes, in ns. Here
// it is the one that people set.
func Monotonic() int64 { return time.Now().UnixNano() }

// CPUTime returns 0: not known.
func CPUTime() time.Duration { return 0 }

// FineTimer does nothing here.
func FineTimer() {}

// Sleep is time.Sleep.
func Sleep(d time.Duration) { time.Sleep(d) }

// InMemory is the file system that loses everything with the machine.
const InMemory = "tmpfs"

// Filesystem is not known.
func Filesystem(string) string { return "unknown" }
