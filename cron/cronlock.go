// Package cronlock runs each scheduled time of a job once, in one of all processes that have the
// same schedule, for robfig/cron v3 and for plain functions. It is made of package sqllock.
//
// The time for which a job is scheduled is the key of a run of [sqllock.Locker.Once]. So the clocks
// of the processes may differ, and a run that has failed or crashed is taken over by the next
// process that has the same time due. There are three ways:
//
//   - [Wrap] is a cron.JobWrapper, for jobs that stay as they are;
//   - [Middleware] is the same for plain functions, whatever calls them at the scheduled times;
//   - [NewJob] makes a job of a function that gets the run and its scheduled time. Only such a
//     function can stop when the lease is lost, and write in the transaction that completes the
//     run.
package cronlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
)

// Options are the options of [Wrap], [Middleware] and [NewJob]. The zero value of each field means
// its default.
type Options struct {
	// Location must be that of the cron, see cron.WithLocation. It applies to a schedule that names
	// no time zone itself. The default is [time.Local], as in cron.
	Location *time.Location

	// Error is called with each error of a run: those of [sqllock.Locker.Once], and of the function.
	// It may be called by several goroutines at the same time. By default the error is logged with
	// [slog.Default].
	Error func(err error)

	// Lock are the options of the lock. With [sqllock.Wait], a process that waits for another
	// process's run gives up after that time. The default is none.
	Lock []sqllock.LockOption
}

// Wrap returns a JobWrapper. A job that it wraps runs once for each time of the schedule, among all
// jobs with the same name in all processes: when it is due, it waits while another process runs it,
// and is then left out, unless that run has failed.
//
// Give the job to cron with the same schedule. Name is the name of the lock: two jobs must not have
// the same. A run fails if the job panics; the panic goes on. The wait ends with ctx. A job without
// a context does not notice that its lease was lost, see [NewJob].
//
// Wrap runs no SQL. It returns [sqllock.ErrInvalidOption] if an argument is nil, an option is out
// of bounds, or the schedule is one of cron.Every or "@every", whose times count from the start of
// each process: use [Every]. It also returns [sqllock.ErrInvalidName], and [sqllock.ErrUnsupported]
// if locks is not in unique mode.
func Wrap(ctx context.Context, locks *sqllock.Locker, name string, schedule cron.Schedule, opts *Options) (cron.JobWrapper, error) {
	o, err := newOnce(ctx, locks, name, schedule, opts)
	if err != nil {
		return nil, err
	}
	return func(j cron.Job) cron.Job { return cron.FuncJob(o.func0(j.Run)) }, nil
}

// Middleware is [Wrap] for plain functions. Call the function that it returns at the times of the
// schedule. It returns when the run is over, wherever that was.
func Middleware(ctx context.Context, locks *sqllock.Locker, name string, schedule cron.Schedule, opts *Options) (func(func()) func(), error) {
	o, err := newOnce(ctx, locks, name, schedule, opts)
	if err != nil {
		return nil, err
	}
	return o.func0, nil
}

// NewJob is [Wrap] for a function that gets its run and the time for which it is scheduled. The
// context of the function ends with ctx, or when the lease is lost. If the function returns an
// error, the run has failed: each other process that had the same time due then tries it, too.
func NewJob(
	ctx context.Context, locks *sqllock.Locker, name string, schedule cron.Schedule,
	fn func(ctx context.Context, run *sqllock.Run, at time.Time) error, opts *Options,
) (cron.Job, error) {
	if fn == nil {
		return nil, fmt.Errorf("cronlock: %w", driver.NilError("function"))
	}
	o, err := newOnce(ctx, locks, name, schedule, opts)
	if err != nil {
		return nil, err
	}
	return cron.FuncJob(func() { o.run(fn) }), nil
}

// once runs what belongs to one name and schedule.
type once struct {
	ctx      context.Context // of all runs: cron's jobs have none
	locks    *sqllock.Locker
	name     string
	schedule cron.Schedule
	opts     Options
}

func newOnce(ctx context.Context, locks *sqllock.Locker, name string, schedule cron.Schedule, opts *Options) (*once, error) {
	if err := driver.CheckContext(ctx); err != nil {
		return nil, fmt.Errorf("cronlock: %w", err)
	}
	switch {
	case locks == nil:
		return nil, fmt.Errorf("cronlock: %w", driver.NilError("*sqllock.Locker"))
	case schedule == nil:
		return nil, fmt.Errorf("cronlock: %w", driver.NilError("cron.Schedule"))
	}
	if _, ok := schedule.(cron.ConstantDelaySchedule); ok {
		return nil, fmt.Errorf("cronlock: %w: the times of cron.Every and @every differ from process to process: use cronlock.Every",
			sqllock.ErrInvalidOption)
	}
	if err := driver.CheckName(name); err != nil {
		return nil, fmt.Errorf("cronlock: %w", err)
	}
	o := &once{ctx: ctx, locks: locks, name: name, schedule: schedule}
	if opts != nil {
		o.opts = *opts
	}
	if o.opts.Location == nil {
		o.opts.Location = time.Local
	}
	if o.opts.Error == nil {
		o.opts.Error = func(err error) { slog.Default().Error("cronlock: a run has failed", "name", name, "error", err) }
	}
	// Once checks the key last, and all before any SQL.
	nothing := func(context.Context, *sqllock.Run) error { return nil }
	if _, err := locks.Once(context.Background(), name, "", nothing, o.opts.Lock...); !errors.Is(err, sqllock.ErrInvalidName) {
		return nil, fmt.Errorf("cronlock: %w", err)
	}
	return o, nil
}

// func0 wraps a plain function.
func (o *once) func0(fn func()) func() {
	return func() {
		o.run(func(context.Context, *sqllock.Run, time.Time) error {
			fn()
			return nil
		})
	}
}

// run runs fn for the latest time that is due.
func (o *once) run(fn func(context.Context, *sqllock.Run, time.Time) error) {
	at := latest(o.schedule, time.Now().Add(early).In(o.opts.Location))
	if at.IsZero() {
		return
	}
	_, err := o.locks.Once(o.ctx, o.name, sqllock.TimeKey(at), func(ctx context.Context, run *sqllock.Run) error {
		return fn(ctx, run, at)
	}, o.opts.Lock...)
	if err != nil {
		o.opts.Error(err)
	}
}
