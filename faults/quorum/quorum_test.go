//go:build linux

package main

import (
	"testing"
	"time"
)

type lease struct {
	token int64
	left  time.Duration
}

func (l *lease) Token() int64             { return l.token }
func (l *lease) Remaining() time.Duration { return l.left }

// What the watch does not see nobody does: each fault is shown to it once.
func TestTheWatchSeesWhatIsWrong(t *testing.T) {
	w := newWatch()
	a, b := &lease{1, time.Second}, &lease{2, time.Second}
	w.enter(a)
	w.leave(a)
	w.enter(b)
	if w.overlaps != 0 || w.falls != 0 || w.lost != 0 || w.terms != 2 {
		t.Fatalf("two terms, one after the other: %+v", w)
	}
	over := &lease{3, 0}
	w.enter(over)
	if w.terms != 2 {
		t.Error("a lease that is over counts as a term")
	}
	w.enter(&lease{4, time.Second})
	if w.overlaps != 1 {
		t.Errorf("two terms at one time: %d overlaps", w.overlaps)
	}
	for _, token := range []int64{4, 3} {
		before := w.falls
		w.enter(&lease{token, time.Second})
		if w.falls != before+1 {
			t.Errorf("the token %d after 4: not seen", token)
		}
		w.token = 4
	}
	b.left = 0
	w.leave(b)
	if w.lost != 1 {
		t.Errorf("a lease that was over at its end: %d are lost", w.lost)
	}
	w.last = w.last.Add(-time.Minute)
	w.end()
	if w.gap < time.Minute {
		t.Errorf("a minute without a term: the longest gap is %v", w.gap)
	}
}

func TestFlagsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, args := range [][]string{{"-for", "0s"}, {"-names", "0"}, {"-ttl", "-1s"}, {"more"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}
