package busy

import "time"

// PausedAfter reports whether a pause of the process is noticed when it is over.
func PausedAfter(pause time.Duration) bool {
	w := &watch{ran: time.Now().Add(-pause)}
	first := w.paused(true)
	return first && w.paused(true)
}

// AwayFor reports whether it is noticed that a processor is away for so long, by another one
// meanwhile and when it is back.
func AwayFor(pause time.Duration) bool {
	w := &watch{ran: time.Now().Add(-pause)}
	meanwhile := w.paused(false)
	w.paused(true)
	return meanwhile && w.paused(false)
}

// Processors returns how many processors are watched, and how many of them have run since a time.
func Processors(since time.Time) (watched, ran int) {
	for _, w := range processors() {
		w.mu.Lock()
		if w.ran.After(since) {
			ran++
		}
		w.mu.Unlock()
	}
	return len(processors()), ran
}
