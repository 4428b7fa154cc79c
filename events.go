package sqllock

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// maxEvents is how many events wait for a slow hook before some are dropped.
const maxEvents = 16384

// maxKept is for how many events the memory is kept when they have been delivered.
const maxKept = 2048

// events runs hooks and log handlers on its own goroutine.
//
// Those that lock and unlock pay for a copy of the event, no more: a channel would wake the
// goroutine for each of them.
type events struct {
	hooks   Hooks
	logger  *slog.Logger
	logged  bool // the application has given a logger: what is routine is logged too
	verbose bool // somebody has asked for what is routine

	undelivered atomic.Int64 // of the batch that is being delivered
	busy        atomic.Bool  // a batch is being delivered
	dropped     atomic.Int64
	done        chan struct{}

	mu      sync.Mutex
	pending []event
	taken   int // the size of the batch that is being delivered
	stopped bool
	wake    sync.Cond // there is an event, or no more will come
}

// event is an Acquired or an Unlocked, or any other event as a function. Those two come with
// each lease, so they are passed by value: they cost no memory of their own.
type event struct {
	call func() // unless it is one of the two

	unlocked       bool // and not acquired
	detached       bool
	lease          LeaseInfo
	waited, queued time.Duration
	held           time.Duration
	requests       int
	err            error
}

// newEvents starts the goroutine, which close ends. A nil logger means defaultLog.
func newEvents(logger *slog.Logger, hooks Hooks) *events {
	e := &events{
		hooks:   hooks,
		logger:  logger,
		logged:  logger != nil,
		verbose: logger != nil || !hooks.empty(),
		done:    make(chan struct{}),
	}
	e.wake.L = &e.mu
	if logger == nil {
		e.logger = slog.New(defaultLog{})
	}
	go e.run(nil)
	return e
}

// run delivers a batch, and then all events that come. A hook that ends the goroutine, as t.FailNow
// does, does not end the delivery: the rest is delivered by another goroutine.
func (e *events) run(batch []event) {
	delivered, over := 0, false
	defer func() {
		if !over {
			go e.run(batch[delivered:])
			return
		}
		close(e.done)
	}()
	for {
		e.deliver(batch, &delivered)
		if batch = e.take(batch); len(batch) == 0 {
			over = true
			return
		}
		delivered = 0
	}
}

// take waits for events and returns all of them, or none after close. The events to come get the
// memory of the batch before.
func (e *events) take(before []event) []event {
	clear(before)
	if cap(before) > maxKept {
		before = nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.taken = 0
	if len(e.pending) == 0 && !e.stopped {
		e.waitForMore()
	}
	batch := e.pending
	e.pending, e.taken = before[:0], len(batch)
	e.undelivered.Store(int64(len(batch)))
	return batch
}

// waitForMore waits for an event, and then lets those run first who are about to add another one:
// callers whose names were granted by one statement. The caller holds mu.
func (e *events) waitForMore() {
	for len(e.pending) == 0 && !e.stopped {
		e.wake.Wait()
	}
	if e.stopped {
		return
	}
	e.mu.Unlock()
	runtime.Gosched()
	e.mu.Lock()
}

// deliver delivers a batch, and counts what it has begun to deliver.
func (e *events) deliver(batch []event, delivered *int) {
	if len(batch) == 0 {
		return
	}
	e.busy.Store(true)
	defer e.busy.Store(false)
	for i := range batch {
		e.undelivered.Store(int64(len(batch) - i - 1))
		*delivered = i + 1
		e.tell(&batch[i])
	}
}

func (e *events) tell(ev *event) {
	returned := false
	defer func() {
		if p := recover(); p != nil {
			e.logPanic(p)
		} else if !returned {
			e.logPanic("it has ended its goroutine")
		}
	}()
	if e.dropped.Load() > 0 {
		e.logger.Warn("sqllock: events dropped because a hook or log handler blocks", "count", e.dropped.Swap(0))
	}
	switch {
	case ev.call != nil:
		ev.call()
	case ev.unlocked:
		e.tellUnlocked(UnlockedEvent{LeaseInfo: ev.lease, Err: ev.err, Held: ev.held, Detached: ev.detached})
	default:
		e.tellAcquired(AcquiredEvent{LeaseInfo: ev.lease, Waited: ev.waited, Queued: ev.queued, Attempts: ev.requests})
	}
	returned = true
}

// logPanic also works if it was the log handler that panicked.
func (e *events) logPanic(p any) {
	defer func() { _ = recover() }()
	e.logger.Error("sqllock: a hook or log handler panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
}

// emit adds a copy of an event to those that wait, unless they are too many.
func (e *events) emit(ev *event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := len(e.pending)
	switch {
	case e.stopped:
		return
	case n+e.taken >= maxEvents && n+int(e.undelivered.Load()) >= maxEvents:
		e.dropped.Add(1)
		return
	}
	e.pending = append(e.pending, *ev)
	if n == 0 {
		e.wake.Signal()
	}
}

// close delivers the waiting events and ends the goroutine. If a hook or handler still
// runs when ctx has ended, close leaves it behind with the events that wait for it, and
// returns an error. Events after close are dropped.
func (e *events) close(ctx context.Context) error {
	e.mu.Lock()
	e.stopped = true
	e.wake.Signal()
	e.mu.Unlock()
	select {
	case <-e.done:
		return nil
	case <-ctx.Done():
	}
	for !e.busy.Load() { // the goroutine has yet to see that it is stopped
		select {
		case <-e.done:
			return nil
		case <-time.After(time.Millisecond):
		}
	}
	return fmt.Errorf("sqllock: close: a hook or log handler is still running: %w", context.Cause(ctx))
}

// note logs a message that belongs to no lease.
func (e *events) note(level slog.Level, msg string, args ...any) {
	e.emit(&event{call: func() { e.logger.Log(context.Background(), level, msg, args...) }})
}

func (e *events) waiting(ev WaitingEvent) {
	tellLater(e, e.hooks.Waiting, ev, slog.LevelDebug, "sqllock: waiting", func(ev WaitingEvent) []any {
		return []any{"name", ev.Name, "owner", ev.Owner, "held", ev.Held}
	})
}

func (e *events) skipped(ev SkippedEvent) {
	tellLater(e, e.hooks.Skipped, ev, slog.LevelDebug, "sqllock: skipped", func(ev SkippedEvent) []any {
		return []any{"name", ev.Name, "owner", ev.Owner, "held", ev.Held}
	})
}

func (e *events) failed(ev FailedEvent) {
	tellLater(e, e.hooks.Failed, ev, slog.LevelDebug, "sqllock: not acquired", func(ev FailedEvent) []any {
		return []any{"name", ev.Name, "owner", ev.Owner, "waited", ev.Waited, "error", ev.Err}
	})
}

func (e *events) reentered(ev ReenteredEvent) {
	tellLater(e, e.hooks.Reentered, ev, slog.LevelDebug, "sqllock: re-entered", func(ev ReenteredEvent) []any {
		return []any{"name", ev.Name, "owner", ev.Owner, "token", ev.Token, "waited", ev.Waited}
	})
}

// renewed costs nothing unless somebody counts renewals.
func (e *events) renewed(t *term, took time.Duration) {
	if hook := e.hooks.Renewed; hook != nil {
		ev := RenewedEvent{LeaseInfo: t.info(), Took: took}
		e.emit(&event{call: func() { hook(ev) }})
	}
}

// statement is called only if there is the hook. Nothing is logged.
func (e *events) statement(ev StatementEvent) {
	e.emit(&event{call: func() { e.hooks.Statement(ev) }})
}

// acquired takes what nobody asks for no further than this, and so does unlocked.
func (e *events) acquired(t *term, waited, queued stopwatch, requests int) {
	if e.logged || e.hooks.Acquired != nil {
		e.emit(&event{lease: t.info(), waited: waited.elapsed(), queued: queued.elapsed(), requests: requests})
	}
}

func (e *events) unlocked(t *term, held time.Duration, detached bool, err error) {
	if e.logged || e.hooks.Unlocked != nil {
		e.emit(&event{unlocked: true, lease: t.info(), held: held, detached: detached, err: err})
	}
}

func (e *events) jeopardy(ev JeopardyEvent) {
	tellLater(e, e.hooks.Jeopardy, ev, slog.LevelWarn, "sqllock: a renewal failed, the lease is in jeopardy", func(ev JeopardyEvent) []any {
		return []any{"name", ev.Name, "token", ev.Token, "remaining", ev.Remaining, "error", ev.Err}
	})
}

func (e *events) lost(ev LostEvent) {
	tellLater(e, e.hooks.Lost, ev, slog.LevelError, "sqllock: lost", func(ev LostEvent) []any {
		return []any{"name", ev.Name, "token", ev.Token, "held", ev.Held, "error", ev.Err}
	})
}

func (e *events) handedOver(ev HandedOverEvent) {
	tellLater(e, e.hooks.HandedOver, ev, slog.LevelDebug, "sqllock: handed over", func(ev HandedOverEvent) []any {
		return []any{"name", ev.Name, "owner", ev.Owner, "token", ev.Token, "waiters", ev.Waiters}
	})
}

func (e *events) crashed(ev CrashedEvent) {
	tellLater(e, e.hooks.Crashed, ev, slog.LevelInfo, "sqllock: a holder has let its lease expire", func(ev CrashedEvent) []any {
		return []any{"name", ev.Name, "label", ev.Label, "token", ev.Token, "since", ev.Since, "expired", ev.Expired}
	})
}

func (e *events) clockJump(ev ClockJumpEvent) {
	tellLater(e, e.hooks.ClockJump, ev, slog.LevelWarn, "sqllock: the clock of the database jumped", func(ev ClockJumpEvent) []any {
		return []any{"jump", ev.Jump, "database", ev.Database}
	})
}

func (e *events) tellAcquired(ev AcquiredEvent) {
	tell(e, e.hooks.Acquired, ev, slog.LevelDebug, "sqllock: acquired", func(ev AcquiredEvent) []any {
		return []any{"name", ev.Name, "owner", ev.Owner, "token", ev.Token, "waited", ev.Waited, "queued", ev.Queued}
	})
}

func (e *events) tellUnlocked(ev UnlockedEvent) {
	tell(e, e.hooks.Unlocked, ev, slog.LevelDebug, "sqllock: unlocked", func(ev UnlockedEvent) []any {
		return []any{"name", ev.Name, "owner", ev.Owner, "token", ev.Token, "held", ev.Held, "detached", ev.Detached, "error", ev.Err}
	})
}

// tell logs an event and calls its hook. The arguments of the message are made only if it is
// logged.
func tell[E any](e *events, hook func(E), ev E, level slog.Level, msg string, args func(E) []any) {
	if e.logger.Enabled(context.Background(), level) {
		e.logger.Log(context.Background(), level, msg, args(ev)...)
	}
	if hook != nil {
		hook(ev)
	}
}

// tellLater is tell on the goroutine of the events.
func tellLater[E any](e *events, hook func(E), ev E, level slog.Level, msg string, args func(E) []any) {
	e.emit(&event{call: func() { tell(e, hook, ev, level, msg, args) }})
}

// defaultLog passes warnings and errors on to slog.Default, as it is set at that time.
type defaultLog struct{}

var _ slog.Handler = defaultLog{}

func (defaultLog) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && slog.Default().Enabled(ctx, level)
}

func (defaultLog) Handle(ctx context.Context, r slog.Record) error {
	return slog.Default().Handler().Handle(ctx, r)
}

func (d defaultLog) WithAttrs([]slog.Attr) slog.Handler { return d }
func (d defaultLog) WithGroup(string) slog.Handler      { return d }
