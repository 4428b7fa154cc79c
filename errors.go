package sqllock

import (
	"errors"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// Errors that the methods of this package return, mostly wrapped. Test for them
// with errors.Is.
var (
	// ErrHeld says that another caller holds the name. Returned by the methods whose names
	// begin with Try, except TryDo, which returns false, and by Lock, RLock, LockAll, RLockAll,
	// Do, Once and Acquire when [Wait] or [Tries] are used up; always as a [*HeldError].
	ErrHeld = errors.New("sqllock: held")

	// ErrNotHeld says that the lease was unlocked before, or that a name is free. Returned by
	// Unlock, Guard, InTx, UnlockTx, UnlockInTx and Detach, by Do, TryDo and Once if the
	// function has unlocked the lease, by ForceUnlock if there is nothing to end, by
	// ForceUnlockTerm also if a later term holds the name, and by Adopt if there is nothing to
	// adopt.
	ErrNotHeld = errors.New("sqllock: not held")

	// ErrLost says that the holder could no longer prove that it holds the name. Returned
	// by Unlock, Do, TryDo, Once, Guard, InTx, UnlockTx, UnlockInTx and Detach, by Campaign,
	// Proclaim, Resign and Lease of an Election, and by the methods that lock if the grant
	// came too late or their context carries a lost lease; always as a [*LostError].
	ErrLost = errors.New("sqllock: lost")

	// ErrFenced says that a lease, or a token, is no longer the current one. Returned by
	// Guard, InTx, UnlockTx and UnlockInTx, by their twins in lockpg, and by the functions
	// named Fence. It is the same error as [driver.ErrFenced].
	ErrFenced = driver.ErrFenced

	// ErrGuarded says that the name is not free yet, because a transaction that guards the
	// lease is still open or, on SQLite, because another connection writes. The name is
	// released in the background when that has ended. Returned by Unlock, Do, TryDo and Once,
	// and by Resign of an Election.
	//
	// UnlockTx and UnlockInTx return it if they have ended nothing, because another transaction
	// guards the lease or has locked the row of the name. Detach returns it if a transaction
	// that guards the lease was open all the time. After these three the lease goes on.
	ErrGuarded = errors.New("sqllock: guarded")

	// ErrDone says that the key of a [Run] is complete already. Returned by Run.InTx.
	ErrDone = errors.New("sqllock: done already")

	// ErrCampaigning says that a Campaign or a Run of the same Election is in progress.
	// Returned by both, before any SQL.
	ErrCampaigning = errors.New("sqllock: campaigning already")

	// ErrLeading says that the candidate leads already. Returned by Campaign and Run,
	// before any SQL.
	ErrLeading = errors.New("sqllock: leading already")

	// ErrNotLeader says that the candidate does not lead. Returned by Resign, Proclaim
	// and Lease of an Election, before any SQL, and by Proclaim after a statement if the
	// candidate has resigned meanwhile.
	ErrNotLeader = errors.New("sqllock: not the leader")

	// ErrNoLeader says that the name has no leader. Returned by Leader and RequestResign.
	ErrNoLeader = errors.New("sqllock: no leader")

	// ErrResignRequested is the cause of the context of a leader's lease after a
	// RequestResign, if the leader listens for it.
	ErrResignRequested = errors.New("sqllock: resign requested")

	// ErrResignRefused says that the leader was asked to resign and leads on. Returned by
	// RequestResign.
	ErrResignRefused = errors.New("sqllock: resign refused")

	// ErrDeadlock says that Lock waited for a holder that itself waits, perhaps through
	// others, for a lease that the context of this call carries, and that this call was
	// the last of them to wait. The error names who waits for what. Returned by Lock,
	// RLock, LockAll, RLockAll, Do, Once, Acquire, and Campaign and Run of an Election, in
	// unique mode.
	ErrDeadlock = errors.New("sqllock: deadlock")

	// ErrUpgrade says that the owner holds the name shared and asked for it exclusively, or
	// holds a permit of it. To wait for the other readers while being a reader could take for
	// ever: unlock first. Returned by Lock, TryLock, LockAll, TryLockAll, Do and TryDo, and
	// beside a permit also by RLock, TryRLock, RLockAll and TryRLockAll.
	ErrUpgrade = errors.New("sqllock: no upgrade")

	// ErrPermits says that the name has another number of permits than the [Semaphore].
	// Returned by Acquire, TryAcquire and Do of a Semaphore; always as a [*PermitsError].
	ErrPermits = errors.New("sqllock: another number of permits")

	// ErrTooOld says that a transaction's snapshot is older than the first use of the
	// name, so that it cannot see the row to lock. A new transaction can. Returned by
	// LockTx, RLockTx, TryLockTx and TryRLockTx in for-update mode, in transactions that
	// are REPEATABLE READ or SERIALIZABLE.
	ErrTooOld = errors.New("sqllock: the transaction is too old")

	// ErrDetached is the cause of a lease's context after Detach.
	ErrDetached = errors.New("sqllock: detached")

	// ErrUnknown says that the database has not replied, so that nobody knows whether it did
	// what it was asked for. Returned by Detach.
	ErrUnknown = errors.New("sqllock: outcome unknown")

	// ErrUnlocked is the cause of a lease's context after Unlock.
	ErrUnlocked = errors.New("sqllock: unlocked")

	// ErrClosed says that the Locker is closed. Returned by all methods that would start
	// something. It is also the cause of the contexts of leases that are held while Close
	// is called.
	ErrClosed = errors.New("sqllock: closed")

	// ErrInvalidName says that a name is not 1 to 255 bytes of valid UTF-8
	// without NUL. Returned before any SQL.
	ErrInvalidName = driver.ErrInvalidName

	// ErrInvalidOwner says that the owner given to [WithOwner] is not 1 to 255 bytes of
	// valid UTF-8 without NUL. Returned by the methods that lock, Acquire, TryAcquire and Adopt
	// among them, before any SQL.
	ErrInvalidOwner = errors.New("sqllock: invalid owner")

	// ErrInvalidSequencer says that a text is not in the format of [Sequencer.String], or
	// that such a sequencer cannot exist. Returned by ParseSequencer, and by
	// CheckSequencer and Check before any SQL.
	ErrInvalidSequencer = errors.New("sqllock: invalid sequencer")

	// ErrInvalidOption says that an argument, an option or a database handle is nil, out of
	// bounds, or does not apply to the call. Returned before any SQL. It is returned after a
	// statement by a constructor whose handle belongs to another database product, by NewQuorum
	// if two databases have the same tables, and by Guard, UnlockTx, the LockTx family and
	// their twins in lockpg if the transaction is one of another database.
	ErrInvalidOption = driver.ErrInvalidOption

	// ErrSchema says that the tables are missing, older than this library needs,
	// or newer than it can work with. Returned by constructors, and by Up and Down of package
	// migrations.
	ErrSchema = driver.ErrSchema

	// ErrUnsupported says that the server cannot give the guarantees of the mode (it is
	// read-only, in recovery, or does not flush), or that the mode or the lease cannot do
	// what was asked. Returned by constructors, and by the methods whose documentation
	// names it.
	ErrUnsupported = driver.ErrUnsupported

	// ErrPoolExhausted says that the pool had no free connection in time or, in for-update
	// mode, that the Locker uses as many as [ForUpdateOptions].MaxConns allows. Returned,
	// wrapped, by calls that needed one. After it, a transaction with LockTx must be
	// rolled back, so that its connection is free; then begin a new one.
	ErrPoolExhausted = driver.ErrNoConnection

	// ErrTooManyLocks says that the server's lock table, which it shares with the
	// statements of the application, is full, or as full as one Locker may make it.
	// Returned in advisory mode.
	ErrTooManyLocks = driver.ErrTooManyLocks
)

// HeldError says who holds a name. It is an [ErrHeld]. Fields other than Name are zero if
// they are not known: the holder may have unlocked meanwhile, or the name may be kept for
// another reason than a holder. A detached term has no Owner, and the Label of its former
// holder.
type HeldError struct {
	Name  string
	Owner string
	Label string    // of the holder's Locker
	Since time.Time // on the clock of the database

	// Until is when the lease expires unless it is renewed, on the same clock. If a
	// [MinHold] or a [LockDelay] keeps the name without a holder, it is the end of that
	// time. It is zero while a session of the database keeps the name.
	Until time.Time

	Shared bool // one or more readers hold it
	Permit bool // one or more holders of permits hold it
}

// Error implements error.
func (e *HeldError) Error() string {
	if e.Owner == "" && e.Label == "" && !e.Shared && !e.Permit && !e.Until.IsZero() {
		return fmt.Sprintf("sqllock: %q is kept until %s", e.Name, e.Until.UTC().Format(time.RFC3339))
	}
	s := fmt.Sprintf("sqllock: %q is held", e.Name)
	if e.Shared {
		s += " shared"
	}
	if e.Permit {
		s += " with permits"
	}
	if e.Label != "" {
		s += fmt.Sprintf(" by %q", e.Label)
	}
	if !e.Since.IsZero() {
		s += " since " + e.Since.UTC().Format(time.RFC3339)
	}
	return s
}

// Is reports that a HeldError is an ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

func newHeldError(name string, h driver.Holder) *HeldError {
	e := &HeldError{Name: name, Shared: h.Shared && !h.Permit, Permit: h.Permit}
	if h.Acq != (driver.ID{}) {
		e.Owner, e.Label = h.Owner, h.Label
	}
	if h.Since > 0 && (h.Shared || h.Acq != (driver.ID{})) {
		e.Since = time.UnixMicro(h.Since)
	}
	if h.Until > 0 {
		e.Until = time.UnixMicro(h.Until)
	}
	return e
}

// PermitsError says that a name has another number of permits than was asked for. It is an
// [ErrPermits].
type PermitsError struct {
	Name      string
	Permits   int // of the name, as the database has it
	Requested int // of the Semaphore
}

// Error implements error.
func (e *PermitsError) Error() string {
	return fmt.Sprintf("sqllock: %q has %d permits, not %d; Resize changes that", e.Name, e.Permits, e.Requested)
}

// Is reports that a PermitsError is an ErrPermits.
func (e *PermitsError) Is(target error) bool { return target == ErrPermits }

func permitsError(req *driver.AcquireRequest, res *driver.AcquireResult) *PermitsError {
	return &PermitsError{Name: req.Name, Permits: res.Permits, Requested: req.Permits}
}

// LostError says that a lease was lost, and why. It is an [ErrLost].
type LostError struct {
	Name   string
	Token  int64
	Reason Reason
	Err    error // the last failure of a renewal, if there was one
}

// Error implements error.
func (e *LostError) Error() string {
	s := fmt.Sprintf("sqllock: %q is lost: %s", e.Name, e.Reason)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Is reports that a LostError is an ErrLost.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap returns Err.
func (e *LostError) Unwrap() error { return e.Err }

// Reason says why a lease was lost.
type Reason uint8

// The reasons of a loss.
const (
	// LostDeadline: no renewal was sent in time, because the process was paused or
	// starved.
	LostDeadline Reason = iota + 1
	// LostUnreachable: the database did not reply to the renewals in time.
	LostUnreachable
	// LostPoolExhausted: the renewals got no connection from the pool in time.
	LostPoolExhausted
	// LostTaken: the database says that the lease is over. It had expired there, its row
	// was changed by hand, or a candidate with the same identity has taken over the term
	// of an [Election].
	LostTaken
	// LostLate: the reply to the request came after the deadline of the lease.
	LostLate
	// LostRevoked: the lease was ended with ForceUnlock.
	LostRevoked
	// LostSession: the session of the database that kept the lock has ended, because the
	// server ended it or the connection broke. The name may have been free before this was
	// known.
	LostSession
	// LostMaxHold: the time that the holder has set with MaxHold is over.
	LostMaxHold
)

// String returns the reason in words.
func (r Reason) String() string {
	switch r {
	case LostDeadline:
		return "not renewed before its deadline"
	case LostUnreachable:
		return "the database did not answer in time"
	case LostPoolExhausted:
		return "no connection to renew it was to be had in time"
	case LostTaken:
		return "the database does not know it any more"
	case LostLate:
		return "granted too late to be used"
	case LostRevoked:
		return "revoked by force"
	case LostSession:
		return "the session that kept it has ended"
	case LostMaxHold:
		return "held for as long as MaxHold allows"
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}
