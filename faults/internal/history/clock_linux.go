package history

import "golang.org/x/sys/unix"

// Now returns the time of the machine's raw monotonic clock in ns. All processes share
// this clock. It is neither set nor slewed.
func Now() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC_RAW, &t) // cannot fail for this clock
	return t.Nano()
}
