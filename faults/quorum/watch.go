//go:build linux

package main

import (
	"context"
	"sync"
	"time"
)

// holder is a lease.
type holder interface {
	Token() int64
	Remaining() time.Duration
	Context() context.Context
}

// watch sees each term of one name. It is safe for concurrent use.
type watch struct {
	ttl time.Duration // of the leases

	mu       sync.Mutex
	holders  map[holder]time.Time // since when
	token    int64
	last     time.Time // when the last term was seen
	terms    int
	overlaps int
	falls    int           // tokens that do not rise
	lost     int           // leases that were over before they were unlocked
	renewed  int           // leases that had lasted for longer than their TTL when they were unlocked
	late     int           // leases whose context went on although nothing of them remained
	gap      time.Duration // the longest time without a new term
}

func newWatch(ttl time.Duration) *watch {
	return &watch{ttl: ttl, holders: make(map[holder]time.Time), last: time.Now()}
}

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
	w.holders[h], w.token = time.Now(), h.Token()
	w.terms++
	w.pause()
}

const (
	// looking is the pause between two looks at a lease.
	looking = 20 * time.Millisecond
	// maxLate is by how much a context may end late on a busy machine.
	maxLate = time.Second
)

// keep looks at a lease for some time, or until it is over, or ctx ends. As long as the context of the
// lease goes on, something of it must remain.
func (w *watch) keep(ctx context.Context, h holder, d time.Duration) {
	over := time.After(d)
	tick := time.NewTicker(looking)
	defer tick.Stop()
	for h.Remaining() > 0 {
		select {
		case <-ctx.Done():
			return
		case <-over:
			return
		case <-tick.C:
		}
	}
	select {
	case <-h.Context().Done():
	case <-time.After(maxLate):
		w.mu.Lock()
		defer w.mu.Unlock()
		w.late++
	}
}

// leave sees that somebody is about to unlock the name.
func (w *watch) leave(h holder) {
	w.mu.Lock()
	defer w.mu.Unlock()
	since, entered := w.holders[h]
	switch {
	case h.Remaining() <= 0:
		w.lost++
	case entered && time.Since(since) > w.ttl:
		w.renewed++
	}
	delete(w.holders, h)
}

// begun returns how many terms began.
func (w *watch) begun() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.terms
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

// add adds what was seen of another name, but for the gap.
func (w *watch) add(other *watch) {
	w.terms += other.terms
	w.overlaps += other.overlaps
	w.falls += other.falls
	w.lost += other.lost
	w.renewed += other.renewed
	w.late += other.late
}
