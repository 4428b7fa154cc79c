package web

import (
	"time"

	"github.com/sqllock/sqllock"
)

// KeepWatching sets for how long a name is watched after the last visit.
func (h *Handler) KeepWatching(d time.Duration) { h.watches.keep = d }

// Watched is how many names are being watched.
func (h *Handler) Watched() int {
	h.watches.mu.Lock()
	defer h.watches.mu.Unlock()
	return len(h.watches.byName)
}

// Streams is how many pages update themselves.
func (h *Handler) Streams() int { return len(h.streams) }

const MaxStreams = maxStreams

// Losses are those that are seen in what a name looks like, time after time.
func Losses(seen []sqllock.Info) (what []string) {
	var was sampled
	for i := range seen {
		if l, ok := was.loss(&seen[i]); ok {
			what = append(what, l.What)
		}
		was = was.remember(&seen[i])
	}
	return what
}
