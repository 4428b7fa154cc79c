package sqllock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/clock"
)

// retry calls f, which runs one statement, and calls it again while the database says that
// this helps.
func (l *Locker) retry(ctx context.Context, f func(context.Context) error) error {
	if !l.inflight.begin() {
		return ErrClosed
	}
	defer l.inflight.done()
	defer l.keeper.noteUse()
	for backoff := newBackoff(&l.cfg); ; {
		err := l.withTimeout(ctx, l.cfg.timeout(MaxTTL), f)
		if err == nil || l.mode.Classify(err) != driver.Again {
			return err
		}
		if end := l.sleep(ctx, nil, backoff.next()); end != nil {
			return fmt.Errorf("%w; the database: %w", end, err)
		}
	}
}

// maxRepeats is how often a statement that may be repeated is sent again after its
// connection broke.
const maxRepeats = 3

// retryRepeatable is retry for a statement that does no harm if it runs twice, or in part before: one
// that only reads, or cleans up. It also sends the statement again if the connection breaks: the
// server may have ended an idle connection of the pool.
func (l *Locker) retryRepeatable(ctx context.Context, f func(context.Context) error) error {
	err := l.retry(ctx, f)
	for n := 0; n < maxRepeats && l.connectionBroke(ctx, err); n++ {
		err = l.retry(ctx, f)
	}
	return err
}

// connectionBroke reports whether err says that the connection broke, and not that the time
// was over.
func (l *Locker) connectionBroke(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && !errors.Is(err, ErrClosed) && !errors.Is(err, context.DeadlineExceeded) &&
		l.mode.Classify(err) == driver.Unclear
}

// withTimeout calls f with a context that ends with ctx, with the Locker, or after timeout.
func (l *Locker) withTimeout(ctx context.Context, timeout time.Duration, f func(context.Context) error) error {
	if ctx.Err() != nil {
		return endOf(ctx)
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	defer context.AfterFunc(l.base, cancel)()
	err := f(limited)
	if err != nil && ctx.Err() != nil && !errors.Is(err, ctx.Err()) { // database/sql does not always say so
		err = fmt.Errorf("%w: %w", endOf(ctx), err)
	}
	return err
}

// sleep waits for d or for wake. It returns an error if ctx ends or the Locker is closed.
func (l *Locker) sleep(ctx context.Context, wake <-chan struct{}, d time.Duration) error {
	var over <-chan time.Time
	if d != never {
		t := time.NewTimer(d)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-over:
		return nil
	case <-wake:
		return nil
	case <-ctx.Done():
		return endOf(ctx)
	case <-l.inflight.closing:
		return ErrClosed
	}
}

// backoff yields the growing, jittered pauses between the requests of one waiter.
type backoff struct {
	pause, longest time.Duration
	spread         clock.Spread
}

func newBackoff(c *config) *backoff { return &backoff{c.retryMin, c.retryMax, c.spread} }

func (b *backoff) next() time.Duration {
	d := b.pause
	b.pause = min(2*b.pause, b.longest)
	return d/2 + b.spread(d/2+1)
}

// sleep waits for d. It returns an error if ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
