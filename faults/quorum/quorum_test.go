//go:build linux

package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

type lease struct {
	token int64
	left  time.Duration
	ctx   context.Context
}

func (l *lease) Token() int64             { return l.token }
func (l *lease) Remaining() time.Duration { return l.left }
func (l *lease) Context() context.Context { return l.ctx }

// What the watch does not see nobody does: each fault is shown to it once.
func TestTheWatchSeesWhatIsWrong(t *testing.T) {
	w := newWatch(time.Second)
	a, b := &lease{token: 1, left: time.Second}, &lease{token: 2, left: time.Second}
	w.enter(a)
	w.leave(a)
	w.enter(b)
	if w.overlaps != 0 || w.falls != 0 || w.lost != 0 || w.terms != 2 {
		t.Fatalf("two terms, one after the other: %+v", w)
	}
	over := &lease{token: 3}
	w.enter(over)
	if w.terms != 2 {
		t.Error("a lease that is over counts as a term")
	}
	w.enter(&lease{token: 4, left: time.Second})
	if w.overlaps != 1 {
		t.Errorf("two terms at one time: %d overlaps", w.overlaps)
	}
	for _, token := range []int64{4, 3} {
		before := w.falls
		w.enter(&lease{token: token, left: time.Second})
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

// endless is a lease that is renewed for ever.
func endless() *lease { return &lease{token: 1, left: time.Second, ctx: context.Background()} }

func TestTheWatchLooksAtALeaseThatIsKept(t *testing.T) {
	over, end := context.WithCancel(context.Background())
	end()
	for _, c := range []struct {
		what                string
		lease               *lease
		d                   time.Duration
		renewed, late, lost int
	}{
		{"one that is renewed", endless(), 1500 * time.Millisecond, 1, 0, 0},
		{"one that is kept for less than its TTL", endless(), 500 * time.Millisecond, 0, 0, 0},
		{"one that is lost", &lease{token: 1, ctx: over}, 1500 * time.Millisecond, 0, 0, 1},
		{"one whose context goes on", &lease{token: 1, ctx: context.Background()}, 1500 * time.Millisecond, 0, 1, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWatch(time.Second)
			left := c.lease.left
			c.lease.left = time.Second
			w.enter(c.lease)
			c.lease.left = left
			w.keep(t.Context(), c.lease, c.d)
			w.leave(c.lease)
			if w.terms != 1 || w.renewed != c.renewed || w.late != c.late || w.lost != c.lost {
				t.Errorf("%s: %d renewed, %d late, %d lost, of %d terms", c.what, w.renewed, w.late, w.lost, w.terms)
			}
		})
	}
}

func TestAWatchOfALeaseEndsWithTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, stop)
		began := time.Now()
		newWatch(time.Second).keep(ctx, endless(), time.Hour)
		if took := time.Since(began); took != 100*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

// What was in flight when the databases went away, and what is granted when they are back, says
// nothing of the time between.
func TestSomebodyMustBeGrantedANameWhileTwoDatabasesAreAway(t *testing.T) {
	for _, c := range []struct {
		what string
		at   time.Duration // when the only term begins
		ends time.Duration // when the run is stopped
		want bool
	}{
		{"no term", time.Hour, time.Hour, false},
		{"a term at once", 100 * time.Millisecond, time.Hour, false},
		{"a term meanwhile", 2 * time.Second, time.Hour, true},
		{"a term just before they are back", 2900 * time.Millisecond, time.Hour, true},
		{"a term when they are back", 3 * time.Second, time.Hour, false},
		{"the run is stopped", time.Hour, 2 * time.Second, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			w := newWatch(time.Second)
			s := &scene{settings: settings{down: 3 * time.Second}, watches: []*watch{newWatch(time.Second), w}}
			defer time.AfterFunc(c.at, func() { w.enter(endless()) }).Stop()
			defer time.AfterFunc(c.ends, stop).Stop()
			if got := s.goesOn(ctx, time.Now().Add(s.down)); got != c.want {
				t.Errorf("%s: %v", c.what, got)
			}
		})
	}
}

func TestTheVerdictSaysWhatIsWrong(t *testing.T) {
	const kept, broken, failed = "every promise was kept", "A PROMISE WAS BROKEN", "THE RUN FAILED: no port"
	s, err := parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what    string
		change  func(short, long *watch)
		took    time.Duration
		failed  error
		ok      bool
		verdict string
		silent  []int // for each fault
	}{
		{"nothing", func(_, _ *watch) {}, time.Hour, nil, true, kept, nil},
		{"the run failed", func(_, _ *watch) {}, time.Hour, errors.New("no port"), true, failed, nil},
		{"terms overlap", func(short, _ *watch) { short.overlaps = 1 }, time.Hour, nil, false, broken, nil},
		{"long terms overlap", func(_, long *watch) { long.overlaps = 1 }, time.Hour, nil, false, broken, nil},
		{"a context goes on", func(_, long *watch) { long.late = 1 }, time.Hour, nil, false, broken, nil},
		{"a gap", func(short, _ *watch) { short.gap = time.Minute }, time.Hour, nil, false, broken, nil},
		{"a gap of a name with long terms", func(_, long *watch) { long.gap = time.Minute }, time.Hour, nil, true, kept, nil},
		{"no term", func(short, _ *watch) { short.terms = 0 }, time.Hour, nil, false, broken, nil},
		{"no long term", func(_, long *watch) { long.terms = 0 }, time.Hour, nil, false, broken, nil},
		{"no renewal", func(_, long *watch) { long.renewed = 0 }, time.Hour, nil, false, broken, nil},
		{"no renewal in a short run", func(_, long *watch) { long.terms, long.renewed = 0, 0 }, time.Second, nil, true, kept, nil},
		{"a lost lease", func(_, long *watch) { long.lost = 1 }, time.Hour, nil, true, kept, nil},
		{"no term while two databases are killed", func(_, _ *watch) {}, time.Hour, nil, false, broken, []int{2, 0, 0}},
		{"no term while two databases are frozen", func(_, _ *watch) {}, time.Hour, nil, false, broken, []int{0, 2, 0}},
		{"no term in one strike", func(_, _ *watch) {}, time.Hour, nil, true, kept, []int{1, 0, 0}},
	} {
		short, long := newWatch(s.ttl), newWatch(s.ttl)
		short.terms, long.terms, long.renewed = 100, 10, 5
		c.change(short, long)
		scene := &scene{
			settings: s, watches: []*watch{short}, long: []*watch{long},
			applied: make([]int, len(faults)), silent: make([]int, len(faults)),
		}
		copy(scene.silent, c.silent)
		var out strings.Builder
		if ok := scene.tell(&out, c.took, c.failed); ok != c.ok {
			t.Errorf("%s: %v", c.what, ok)
		}
		for _, verdict := range []string{kept, broken, failed} {
			if strings.Contains(out.String(), verdict) != (verdict == c.verdict) {
				t.Errorf("%s: %q is wrong in\n%s", c.what, verdict, &out)
			}
		}
	}
}

func TestFlagsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, args := range [][]string{{"-for", "0s"}, {"-names", "0"}, {"-ttl", "-1s"}, {"more"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}
