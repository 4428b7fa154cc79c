package sqllock

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Hooks are called after an event, of a lease most often, one at a time, in the order of the
// events, on a goroutine of the Locker. A hook that blocks delays later hooks and log messages,
// never a renewal. While it blocks, at most 16,384 events wait; further events are dropped,
// counted, and the count is logged. A hook that panics is logged. Hooks that are nil cost nothing.
// Waited and Queued do not count the time in which the machine sleeps.
type Hooks struct {
	Waiting    func(WaitingEvent)    // a call began to wait because the name is held
	Skipped    func(SkippedEvent)    // a call that does not wait, as TryLock, returned ErrHeld
	Failed     func(FailedEvent)     // a call returned another error and no lease
	Acquired   func(AcquiredEvent)   // a name was granted; not called for re-entries
	Renewed    func(RenewedEvent)    // a lease was renewed
	Jeopardy   func(JeopardyEvent)   // a renewal failed and is retried until the deadline
	Lost       func(LostEvent)       // the holder can no longer prove that it holds the name
	Unlocked   func(UnlockedEvent)   // the last holder of a lease unlocked it, or gave it away
	HandedOver func(HandedOverEvent) // an Unlock handed the name over to the next waiter
	ClockJump  func(ClockJumpEvent)  // the database's clock was set
	Crashed    func(CrashedEvent)    // the lease of any holder had expired and was ended by this Locker
	Statement  func(StatementEvent)  // the database has answered a statement of the Locker, or it has failed
}

func (h *Hooks) empty() bool { return reflect.ValueOf(h).Elem().IsZero() }

// LeaseInfo says which lease an event is about.
type LeaseInfo struct {
	Name   string
	Owner  string
	Token  int64
	Shared bool
	Permit bool // of a Semaphore, with the Slot
	Slot   int
	TTL    time.Duration
}

// WaitingEvent reports that a call has found the name held and waits for it. It comes once
// for a call, or for each name that a LockAll waits for. The call may get the name later, see
// [AcquiredEvent], or give up. A call that never learns who holds the name, because the
// database does not answer, does not report it.
type WaitingEvent struct {
	Name   string
	Owner  string     // of the call that waits
	Shared bool       // the call wants to share the name
	Permit bool       // the call wants a permit of a Semaphore
	Held   *HeldError // who held the name, as far as that is known
}

// SkippedEvent reports that a call that does not wait has found the name held.
type SkippedEvent struct {
	Name   string
	Owner  string // of the call that was skipped
	Shared bool   // the call wanted to share the name
	Permit bool   // the call wanted a permit of a Semaphore
	Waited time.Duration
	Held   *HeldError
}

// FailedEvent reports that a call that sent a request, or would have, returns an error and no
// lease, and was not skipped: its wait is over, its context has ended, or the database refuses
// it. A LockAll reports it for the name that it waited for, also if it begins anew. A call with
// arguments that cannot be does not report it.
type FailedEvent struct {
	Name   string
	Owner  string        // of the call
	Shared bool          // the call wanted to share the name
	Permit bool          // the call wanted a permit of a Semaphore
	Waited time.Duration // from the call on
	Queued time.Duration // from the hook Waiting on; 0 if that was not called
	Err    error         // what the call returned
}

// AcquiredEvent reports a grant.
type AcquiredEvent struct {
	LeaseInfo
	Waited   time.Duration // from the call to the grant
	Queued   time.Duration // from the hook Waiting to the grant; 0 if the name was not held by others
	Attempts int           // requests sent
}

// RenewedEvent reports that a lease was renewed. Nothing is logged of it.
type RenewedEvent struct {
	LeaseInfo
	Took time.Duration // from the request to the reply
}

// JeopardyEvent reports a renewal that failed. It comes once for a lease, until a renewal
// succeeds again.
type JeopardyEvent struct {
	LeaseInfo
	Err       error
	Remaining time.Duration // until the lease is lost
}

// LostEvent reports a loss.
type LostEvent struct {
	LeaseInfo
	Err  *LostError
	Held time.Duration // from the grant to the loss
}

// UnlockedEvent reports an Unlock that released the name.
type UnlockedEvent struct {
	LeaseInfo
	Err  error // what Unlock returned
	Held time.Duration

	// Detached says that [Lease.Detach] has given the term away, or may have if there is an Err.
	Detached bool
}

// HandedOverEvent reports that an Unlock, of the lease that LeaseInfo describes, has handed
// the name over to the next waiter of any process, or to several readers together. It is
// reported in unique mode only: in the other modes the server chooses who is next. An
// Unlock after [Lease.UnlockTx], or one to which the database did not reply, does not know
// whether it has handed the name over.
type HandedOverEvent struct {
	LeaseInfo
	Waiters int // how many got the name
}

// ClockJumpEvent reports that the clock of the database has jumped between two renewals, or of one
// database of a quorum between two statements, compared with the monotonic clock of this machine.
// While a lease was held, a jump forward may have let it expire early. A jump backward keeps the
// names of crashed holders for longer.
type ClockJumpEvent struct {
	Jump     time.Duration // at least this far; positive is forward
	Database int           // of a quorum: its index in the databases of NewQuorum
}

// CrashedEvent reports that a holder, of any Locker, neither unlocked nor renewed its
// lease until the lease expired. Of all Lockers on the same tables one reports it: the one
// that acquires the name next, or whose reaper finds it first. No Locker reports it if
// that one crashes at this moment, or gets no reply from the database; and if the server
// crashes then, it may be reported twice. Times are on the clock of the database.
type CrashedEvent struct {
	Name    string
	Owner   string
	Label   string
	Token   int64
	Since   time.Time
	Expired time.Time
}

// StatementEvent reports that the database has answered the Locker, or has not. A statement is
// one of SQL, or one short transaction, for all requests that share it. The modes that keep locks
// in sessions may run several, each in its session; a quorum runs one in each database.
//
// Statements in transactions of yours are not reported, and neither are those that listen, read
// or write the keys of [Locker.Once], or set the number of permits.
type StatementEvent struct {
	// Operation is what the requests want: acquire, renew, release, read, revoke, sweep or
	// set value. What waiters send to keep their places is acquire.
	Operation string
	Requests  int           // that share the statement: the size of the batch
	Took      time.Duration // from the call of the driver to its reply, with the wait for a connection
	Err       error         // of the statement; nil if single requests have failed
}

// maxEvents is how many events wait for a slow hook before some are dropped.
const maxEvents = 16384

// events runs hooks and log handlers on its own goroutine.
type events struct {
	hooks   Hooks
	logger  *slog.Logger
	verbose bool // somebody has asked for what is told: what is routine is told too

	queue   chan func()
	busy    atomic.Bool // a hook or handler runs
	dropped atomic.Int64
	stop    chan struct{}
	done    chan struct{}
	once    sync.Once
}

// newEvents starts the goroutine, which close ends. A nil logger means defaultLog.
func newEvents(logger *slog.Logger, hooks Hooks) *events {
	e := &events{
		hooks:   hooks,
		logger:  logger,
		verbose: logger != nil || !hooks.empty(),
		queue:   make(chan func(), maxEvents),
		stop:    make(chan struct{}),
		done:    make(chan struct{}),
	}
	if logger == nil {
		e.logger = slog.New(defaultLog{})
	}
	go e.run()
	return e
}

func (e *events) run() {
	defer close(e.done)
	for {
		select {
		case f := <-e.queue:
			e.call(f)
		case <-e.stop:
			for len(e.queue) > 0 {
				e.call(<-e.queue)
			}
			return
		}
	}
}

func (e *events) call(f func()) {
	e.busy.Store(true)
	defer e.busy.Store(false)
	defer func() {
		if p := recover(); p != nil {
			e.logPanic(p)
		}
	}()
	if n := e.dropped.Swap(0); n > 0 {
		e.logger.Warn("sqllock: events dropped because a hook or log handler blocks", "count", n)
	}
	f()
}

// logPanic also works if it was the log handler that panicked.
func (e *events) logPanic(p any) {
	defer func() { _ = recover() }()
	e.logger.Error("sqllock: a hook or log handler panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
}

func (e *events) emit(f func()) {
	select {
	case e.queue <- f:
	default:
		e.dropped.Add(1)
	}
}

// close delivers the waiting events and ends the goroutine. If a hook or handler still
// runs when ctx has ended, close leaves it behind with the events that wait for it, and
// returns an error. Events after close are dropped.
func (e *events) close(ctx context.Context) error {
	e.once.Do(func() { close(e.stop) })
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
	e.emit(func() { e.logger.Log(context.Background(), level, msg, args...) })
}

func (e *events) waiting(ev WaitingEvent) {
	tell(e, e.hooks.Waiting, ev, slog.LevelDebug, "sqllock: waiting", func(ev WaitingEvent) []any {
		return []any{"name", ev.Name, "owner", ev.Owner, "held", ev.Held}
	})
}

func (e *events) skipped(ev SkippedEvent) {
	tell(e, e.hooks.Skipped, ev, slog.LevelDebug, "sqllock: skipped", func(ev SkippedEvent) []any {
		return []any{"name", ev.Name, "owner", ev.Owner, "held", ev.Held}
	})
}

func (e *events) failed(ev FailedEvent) {
	tell(e, e.hooks.Failed, ev, slog.LevelDebug, "sqllock: not acquired", func(ev FailedEvent) []any {
		return []any{"name", ev.Name, "owner", ev.Owner, "waited", ev.Waited, "error", ev.Err}
	})
}

// renewed costs nothing unless somebody counts renewals.
func (e *events) renewed(t *term, took time.Duration) {
	if hook := e.hooks.Renewed; hook != nil {
		ev := RenewedEvent{LeaseInfo: t.info(), Took: took}
		e.emit(func() { hook(ev) })
	}
}

// statement is called only if there is the hook. Nothing is logged.
func (e *events) statement(ev StatementEvent) {
	e.emit(func() { e.hooks.Statement(ev) })
}

func (e *events) acquired(ev AcquiredEvent) {
	tell(e, e.hooks.Acquired, ev, slog.LevelDebug, "sqllock: acquired", func(ev AcquiredEvent) []any {
		return []any{"name", ev.Name, "owner", ev.Owner, "token", ev.Token, "waited", ev.Waited, "queued", ev.Queued}
	})
}

func (e *events) jeopardy(ev JeopardyEvent) {
	tell(e, e.hooks.Jeopardy, ev, slog.LevelWarn, "sqllock: a renewal failed, the lease is in jeopardy", func(ev JeopardyEvent) []any {
		return []any{"name", ev.Name, "token", ev.Token, "remaining", ev.Remaining, "error", ev.Err}
	})
}

func (e *events) lost(ev LostEvent) {
	tell(e, e.hooks.Lost, ev, slog.LevelError, "sqllock: lost", func(ev LostEvent) []any {
		return []any{"name", ev.Name, "token", ev.Token, "held", ev.Held, "error", ev.Err}
	})
}

func (e *events) unlocked(ev UnlockedEvent) {
	tell(e, e.hooks.Unlocked, ev, slog.LevelDebug, "sqllock: unlocked", func(ev UnlockedEvent) []any {
		return []any{"name", ev.Name, "owner", ev.Owner, "token", ev.Token, "held", ev.Held, "detached", ev.Detached, "error", ev.Err}
	})
}

func (e *events) handedOver(ev HandedOverEvent) {
	tell(e, e.hooks.HandedOver, ev, slog.LevelDebug, "sqllock: handed over", func(ev HandedOverEvent) []any {
		return []any{"name", ev.Name, "owner", ev.Owner, "token", ev.Token, "waiters", ev.Waiters}
	})
}

func (e *events) crashed(ev CrashedEvent) {
	tell(e, e.hooks.Crashed, ev, slog.LevelInfo, "sqllock: a holder has let its lease expire", func(ev CrashedEvent) []any {
		return []any{"name", ev.Name, "label", ev.Label, "token", ev.Token, "since", ev.Since, "expired", ev.Expired}
	})
}

func (e *events) clockJump(ev ClockJumpEvent) {
	tell(e, e.hooks.ClockJump, ev, slog.LevelWarn, "sqllock: the clock of the database jumped", func(ev ClockJumpEvent) []any {
		return []any{"jump", ev.Jump, "database", ev.Database}
	})
}

// tell logs an event and calls its hook. The arguments of the message are made there, and only if
// it is logged: the caller of Lock or Unlock pays for one closure.
func tell[E any](e *events, hook func(E), ev E, level slog.Level, msg string, args func(E) []any) {
	e.emit(func() {
		if e.logger.Enabled(context.Background(), level) {
			e.logger.Log(context.Background(), level, msg, args(ev)...)
		}
		if hook != nil {
			hook(ev)
		}
	})
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
