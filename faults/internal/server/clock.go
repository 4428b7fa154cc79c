//go:build linux

package server

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// A clock sets the time of one server with libfaketime, which reads the offset from a
// file. Monotonic clocks keep their time, because a real one cannot be set either.
type clock struct {
	libraries, file string
	offset          time.Duration
}

// newClock makes a clock. An allocator that asks for the time while libfaketime starts
// would end the server: malloc is then the one of the C library.
func newClock(dir string, ownMalloc bool) (*clock, error) {
	c := &clock{file: filepath.Join(dir, "clock")}
	patterns := []string{"/usr/lib/*/faketime/libfaketimeMT.so.1"}
	if ownMalloc {
		patterns = append(patterns, "/lib/*/libc_malloc_debug.so.0")
	}
	for _, pattern := range patterns {
		found, _ := filepath.Glob(pattern)
		if len(found) == 0 {
			return nil, fmt.Errorf("no %s found; faults/setup.sh installs libfaketime", pattern)
		}
		c.libraries += found[0] + " "
	}
	return c, c.step(0)
}

// command returns the prefix for the command of the server.
func (c *clock) command() []string {
	return []string{
		"/usr/bin/env", "LD_PRELOAD=" + c.libraries, "FAKETIME_TIMESTAMP_FILE=" + c.file,
		"FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1",
	}
}

// step changes the file in one go: the server reads it at any time.
func (c *clock) step(d time.Duration) error {
	c.offset += d
	next := c.file + ".next"
	if err := os.WriteFile(next, fmt.Appendf(nil, "%+.3f\n", c.offset.Seconds()), 0o644); err != nil {
		return err
	}
	return os.Rename(next, c.file)
}
