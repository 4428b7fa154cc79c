package sqllock

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// ears hear from the database whose turn has come, where it can tell. They take one
// connection of the pool, from the first waiter on until nobody has waited for a
// while. Guarded by tickets.mu.
type ears struct {
	deaf    bool // the database cannot push, or the pool is too small
	open    bool
	hearing bool
	used    time.Duration // when somebody waited last
	cancel  context.CancelFunc
}

const (
	// lingering is how long the ears stay open when nobody waits any more.
	lingering = 10 * time.Second
	// minPush is how many connections a pool must be able to open for one of them to
	// be used for nothing but to listen.
	minPush = 4
	// maxDeaf is the longest pause between two tries to listen.
	maxDeaf = 5 * time.Second
)

// errNoPush says that a database has no way to push.
var errNoPush = errors.New("sqllock: the database cannot push")

// listenTo opens the ears, unless they are; the caller holds mu.
func (e *ears) listenTo(t *tickets, now time.Duration) {
	e.used = now
	if e.deaf || e.open {
		return
	}
	ctx, cancel := context.WithCancel(t.l.base)
	e.open, e.cancel = true, cancel
	t.wg.Go(func() {
		defer cancel()
		t.listen(ctx)
	})
}

// linger reports whether the ears stay open while nobody waits, and closes them if
// not; the caller holds mu.
func (e *ears) linger(now time.Duration) bool {
	if !e.open {
		return false
	}
	if now-e.used < lingering {
		return true
	}
	e.cancel()
	e.open, e.hearing = false, false
	return false
}

// listen goes on until ctx ends or the database turns out not to be able to push.
// Meanwhile, and while a connection is lost, names are looked at instead.
func (t *tickets) listen(ctx context.Context) {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, maxDeaf) {
		began := t.l.clock.Now()
		err := t.mode.Listen(ctx, func(acq driver.ID) { t.heard(ctx, acq) })
		if !t.unheard(ctx, err) || nap(ctx, pause) != nil {
			return
		}
		if t.l.clock.Now()-began > maxDeaf {
			pause = 100 * time.Millisecond
		}
	}
}

// heard looks at the name that a waiter has now, it seems. From the first call on,
// with the zero ID, the database tells; what it would have told before is looked up.
func (t *tickets) heard(ctx context.Context, acq driver.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	now := t.l.clock.Now()
	if acq == (driver.ID{}) {
		t.poll.hurry(t.l.cfg.pollMin(), now)
		t.poll.last = true
		t.ears.hearing = true
	}
	switch x := t.all[acq]; {
	case x == nil:
	case x.req.Shared: // the row does not say who shares it
		t.plan(x, now)
	default:
		if t.poll.told == nil {
			t.poll.told = make(map[string]struct{})
		}
		t.poll.told[x.req.Name] = struct{}{}
	}
	t.kick()
}

// unheard notes that nothing is heard any more, and why. It reports whether to try
// again.
func (t *tickets) unheard(ctx context.Context, err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if ctx.Err() != nil {
		return false
	}
	t.ears.hearing = false
	t.poll.hurry(t.l.cfg.pollMin(), t.l.clock.Now())
	t.kick()
	if !errors.Is(err, errNoPush) && !errors.Is(err, driver.ErrUnsupported) {
		t.l.events.note(slog.LevelDebug, "sqllock: waiters are not told of their turn by the database, which is asked instead", "error", err)
		return true
	}
	t.ears.deaf, t.ears.open = true, false
	return false
}
