package sqllock

import "time"

// stopwatch measures what hooks and logs are told. It is cheaper to read than the clock of
// deadlines, and stands still while the machine sleeps. The zero stopwatch was not started.
type stopwatch struct {
	started time.Duration // since loaded
	runs    bool
}

// loaded is a time that stopwatches count from: to read how long ago that was takes half of what
// time.Now takes, which reads the wall clock too.
var loaded = time.Now()

func startStopwatch() stopwatch { return stopwatch{started: time.Since(loaded), runs: true} }

// elapsed is how long ago it was started, or 0. Steps of the wall clock do not count.
func (s stopwatch) elapsed() time.Duration {
	if !s.runs {
		return 0
	}
	return time.Since(loaded) - s.started
}

// timeLeft returns how long it is from now to a time, both in microseconds on the clock of the
// database: 0 if that is over, and forever if somebody has written the end of all time into a row.
func timeLeft(to, now int64) time.Duration {
	left := to - now
	switch {
	case to <= now:
		return 0
	case left < 0 || left > int64(forever/time.Microsecond):
		return forever
	}
	return time.Duration(left) * time.Microsecond
}
