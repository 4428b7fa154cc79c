package gocronlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
)

// A Schedule returns the latest scheduled time that is not after now, or the zero time if
// there is none. It must return the same times in all processes. It is called by several
// goroutines at the same time.
type Schedule func(now time.Time) time.Time

// Every returns the Schedule of the multiples of d since the zero time. It returns
// [sqllock.ErrInvalidOption] if d is not positive.
func Every(d time.Duration) (Schedule, error) {
	if d <= 0 {
		return nil, fmt.Errorf("gocronlock: %w: Every(%v): must be positive", sqllock.ErrInvalidOption, d)
	}
	return func(now time.Time) time.Time { return now.Truncate(d) }, nil
}

// longestPause is how far back a Schedule of [Cron] looks: two leap years can be eight
// years apart.
const longestPause = 9 * 366 * 24 * time.Hour

// Cron returns the Schedule of a crontab, which means what it means for gocron.CronJob: an
// expression with five fields, or with six if withSeconds is true. Pass the location of the
// scheduler, unless the crontab names one; nil is [time.Local], as in gocron. Cron returns
// [sqllock.ErrInvalidOption] and gocron's error if the crontab is not valid.
func Cron(crontab string, withSeconds bool, location *time.Location) (Schedule, error) {
	if location == nil {
		location = time.Local
	}
	c := gocron.NewDefaultCron(withSeconds)
	if err := c.IsValid(crontab, location, time.Now()); err != nil {
		return nil, fmt.Errorf("gocronlock: %w: %w", sqllock.ErrInvalidOption, err)
	}
	return func(now time.Time) time.Time { return latest(c, now) }, nil
}

// latest looks back further and further: a crontab only tells which time is next.
func latest(c gocron.Cron, now time.Time) (found time.Time) {
	for back := 2 * time.Second; found.IsZero() && back < 4*longestPause; back *= 4 {
		for next := c.Next(now.Add(-back)); !next.IsZero() && !next.After(now); next = c.Next(next) {
			found = next
		}
	}
	return found
}

// early is how much before its time a job may begin: a clock that is set in small steps can
// be a little behind the timer.
const early = 100 * time.Millisecond

// OnceTask returns a task for a job of gocron. When the job is due, the task runs fn once for
// the latest time of the schedule, in one of all processes that have the job, see
// [sqllock.Locker.Once]. The key of the run is [sqllock.TimeKey] of that time, which fn gets
// too. Give the job the same schedule.
//
// The task waits while another process runs fn, and then does not run it, unless that run
// has failed. If the job is started with gocron.WithStartImmediately, the task catches up the
// latest time that was missed. The task returns the errors of Once.
//
// Name is that of the lock: two jobs must not have the same. The options are those of
// [sqllock.Locker.Lock]; with [sqllock.Wait], the task gives up after that time. Use neither
// an [Elector] nor a [Locker] for the job.
//
// OnceTask runs no SQL. It returns [sqllock.ErrInvalidOption] if an argument is nil or an
// option is out of bounds, [sqllock.ErrInvalidName], or [sqllock.ErrUnsupported] if locks is
// not in unique mode.
func OnceTask(
	locks *sqllock.Locker, name string, schedule Schedule, fn func(ctx context.Context, run *sqllock.Run, at time.Time) error,
	opts ...sqllock.LockOption,
) (gocron.Task, error) {
	switch {
	case locks == nil:
		return nil, fmt.Errorf("gocronlock: %w", driver.NilError("*sqllock.Locker"))
	case schedule == nil:
		return nil, fmt.Errorf("gocronlock: %w", driver.NilError("Schedule"))
	case fn == nil:
		return nil, fmt.Errorf("gocronlock: %w", driver.NilError("function"))
	}
	if err := driver.CheckName(name); err != nil {
		return nil, fmt.Errorf("gocronlock: %w", err)
	}
	// Once checks the key last, and all before any SQL.
	nothing := func(context.Context, *sqllock.Run) error { return nil }
	if _, err := locks.Once(context.Background(), name, "", nothing, opts...); !errors.Is(err, sqllock.ErrInvalidName) {
		return nil, fmt.Errorf("gocronlock: %w", err)
	}
	return gocron.NewTask(func(ctx context.Context) error {
		at := schedule(time.Now().Add(early))
		if at.IsZero() {
			return nil
		}
		_, err := locks.Once(ctx, name, sqllock.TimeKey(at), func(ctx context.Context, run *sqllock.Run) error {
			return fn(ctx, run, at)
		}, opts...)
		return err
	}), nil
}
