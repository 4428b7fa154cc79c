package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
)

// crash makes a holder that is never heard of again.
func crash(t *testing.T, db *fake, names ...string) {
	t.Helper()
	for i, name := range names {
		_, err := db.Acquire(context.Background(), []driverGrant{{Name: name, Acq: driverID{99, byte(i >> 8), byte(i)}, Owner: "gone", TTL: time.Second}})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestALockerReapsInTheBackgroundUnlessToldNotTo(t *testing.T) {
	for _, off := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			db := newFake()
			crash(t, db, "a")
			events := make(chan sqllock.CrashedEvent, 10)
			opts := &sqllock.UniqueOptions{Hooks: &sqllock.Hooks{Crashed: func(e sqllock.CrashedEvent) { events <- e }}}
			if off {
				opts.Reaper = &sqllock.ReaperOptions{Off: true}
			}
			since := time.UnixMicro(db.row("a").since)
			b := newBench(t, db, opts)
			defer b.close()
			time.Sleep(2 * sqllock.DefaultReapInterval)
			synctest.Wait()
			switch {
			case off && len(db.sent) > 1:
				t.Errorf("turned off it sent %v", db.sent)
			case !off && len(events) != 1:
				t.Errorf("%d crashes told, want 1", len(events))
			case !off:
				e := <-events
				if e.Name != "a" || e.Owner != "gone" || e.Label != "fake" || e.Token != db.row("a").version ||
					!e.Since.Equal(since) || !e.Expired.Equal(since.Add(time.Second)) {
					t.Errorf("told of %+v", e)
				}
			}
		})
	}
}

func TestLockersShareTheReaping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		const lockers, interval = 10, 10 * time.Second
		for range lockers {
			b := newBench(t, db, &sqllock.UniqueOptions{Reaper: &sqllock.ReaperOptions{Interval: interval}})
			defer b.close()
		}
		time.Sleep(10 * interval)
		if n := db.count("sweep"); n < 8 || n > 21 {
			t.Errorf("%d passes in 10 intervals of %d Lockers, want 10 to 20", n, lockers)
		}
	})
}

func TestAPassGoesThroughTheTableInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		var names []string
		for i := range 25 {
			names = append(names, fmt.Sprintf("%02d", i))
		}
		crash(t, db, names...)
		b := newBench(t, db, &sqllock.UniqueOptions{Reaper: &sqllock.ReaperOptions{Off: true, Batch: 10, Retention: time.Hour}})
		defer b.close()
		time.Sleep(2 * time.Second)
		db.set(func(f *fake) { f.after = after("sweep", time.Second) })
		start := time.Now()
		rep, err := b.Reaper().Reap(t.Context())
		if err != nil || rep.Seen != 25 || len(rep.Crashed) != 25 || rep.Purged != 0 || db.count("sweep") != 3 {
			t.Errorf("Reap = %+v, %v in %d statements", rep, err, db.count("sweep"))
		}
		if took := time.Since(start); took != 5*time.Second || rep.Took != took {
			t.Errorf("it took %v, and says %v: want a pause as long as each statement", took, rep.Took)
		}
		time.Sleep(2 * time.Hour)
		if rep, err := b.Reaper().Reap(t.Context()); err != nil || rep.Purged != 25 || len(rep.Crashed) != 0 || len(db.rows) != 0 {
			t.Errorf("Reap after the retention = %+v, %v", rep, err)
		}
	})
}

func TestPassesThatTakeLongAreFurtherApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		db.after = after("sweep", 4*time.Second)
		for range 3 {
			b := newBench(t, db, &sqllock.UniqueOptions{Reaper: &sqllock.ReaperOptions{Interval: 10 * time.Second}})
			defer b.close()
		}
		time.Sleep(4000 * time.Second)
		if n := db.count("sweep"); n < 7 || n > 11 {
			t.Errorf("%d passes in 4000 s, want one in 400 s", n)
		}
	})
}

// reapWith makes a pass over three names, in two statements, whose holders have crashed. Before the
// n'th statement fault says how it fails.
func reapWith(t *testing.T, fault func(n int, kind string) error) (rep sqllock.ReapReport, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		crash(t, db, "a", "b", "c")
		b := newBench(t, db, &sqllock.UniqueOptions{Reaper: &sqllock.ReaperOptions{Off: true, Batch: 2}})
		defer b.close()
		time.Sleep(2 * time.Second)
		n := 0
		db.set(func(f *fake) {
			f.before = func(_ context.Context, kind string) error {
				n++
				return fault(n, kind)
			}
		})
		rep, err = b.Reaper().Reap(t.Context())
	})
	return rep, err
}

func TestAPassThatFailsTellsWhatItHasDone(t *testing.T) {
	rep, err := reapWith(t, func(n int, kind string) error {
		if kind == "sweep" && n == 2 {
			return errDeadlock // is tried again
		} else if n > 2 {
			return errDenied
		}
		return nil
	})
	if !errors.Is(err, errDenied) || len(rep.Crashed) != 2 {
		t.Errorf("Reap = %+v, %v", rep, err)
	}
}

// A process that is paused in the middle of a pass finds its transaction undone, and what it did
// before in the same call done.
func TestAPassGoesOnAfterACallOfWhichAPartWasDone(t *testing.T) {
	rep, err := reapWith(t, func(n int, kind string) error {
		if kind == "sweep" && n == 2 {
			return errNoReply
		}
		return nil
	})
	if err != nil || len(rep.Crashed) != 3 {
		t.Errorf("Reap = %+v, %v", rep, err)
	}
}

func TestTheReaperRunsUntilItsContextOrItsLockerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{Reaper: &sqllock.ReaperOptions{Off: true, Interval: time.Second}})
		ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Second, errDenied)
		defer cancel()
		if err := b.Reaper().Run(ctx); !errors.Is(err, errDenied) {
			t.Errorf("Run = %v", err)
		}
		if n := db.count("sweep"); n < 8 {
			t.Errorf("%d passes in 10 s", n)
		}
		done := make(chan error)
		go func() { done <- b.Reaper().Run(context.Background()) }()
		time.Sleep(5 * time.Second)
		b.close()
		if err := <-done; !errors.Is(err, sqllock.ErrClosed) {
			t.Errorf("Run of a closed Locker = %v", err)
		}
	})
}

func TestADatabaseThatIsDownStopsNoReaper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		crash(t, db, "a")
		db.before = func(_ context.Context, kind string) error {
			if kind == "turn" || kind == "sweep" {
				return errDown
			}
			return nil
		}
		b := newBench(t, db, nil)
		defer b.close()
		time.Sleep(5 * time.Minute)
		db.set(func(f *fake) { f.before = nil })
		time.Sleep(2 * sqllock.DefaultReapInterval)
		synctest.Wait()
		if db.row("a").ended == 0 {
			t.Error("nobody cleaned up after the database had come back")
		}
	})
}

func TestOptionsOfTheReaperThatMakeNoSenseAreRefused(t *testing.T) {
	for name, o := range map[string]sqllock.ReaperOptions{
		"Interval below 0":     {Interval: -1},
		"Interval of a ms":     {Interval: time.Millisecond},
		"Retention below 0":    {Retention: -1},
		"Retention of a ms":    {Retention: time.Millisecond},
		"KeyRetention below 0": {KeyRetention: -1},
		"KeyRetention of a ms": {KeyRetention: time.Millisecond},
		"Batch below 0":        {Batch: -1},
		"Batch over the most":  {Batch: 10_001},
	} {
		if _, err := sqllock.NewWithClock(newFake(), nil, &sqllock.UniqueOptions{Reaper: &o}); !errors.Is(err, sqllock.ErrInvalidOption) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
