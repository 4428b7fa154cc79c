package sqllock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// insist calls f, which runs one statement, until the database does not ask to be
// asked again.
func (l *Locker) retry(ctx context.Context, f func(context.Context) error) error {
	if !l.inflight.begin() {
		return ErrClosed
	}
	defer l.inflight.done()
	defer l.keeper.noteUse()
	for pause := newBackoff(&l.cfg); ; {
		err := l.withTimeout(ctx, l.cfg.timeout(MaxTTL), f)
		if err == nil || l.mode.Classify(err) != driver.Again {
			return err
		}
		if end := l.sleep(ctx, nil, pause.next()); end != nil {
			return fmt.Errorf("%w; the database: %w", end, err)
		}
	}
}

// rereads is how often a statement that changes nothing is sent once more if its
// connection breaks.
const maxReadRetries = 3

// reread is insist for a statement that changes nothing: it is also sent again if its
// connection breaks, as one of the pool does that the server has ended while it was idle.
func (l *Locker) retryRead(ctx context.Context, f func(context.Context) error) error {
	err := l.retry(ctx, f)
	for n := 0; n < maxReadRetries && l.connectionBroke(ctx, err); n++ {
		err = l.retry(ctx, f)
	}
	return err
}

// broke reports that a connection broke under a statement, which has not run out of time.
func (l *Locker) connectionBroke(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && !errors.Is(err, ErrClosed) && !errors.Is(err, context.DeadlineExceeded) &&
		l.mode.Classify(err) == driver.Unclear
}

// bounded calls f with a context that ends with ctx, with the Locker, or when one
// statement has taken too long.
func (l *Locker) withTimeout(ctx context.Context, timeout time.Duration, f func(context.Context) error) error {
	if ctx.Err() != nil {
		return endOf(ctx)
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	defer context.AfterFunc(l.base, cancel)()
	err := f(limited)
	if err != nil && ctx.Err() != nil && !errors.Is(err, ctx.Err()) { // which database/sql does not always say
		err = fmt.Errorf("%w: %w", endOf(ctx), err)
	}
	return err
}

// sleep waits for d, a wake, the end of ctx or of the Locker.
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

// pauses are the growing, jittered pauses between the attempts of one waiter.
type backoff struct{ pause, longest time.Duration }

func newBackoff(c *config) *backoff { return &backoff{c.retryMin, c.retryMax} }

func (p *backoff) next() time.Duration {
	d := p.pause
	p.pause = min(2*p.pause, p.longest)
	return d/2 + rand.N(d/2+1)
}

// nap waits for d, or less if ctx ends.
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
