package sqllock

import "time"

// stopwatch measures what hooks and logs are told. It is cheaper to read than the clock of
// deadlines, and stands still while the machine sleeps. The zero stopwatch was not started.
type stopwatch struct{ started time.Time }

func startStopwatch() stopwatch { return stopwatch{time.Now()} }

// elapsed is how long ago it was started, or 0. Steps of the wall clock do not count.
func (s stopwatch) elapsed() time.Duration {
	if s.started.IsZero() {
		return 0
	}
	return time.Since(s.started)
}
