package web

import "time"

// KeepWatching sets for how long a name is watched after the last visit.
func (h *Handler) KeepWatching(d time.Duration) { h.watches.KeepFor(d) }

// Watched is how many names are being watched.
func (h *Handler) Watched() int { return h.watches.Len() }

// Streams is how many pages update themselves.
func (h *Handler) Streams() int { return len(h.streams) }

const MaxStreams = maxStreams

// Read returns what a page shows of an Activity.
func (a *Activity) Read(now time.Time) *processActivity { return a.read(now) }
