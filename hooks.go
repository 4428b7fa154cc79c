package sqllock

import (
	"reflect"
	"time"
)

// Hooks are called after an event, of a lease most often, one at a time, in the order of the
// events, on a goroutine of the Locker. A hook that blocks delays later hooks and log messages,
// never a renewal. While it blocks, at most 16,384 events wait; further events are dropped,
// counted, and the count is logged. A hook that panics is logged. Hooks that are nil cost nothing.
// [Locker.Close] waits for the hooks, so a hook that ends the Locker calls it on another goroutine.
// Waited and Queued do not count the time in which the machine sleeps.
type Hooks struct {
	Waiting    func(WaitingEvent)    // a call began to wait because the name is held
	Skipped    func(SkippedEvent)    // a call that does not wait, as TryLock, returned ErrHeld
	Failed     func(FailedEvent)     // a call returned another error and no lease
	Acquired   func(AcquiredEvent)   // a name was granted; not called for re-entries
	Reentered  func(ReenteredEvent)  // a call that had waited re-entered a lease of its owner
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
// for a call, or for each name that a LockAll waits for. One of [AcquiredEvent], [ReenteredEvent]
// and [FailedEvent] ends the wait. A call that never learns who holds the name, because the
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
// arguments that cannot be does not report it, nor does one whose context had ended before, Adopt, a
// TryLockAll that the database refuses, Campaign while it takes a term of its Identity over, and
// LockTx and the like. An Acquire during a Resize may report it and go on.
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

// ReenteredEvent reports that a call that waited has re-entered a lease which another call of its
// owner got meanwhile. Shared and Permit say what the call wanted, as its WaitingEvent did: the
// lease may be exclusive although Shared is true. The event may come before the AcquiredEvent of
// that lease. Re-entries that do not wait are not reported. No UnlockedEvent is about it.
type ReenteredEvent struct {
	LeaseInfo
	Waited time.Duration // from the call on
	Queued time.Duration // from the hook Waiting on
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

// LostEvent reports a loss, also one that only Unlock has found: then an [UnlockedEvent] with the
// error follows. Otherwise a lost term has no UnlockedEvent.
type LostEvent struct {
	LeaseInfo
	Err  *LostError
	Held time.Duration // from the grant to the loss
}

// UnlockedEvent reports the last Unlock of a term. If there is an Err, the name may still be held.
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
