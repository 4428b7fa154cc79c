package cronlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/sqllock/sqllock"
	cronlock "github.com/sqllock/sqllock/cron"
	"github.com/sqllock/sqllock/locktest"
)

func mustParse(t *testing.T, spec string) cron.Schedule {
	t.Helper()
	s, err := cron.ParseStandard(spec)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// quiet are options with which the test goes on after an error.
func quiet() *cronlock.Options { return &cronlock.Options{Error: func(error) {}} }

func TestEachScheduledTimeOfAWrappedJobRunsOnceAmongThreeCrons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := locktest.NewDatabase(t)
		var ran times
		schedule := mustParse(t, "*/2 * * * *")
		for range 3 {
			wrap, err := cronlock.Wrap(t.Context(), d.Locker(nil), "report", schedule, nil)
			if err != nil {
				t.Fatal(err)
			}
			c := cron.New(cron.WithChain(wrap))
			c.Schedule(schedule, cron.FuncJob(func() {
				ran.add(time.Now().Truncate(time.Minute))
				time.Sleep(40 * time.Second) // longer than a TTL
			}))
			c.Start()
			t.Cleanup(func() { <-c.Stop().Done() })
		}
		began := time.Now()
		time.Sleep(7 * time.Minute)
		all := ran.sorted(t)
		if len(all) != 3 || all[0].Sub(began) != 2*time.Minute {
			t.Errorf("in seven minutes these have run: %v", all)
		}
	})
}

func TestAJobGetsItsScheduledTimeThoughItIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := locktest.NewDatabase(t)
		var ran times
		job, err := cronlock.NewJob(t.Context(), d.Locker(nil), "report", mustParse(t, "0 * * * *"),
			func(_ context.Context, run *sqllock.Run, at time.Time) error {
				if run.Lease().Name() != "report" {
					t.Errorf("the lease is of %q", run.Lease().Name())
				}
				ran.add(at)
				return nil
			}, nil)
		if err != nil {
			t.Fatal(err)
		}
		hour := time.Now().Truncate(time.Hour).Add(time.Hour)
		time.Sleep(time.Until(hour.Add(7 * time.Minute)))
		job.Run()
		job.Run() // it is done
		time.Sleep(time.Until(hour.Add(time.Hour - 50*time.Millisecond)))
		job.Run() // on a clock that is a little behind
		if all := ran.sorted(t); len(all) != 2 || !all[0].Equal(hour) || !all[1].Equal(hour.Add(time.Hour)) {
			t.Errorf("these have run: %v", all)
		}
	})
}

func TestAJobGetsTheLatestOfItsTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		everySecond, err := cronlock.Every(time.Second)
		if err != nil {
			t.Fatal(err)
		}
		var ran times
		job, err := cronlock.NewJob(t.Context(), locktest.New(t, nil), "tick", everySecond,
			func(_ context.Context, _ *sqllock.Run, at time.Time) error {
				ran.add(at)
				return nil
			}, nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(3500 * time.Millisecond)
		job.Run()
		if all := ran.sorted(t); len(all) != 1 || !all[0].Equal(time.Now().Truncate(time.Second)) {
			t.Errorf("at %v it ran for %v", time.Now(), all)
		}
	})
}

func TestARunThatFailsIsRepeatedByTheNextProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := locktest.NewDatabase(t)
		failure := errors.New("a failure of the job")
		var reported []error
		runs := 0
		newJob := func(result error) cron.Job {
			job, err := cronlock.NewJob(t.Context(), d.Locker(nil), "report", mustParse(t, "0 * * * *"),
				func(_ context.Context, run *sqllock.Run, _ time.Time) error {
					runs++
					return result
				}, &cronlock.Options{Error: func(err error) { reported = append(reported, err) }})
			if err != nil {
				t.Fatal(err)
			}
			return job
		}
		newJob(failure).Run()
		newJob(nil).Run()
		newJob(nil).Run()
		if runs != 2 || len(reported) != 1 || !errors.Is(reported[0], failure) {
			t.Errorf("%d runs, and the errors %v", runs, reported)
		}
	})
}

func TestAPanicOfAJobGoesOnAndItsRunHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := locktest.NewDatabase(t)
		ran := 0
		schedule := mustParse(t, "0 * * * *")
		for _, panics := range []bool{true, false, false} {
			wrap, err := cronlock.Wrap(t.Context(), d.Locker(nil), "report", schedule, quiet())
			if err != nil {
				t.Fatal(err)
			}
			recovered := false
			logger := cron.FuncJob(func() {
				defer func() { recovered = recover() != nil }()
				cron.NewChain(wrap).Then(cron.FuncJob(func() {
					ran++
					if panics {
						panic("of the job")
					}
				})).Run()
			})
			logger.Run()
			if recovered != panics {
				t.Errorf("recovered: %t, want %t", recovered, panics)
			}
		}
		if ran != 2 {
			t.Errorf("it ran %d times", ran)
		}
	})
}

func TestAChainWithWrappersOfCronWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		schedule := mustParse(t, "* * * * *")
		wrap, err := cronlock.Wrap(t.Context(), locktest.NewDatabase(t).Locker(nil), "report", schedule, quiet())
		if err != nil {
			t.Fatal(err)
		}
		c := cron.New(cron.WithChain(cron.SkipIfStillRunning(cron.DiscardLogger), cron.Recover(cron.DiscardLogger), wrap))
		ran := 0
		c.Schedule(schedule, cron.FuncJob(func() {
			if ran++; ran == 2 {
				time.Sleep(150 * time.Second) // two times are skipped
			}
			panic("of the job")
		}))
		c.Start()
		time.Sleep(6*time.Minute + 30*time.Second)
		<-c.Stop().Done()
		if ran != 4 {
			t.Errorf("of six times, %d have run", ran)
		}
	})
}

func TestAPlainFunctionRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := locktest.NewDatabase(t)
		everyMinute, err := cronlock.Every(time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		ran := 0
		for range 3 {
			once, err := cronlock.Middleware(t.Context(), d.Locker(nil), "report", everyMinute, nil)
			if err != nil {
				t.Fatal(err)
			}
			fn := once(func() { ran++ })
			fn()
			time.Sleep(10 * time.Second)
			fn()
		}
		if ran != 1 {
			t.Errorf("it ran %d times", ran)
		}
	})
}

func TestALostLeaseEndsTheContextOfAJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := locktest.NewDatabase(t)
		var reported error
		job, err := cronlock.NewJob(t.Context(), d.Locker(nil), "report", mustParse(t, "* * * * *"),
			func(ctx context.Context, _ *sqllock.Run, _ time.Time) error {
				d.Lose("report")
				<-ctx.Done()
				return nil
			}, &cronlock.Options{Error: func(err error) { reported = err }})
		if err != nil {
			t.Fatal(err)
		}
		job.Run()
		if !errors.Is(reported, sqllock.ErrLost) {
			t.Errorf("the error is %v", reported)
		}
	})
}

func TestAWaitEndsWithTheContextOrWithItsOption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := locktest.NewDatabase(t)
		lease, err := d.Locker(nil).Lock(t.Context(), "report")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, opts := range [][]sqllock.LockOption{{sqllock.Wait(time.Second)}, nil} {
			want, reported := time.Minute, error(nil)
			if opts != nil {
				want = time.Second
			}
			job, err := cronlock.NewJob(ctx, d.Locker(nil), "report", mustParse(t, "* * * * *"),
				func(context.Context, *sqllock.Run, time.Time) error { return nil },
				&cronlock.Options{Error: func(err error) { reported = err }, Lock: opts})
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			job.Run()
			if took := time.Since(began); took > want || reported == nil {
				t.Errorf("with a wait of %v: %v, %v", want, took, reported)
			}
		}
		if err := lease.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestTheLocationIsThatOfTheCron(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := locktest.NewDatabase(t)
		zone := time.FixedZone("far", 7*3600)
		var got time.Time
		job, err := cronlock.NewJob(t.Context(), d.Locker(nil), "report", mustParse(t, "0 13 * * *"),
			func(_ context.Context, _ *sqllock.Run, at time.Time) error {
				got = at
				return nil
			}, &cronlock.Options{Location: zone})
		if err != nil {
			t.Fatal(err)
		}
		job.Run() // the bubble begins at midnight UTC, 7:00 there
		if want := time.Date(1999, 12, 31, 13, 0, 0, 0, zone); !got.Equal(want) {
			t.Errorf("it ran for %v, want %v", got, want)
		}
	})
}

func TestInvalidArgumentsAreRefusedBeforeAnySQL(t *testing.T) {
	d := locktest.NewDatabase(t)
	locks := d.Locker(nil)
	d.Down()
	hourly := mustParse(t, "0 * * * *")
	fn := func(context.Context, *sqllock.Run, time.Time) error { return nil }
	var none context.Context
	for what, c := range map[string]struct {
		ctx      context.Context
		locks    *sqllock.Locker
		name     string
		schedule cron.Schedule
		fn       func(context.Context, *sqllock.Run, time.Time) error
		opts     []sqllock.LockOption
		want     error
	}{
		"no context":      {none, locks, "a", hourly, fn, nil, sqllock.ErrInvalidOption},
		"no locks":        {t.Context(), nil, "a", hourly, fn, nil, sqllock.ErrInvalidOption},
		"no schedule":     {t.Context(), locks, "a", nil, fn, nil, sqllock.ErrInvalidOption},
		"no function":     {t.Context(), locks, "a", hourly, nil, nil, sqllock.ErrInvalidOption},
		"a nil option":    {t.Context(), locks, "a", hourly, fn, []sqllock.LockOption{nil}, sqllock.ErrInvalidOption},
		"an option":       {t.Context(), locks, "a", hourly, fn, []sqllock.LockOption{sqllock.Wait(-1)}, sqllock.ErrInvalidOption},
		"cron.Every":      {t.Context(), locks, "a", cron.Every(time.Hour), fn, nil, sqllock.ErrInvalidOption},
		"@every":          {t.Context(), locks, "a", mustParse(t, "@every 1h"), fn, nil, sqllock.ErrInvalidOption},
		"no name":         {t.Context(), locks, "", hourly, fn, nil, sqllock.ErrInvalidName},
		"a name too long": {t.Context(), locks, strings.Repeat("a", 256), hourly, fn, nil, sqllock.ErrInvalidName},
	} {
		if job, err := cronlock.NewJob(c.ctx, c.locks, c.name, c.schedule, c.fn, &cronlock.Options{Lock: c.opts}); job != nil || !errors.Is(err, c.want) {
			t.Errorf("%s: %v", what, err)
		}
		if c.fn == nil {
			continue
		}
		if wrap, err := cronlock.Wrap(c.ctx, c.locks, c.name, c.schedule, &cronlock.Options{Lock: c.opts}); wrap != nil || !errors.Is(err, c.want) {
			t.Errorf("%s: %v", what, err)
		}
		if once, err := cronlock.Middleware(c.ctx, c.locks, c.name, c.schedule, &cronlock.Options{Lock: c.opts}); once != nil || !errors.Is(err, c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, bad := range []time.Duration{0, -time.Second} {
		if s, err := cronlock.Every(bad); s != nil || !errors.Is(err, sqllock.ErrInvalidOption) {
			t.Errorf("Every(%v): %v", bad, err)
		}
	}
}
