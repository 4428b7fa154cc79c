//go:build !linux

package sqllock

import "time"

// systemClock reads the runtime's monotonic clock. On systems where that one
// stops during suspend, a lease looks younger after it than it is.
type systemClock struct{}

var processStart = time.Now()

func (systemClock) now() time.Duration { return time.Since(processStart) }
