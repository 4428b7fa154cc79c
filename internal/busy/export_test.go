package busy

import "time"

// PausedAfter reports whether a pause of the process is noticed when it is over.
func PausedAfter(pause time.Duration) bool {
	w := &watch{ran: time.Now().Add(-pause)}
	first := w.paused()
	return first && w.paused()
}
