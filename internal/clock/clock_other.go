//go:build !linux

package clock

import "time"

// System reads the runtime's monotonic clock. On a system where that clock stops during
// suspend, a lease looks younger after the suspend than it is.
type System struct{}

var _ Clock = System{}

var processStart = time.Now()

// Now returns the time since the process was started.
func (System) Now() time.Duration { return time.Since(processStart) }
