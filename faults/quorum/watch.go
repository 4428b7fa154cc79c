//go:build linux

package main

import (
	"sync"
	"time"
)

// holder is a lease.
type holder interface {
	Token() int64
	Remaining() time.Duration
}

// watch sees each term of one name. It is safe for concurrent use.
type watch struct {
	mu       sync.Mutex
	holders  map[holder]bool
	token    int64
	last     time.Time // when the last term was seen
	terms    int
	overlaps int
	falls    int           // tokens that do not rise
	lost     int           // leases that were over before they were unlocked
	gap      time.Duration // the longest time without a new term
}

func newWatch() *watch { return &watch{holders: make(map[holder]bool), last: time.Now()} }

// enter sees that somebody believes to hold the name. One whose lease is over already does not.
func (w *watch) enter(h holder) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h.Remaining() <= 0 {
		return
	}
	for other := range w.holders {
		if other.Remaining() > 0 {
			w.overlaps++
		}
	}
	if h.Token() <= w.token {
		w.falls++
	}
	w.holders[h], w.token = true, h.Token()
	w.terms++
	w.pause()
}

// leave sees that somebody is about to unlock the name.
func (w *watch) leave(h holder) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h.Remaining() <= 0 {
		w.lost++
	}
	delete(w.holders, h)
}

// end sees that nobody asks for the name any more.
func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pause()
}

func (w *watch) pause() {
	now := time.Now()
	w.gap, w.last = max(w.gap, now.Sub(w.last)), now
}
