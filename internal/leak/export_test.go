package leak

import "time"

// SetTimeout makes the checks of this test binary that find something quick.
func SetTimeout(d time.Duration) { timeout = d }
