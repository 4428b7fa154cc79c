package leak

import "time"

// SetPatience makes the checks of this test binary that find something quick.
func SetPatience(d time.Duration) { patience = d }
