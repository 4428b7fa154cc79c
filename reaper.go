package sqllock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// Defaults and bounds of the reaper.
const (
	DefaultReapInterval = time.Minute
	DefaultRetention    = 24 * time.Hour
	DefaultReapBatch    = 5000

	DefaultKeyRetention = 90 * 24 * time.Hour

	minRetention = time.Second
	maxReapBatch = 10_000
)

// ReaperOptions are the options of the reaper. The zero value of each field means
// its default.
type ReaperOptions struct {
	// Off turns off the reaping in the background. [Reaper.Run] and [Reaper.Reap] still
	// work.
	Off bool

	// Interval is the time between two passes; at least 10 ms, default 1 min, spread at
	// random by a tenth. Lockers on the same tables share the work: one of them makes a
	// pass, and the others see that it was made. Passes over a large table are further
	// apart: by 100 times the time that their statements take, so that these take at most a
	// hundredth of one processor of the database, but by 6 h at most. What a pass took is in
	// the database, so a Locker that begins knows it, too.
	Interval time.Duration

	// Retention is for how long a free row stays after its last use; at least 1 s, default
	// 24 h. The clock of the database can go back by this time without a fencing token
	// being repeated.
	Retention time.Duration

	// KeyRetention is for how long a key of [Locker.Once] stays complete; at least 1 s,
	// default 90 days. Keys that were begun and not completed are forgotten after the same
	// time. The shortest one of all Lockers on the same tables applies.
	KeyRetention time.Duration

	// Batch is how many rows one statement reads at most; up to 10,000, default 5,000.
	Batch int
}

func (o *ReaperOptions) config() (ReaperOptions, error) {
	if o == nil {
		o = &ReaperOptions{}
	}
	c := *o
	c.Interval = min(orDefault(o.Interval, DefaultReapInterval), forever)
	c.Retention = orDefault(o.Retention, DefaultRetention)
	c.KeyRetention = orDefault(o.KeyRetention, DefaultKeyRetention)
	if c.Batch == 0 {
		c.Batch = DefaultReapBatch
	}
	switch {
	case c.Interval < 10*time.Millisecond:
		return c, fmt.Errorf("%w: Reaper.Interval %v: must be at least 10ms", ErrInvalidOption, o.Interval)
	case c.Retention < minRetention:
		return c, fmt.Errorf("%w: Reaper.Retention %v: must be at least %v", ErrInvalidOption, o.Retention, minRetention)
	case c.KeyRetention < minRetention:
		return c, fmt.Errorf("%w: Reaper.KeyRetention %v: must be at least %v", ErrInvalidOption, o.KeyRetention, minRetention)
	case c.Batch < 0 || c.Batch > maxReapBatch:
		return c, fmt.Errorf("%w: Reaper.Batch %d: must be from 1 to %d", ErrInvalidOption, o.Batch, maxReapBatch)
	}
	return c, nil
}

// Reaper cleans up the table of a Locker. It ends the terms of crashed holders and calls
// the hook Crashed for them, and it deletes rows that were idle for longer than the
// retention, and keys that are older than theirs. A name whose holder crashed can be acquired without a reaper; the reaper
// handles the names that no caller wants any more.
//
// Any number of reapers may work at the same time. A reaper skips locked rows. It reads
// the table by its primary key, in statements that read a bounded number of rows, with
// pauses as long as the statements took. It is safe for concurrent use.
type Reaper struct {
	locker *Locker
	opts   ReaperOptions
}

// ReapReport is what one pass has done.
type ReapReport struct {
	Seen       int            // rows
	Crashed    []CrashedEvent // expired terms that the pass has ended
	Purged     int            // idle rows that were deleted
	PurgedKeys int            // keys that were deleted
	Took       time.Duration
}

// Reaper returns the reaper of the Locker, with the options of its constructor.
func (l *Locker) Reaper() *Reaper { return l.reaper }

// Run makes a pass every interval, unless another Locker on the same tables has just made
// one, until ctx ends or the Locker is closed. Every Locker does this in the background
// unless [ReaperOptions] turn it off. Run returns the cause of ctx's end, or [ErrClosed].
// It logs errors of the database and continues with the next pass.
func (r *Reaper) Run(ctx context.Context) error {
	if err := driver.CheckContext(ctx); err != nil {
		return err
	}
	for {
		pause := r.opts.Interval - r.opts.Interval/10 + r.locker.cfg.spread(r.opts.Interval/5+1)
		if err := r.locker.sleep(ctx, nil, pause); err != nil {
			return err
		}
		if err := r.runIfDue(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, ErrClosed) {
			r.locker.events.note(slog.LevelWarn, "sqllock: the reaper did not finish its pass", "error", err)
		}
	}
}

// reapShare is how many times longer the pause between passes is than their statements
// take, up to longestReapPause: a pass that took long because the database was busy must not
// be the last one for days.
const (
	reapShare        = 100
	longestReapPause = 6 * time.Hour
)

// runIfDue makes a pass if one is due. A pass of another Locker counts from its beginning,
// so half an interval keeps two Lockers apart that would follow each other.
func (r *Reaper) runIfDue(ctx context.Context) error {
	res, _, err := r.sweep(ctx, driver.SweepRequest{Every: max(r.opts.Interval/2, 1)})
	if err != nil || !res.Due {
		return err
	}
	cost, err := r.reap(ctx, new(ReapReport))
	if err != nil {
		return operatorError("reap", "", err)
	}
	pause := max(1, min(reapShare*cost, longestReapPause))
	_, _, _ = r.sweep(ctx, driver.SweepRequest{Pause: pause}) // if this fails, the next pass comes sooner
	return nil
}

// Reap makes one pass over the whole table and reports what it has done, also if it
// returns an error: that of the database, of ctx, or [ErrClosed].
func (r *Reaper) Reap(ctx context.Context) (ReapReport, error) {
	if err := driver.CheckContext(ctx); err != nil {
		return ReapReport{}, err
	}
	var rep ReapReport
	if _, err := r.reap(ctx, &rep); err != nil {
		return rep, operatorError("reap", "", err)
	}
	return rep, nil
}

// reap is Reap. It returns how long its statements took.
func (r *Reaper) reap(ctx context.Context, rep *ReapReport) (cost time.Duration, err error) {
	start := r.locker.clock.Now()
	cost, err = r.reapNames(ctx, rep)
	if err == nil && r.locker.mode.keys != nil {
		var more time.Duration
		more, err = r.purgeKeys(ctx, rep)
		cost += more
	}
	rep.Took = r.locker.clock.Now() - start
	return cost, err
}

// reapNames sweeps all names, and returns how long its statements took.
func (r *Reaper) reapNames(ctx context.Context, rep *ReapReport) (cost time.Duration, err error) {
	req := driver.SweepRequest{Limit: r.opts.Batch, Retention: r.opts.Retention}
	for {
		res, took, err := r.sweep(ctx, req)
		if err != nil {
			return cost, err
		}
		rep.Seen += res.Seen
		rep.Purged += res.Purged
		for _, c := range res.Crashed {
			rep.Crashed = append(rep.Crashed, r.locker.crashed(c.Name, c.Holder))
		}
		cost += took
		if !res.More {
			return cost, nil
		}
		req.After = res.Last
		if err := r.locker.sleep(ctx, nil, took); err != nil {
			return cost, err
		}
	}
}

// purgeKeys deletes keys that are too old, and returns how long its statements took.
func (r *Reaper) purgeKeys(ctx context.Context, rep *ReapReport) (cost time.Duration, err error) {
	for {
		purged, more, took := 0, false, time.Duration(0)
		err := r.locker.retryRepeatable(ctx, func(ctx context.Context) (err error) {
			start := r.locker.clock.Now()
			purged, more, err = r.locker.mode.keys.PurgeKeys(ctx, r.opts.KeyRetention, r.opts.Batch)
			took = r.locker.costOf(start)
			return err
		})
		rep.PurgedKeys += purged
		cost += took
		if err != nil || !more {
			return cost, err
		}
		if err := r.locker.sleep(ctx, nil, took); err != nil {
			return cost, err
		}
	}
}

// sweep cleans up after one name, again while the database says that this helps or if a part may have
// been done, and returns how long it took. What was done in a part that failed is told by the hook
// Crashed only.
func (r *Reaper) sweep(ctx context.Context, req driver.SweepRequest) (res driver.SweepResult, took time.Duration, err error) {
	err = r.locker.retryRepeatable(ctx, func(ctx context.Context) (err error) {
		start := r.locker.clock.Now()
		res, err = r.locker.mode.Sweep(ctx, req)
		took = r.locker.costOf(start)
		return err
	})
	return res, took, err
}

// costOf returns how long a statement took that began then: no longer than one may, however long this
// process was paused.
func (l *Locker) costOf(began time.Duration) time.Duration {
	return min(l.clock.Now()-began, maxStatementTimeout)
}

// noteCrash is crashed for a grant, which has mostly ended no term of a crashed holder.
func (l *Locker) noteCrash(name string, h driver.Holder) {
	if h.Acq != (driver.ID{}) {
		l.crashed(name, h)
	}
}

// crashed reports a holder whose lease has expired.
func (l *Locker) crashed(name string, h driver.Holder) CrashedEvent {
	e := newCrashedEvent(name, h)
	l.events.crashed(e)
	return e
}

func newCrashedEvent(name string, h driver.Holder) CrashedEvent {
	return CrashedEvent{Name: name, Owner: h.Owner, Label: h.Label, Token: h.Version,
		Since: time.UnixMicro(h.Since), Expired: time.UnixMicro(h.Until)}
}
