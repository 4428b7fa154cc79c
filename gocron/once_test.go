package gocronlock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/jonboulle/clockwork"

	"github.com/sqllock/sqllock"
	gocronlock "github.com/sqllock/sqllock/gocron"
	"github.com/sqllock/sqllock/internal/testdb"
)

// eachUnique is each for unique mode.
func eachUnique(t *testing.T, fn func(t *testing.T, p pair, d *testdb.Database)) {
	each(t, func(t *testing.T, p pair, d *testdb.Database) {
		if p.mode == unique {
			fn(t, p, d)
		}
	})
}

// times collects for which times a job was run.
type times struct {
	mu   sync.Mutex
	runs map[time.Time]int
}

func (r *times) add(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.runs == nil {
		r.runs = make(map[time.Time]int)
	}
	r.runs[at.UTC()]++
}

func (r *times) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.runs)
}

func newOnceTask(t *testing.T, locks *sqllock.Locker, s gocronlock.Schedule, fn func(at time.Time) error) gocron.Task {
	t.Helper()
	task, err := gocronlock.OnceTask(locks, "jobs/once", s, func(_ context.Context, _ *sqllock.Run, at time.Time) error { return fn(at) })
	if err != nil {
		t.Fatal(err)
	}
	return task
}

func TestEachScheduledTimeRunsOnceAmongThreeSchedulers(t *testing.T) {
	eachUnique(t, func(t *testing.T, p pair, d *testdb.Database) { runsEachOnce(t, p, d, 0, 0, 0) })
}

func TestEachScheduledTimeRunsOnceOnClocksThatDiffer(t *testing.T) {
	const skew = 150 * time.Millisecond
	eachUnique(t, func(t *testing.T, p pair, d *testdb.Database) { runsEachOnce(t, p, d, -skew, 0, skew) })
}

// runsEachOnce has schedulers on clocks that are ahead by skews run one job.
func runsEachOnce(t *testing.T, p pair, d *testdb.Database, skews ...time.Duration) {
	t.Helper()
	schedule, err := gocronlock.Cron("* * * * * *", true, time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	var ran times
	tried := make([]atomic.Int32, len(skews))
	for i, skew := range skews {
		s := newScheduler(t, gocron.WithClock(skewedClock{clockwork.NewRealClock(), skew}))
		ahead := func(now time.Time) time.Time { return schedule(now.Add(skew)) }
		task := newOnceTask(t, newLocks(t, p, d, sqllock.UniqueOptions{TTL: long}), ahead, func(at time.Time) error {
			ran.add(at)
			return nil
		})
		_, err := s.NewJob(gocron.CronJob("* * * * * *", true), task,
			gocron.WithEventListeners(gocron.AfterJobRuns(func(uuid.UUID, string) { tried[i].Add(1) })))
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
	}
	eventually(t, "three times have run, and each scheduler has tried", func() bool {
		return ran.count() > 2 && triedAll(tried, 3)
	})
	ran.mu.Lock()
	defer ran.mu.Unlock()
	for at, n := range ran.runs {
		if n != 1 || !at.Equal(at.Truncate(time.Second)) {
			t.Errorf("%v ran %d times", at, n)
		}
	}
}

// triedAll reports that each scheduler has tried to run its job so often.
func triedAll(tried []atomic.Int32, often int32) bool {
	for i := range tried {
		if tried[i].Load() < often {
			return false
		}
	}
	return true
}

// skewedClock is ahead of the clock of this machine.
type skewedClock struct {
	clockwork.Clock
	by time.Duration
}

func (c skewedClock) Now() time.Time { return c.Clock.Now().Add(c.by) }

func (c skewedClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

func (c skewedClock) Until(t time.Time) time.Duration { return t.Sub(c.Now()) }

func TestTheLatestTimeThatWasMissedIsCaughtUp(t *testing.T) {
	eachUnique(t, func(t *testing.T, p pair, d *testdb.Database) {
		now := time.Now().Truncate(time.Hour)
		due := func(time.Time) time.Time { return now }
		ran := make(chan time.Time, 10)
		start := func(fail error) (ended chan error) {
			ended = make(chan error, 1)
			s := newScheduler(t)
			task := newOnceTask(t, newLocks(t, p, d, sqllock.UniqueOptions{TTL: long}), due, func(at time.Time) error {
				ran <- at
				return fail
			})
			_, err := s.NewJob(gocron.CronJob("0 0 1 1 *", false), task, gocron.WithStartAt(gocron.WithStartImmediately()),
				gocron.WithEventListeners(
					gocron.AfterJobRuns(func(uuid.UUID, string) { ended <- nil }),
					gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { ended <- err })))
			if err != nil {
				t.Fatal(err)
			}
			s.Start()
			return ended
		}
		failure := errors.New("a failure of the job")
		if err := receive(t, "the job has failed", start(failure)); !errors.Is(err, failure) {
			t.Error(err)
		}
		for range 2 {
			if err := receive(t, "the job has run", start(nil)); err != nil {
				t.Error(err)
			}
		}
		if len(ran) != 2 || !(<-ran).Equal(now) || !(<-ran).Equal(now) {
			t.Errorf("it ran %d times more, or for another time", len(ran))
		}
	})
}

func TestASchedulesLatestTimeIsNotAfterNow(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 23, 12, 34, 56, 789, time.UTC)
	for _, c := range []struct {
		crontab  string
		seconds  bool
		location *time.Location
		want     time.Time
	}{
		{"* * * * * *", true, time.UTC, time.Date(2026, 11, 23, 12, 34, 56, 0, time.UTC)},
		{"34 12 * * *", false, time.UTC, time.Date(2026, 11, 23, 12, 34, 0, 0, time.UTC)},
		{"0 * * * *", false, time.UTC, time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)},
		{"0 13 * * *", false, time.UTC, time.Date(2026, 11, 22, 13, 0, 0, 0, time.UTC)},
		{"0 13 * * *", false, berlin, time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)},
		{"CRON_TZ=Europe/Berlin 0 13 * * *", false, time.UTC, time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)},
		{"0 0 1 * *", false, time.UTC, time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)},
		{"0 0 29 2 *", false, time.UTC, time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC)},
	} {
		schedule, err := gocronlock.Cron(c.crontab, c.seconds, c.location)
		if err != nil {
			t.Fatal(err)
		}
		if got := schedule(now); !got.Equal(c.want) {
			t.Errorf("%q: %v, want %v", c.crontab, got, c.want)
		}
		if got := schedule(c.want); !got.Equal(c.want) {
			t.Errorf("%q at its time: %v", c.crontab, got)
		}
	}
	quarters, err := gocronlock.Every(15 * time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if got := quarters(now); !got.Equal(time.Date(2026, 11, 23, 12, 30, 0, 0, time.UTC)) {
		t.Errorf("every 15 minutes: %v", got)
	}
	for _, d := range []time.Duration{0, -time.Minute} {
		if s, err := gocronlock.Every(d); s != nil || !errors.Is(err, sqllock.ErrInvalidOption) {
			t.Errorf("every %v: %v, want ErrInvalidOption", d, err)
		}
	}
}

func TestAOnceTaskRefusesBadArguments(t *testing.T) {
	each(t, func(t *testing.T, p pair, d *testdb.Database) {
		locks := newLocks(t, p, d, sqllock.UniqueOptions{TTL: long})
		fn := func(context.Context, *sqllock.Run, time.Time) error { return nil }
		every, err := gocronlock.Every(time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if p.mode != unique {
			if _, err := gocronlock.OnceTask(locks, "n", every, fn); !errors.Is(err, sqllock.ErrUnsupported) {
				t.Error(err)
			}
			return
		}
		for what, test := range map[string]func() error{
			"no Locker":   func() error { _, err := gocronlock.OnceTask(nil, "n", every, fn); return err },
			"no Schedule": func() error { _, err := gocronlock.OnceTask(locks, "n", nil, fn); return err },
			"no function": func() error { _, err := gocronlock.OnceTask(locks, "n", every, nil); return err },
			"no option":   func() error { _, err := gocronlock.OnceTask(locks, "n", every, fn, nil); return err },
			"a bad TTL":   func() error { _, err := gocronlock.OnceTask(locks, "n", every, fn, sqllock.TTL(1)); return err },
			"a crontab":   func() error { _, err := gocronlock.Cron("61 * * * *", false, nil); return err },
		} {
			if err := test(); !errors.Is(err, sqllock.ErrInvalidOption) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if _, err := gocronlock.OnceTask(locks, "", every, fn); !errors.Is(err, sqllock.ErrInvalidName) {
			t.Error(err)
		}
	})
}
