package sqllock

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// systemClock reads CLOCK_BOOTTIME, which goes on during suspend and is never
// set.
type systemClock struct{}

func (systemClock) now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(fmt.Sprintf("bug: CLOCK_BOOTTIME, which every Linux since 2.6.39 has: %v", err))
	}
	return time.Duration(ts.Nano())
}
