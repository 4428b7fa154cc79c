package driver

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// The modes "for update" and "advisory" keep a lock in a session of the database:
// by a row that an open transaction has locked, or by a lock of the session. What
// locks is not what counts: the fencing token, who holds, and what must outlive a
// crash are committed apart, in a row of the table of terms or in a sequence.

// ForUpdateDatabase is a database that offers the mode for update.
type ForUpdateDatabase interface {
	// OpenForUpdate is what OpenUnique is for the unique mode. Each session of the
	// store takes one lock.
	OpenForUpdate(ctx context.Context, client Client, opts SessionOptions) (SessionStore, error)
	Classify(err error) Fault
}

// AdvisoryDatabase is a database that offers advisory mode.
type AdvisoryDatabase interface {
	// OpenAdvisory is what OpenUnique is for the unique mode. A session of the store
	// takes any number of locks.
	OpenAdvisory(ctx context.Context, client Client, opts SessionOptions) (SessionStore, error)
	Classify(err error) Fault
}

// SessionOptions are what a driver needs to know of a Locker whose locks are kept
// by sessions.
type SessionOptions struct {
	// TTL is after which silence of the client the server ends a session. A driver
	// whose server cannot do so returns ErrInvalidOption, before any SQL.
	TTL time.Duration
	// Timeout is how long a call that keeps a lock alive may take: an answer that
	// comes later counts for nothing. The default is a third of TTL.
	Timeout time.Duration
	// AllowSilentHolders accepts a server that cannot end a session of advisory mode
	// when it has been silent for the TTL.
	AllowSilentHolders bool
}

// minPool is how many connections a pool must be able to open.
const minPool = 3

// CheckPool refuses a pool that is too small for a SessionStore. 0 means no limit. The
// error wraps ErrInvalidOption.
func CheckPool(maxConns int) error {
	if maxConns == 0 || maxConns >= minPool {
		return nil
	}
	return fmt.Errorf("%w: the handle may open %d connections: needs a pool of at least %d connections: one is kept for tokens, "+
		"each lock session takes one, the application needs one", ErrInvalidOption, maxConns, minPool)
}

// SessionStore is one of the modes that keep locks in sessions. All methods are
// safe for concurrent use.
//
// It takes one connection out of the pool when it is opened and keeps it until
// Close, for what must not wait for a connection of the application. If that
// breaks, the next call takes another. While the pool has none to give, calls that need
// it soon return ErrNoConnection: their callers may have the whole pool in transactions.
type SessionStore interface {
	// Session takes a connection out of the pool and prepares it to hold locks: the
	// server will end it when it has been silent for the TTL. The error wraps
	// ErrNoConnection when the pool is exhausted.
	Session(ctx context.Context) (Session, error)

	// Key tells which lock of the server stands for a name. Names of one key exclude
	// each other; within one session the server does not see to that.
	Key(name string) string

	// Look and List tell what is known of names. They lock nothing. Who holds a lock
	// is known as far as it was written.
	Look(ctx context.Context, names []string) ([]Row, error)
	List(ctx context.Context, req ListRequest) (Page, error)

	// Revoke asks the holders of names to give them up: they are told by their next
	// Renew. What kept a name without a holder is over at once. It waits for nobody. A
	// request with a version asks nobody else than the holder of that term.
	Revoke(ctx context.Context, reqs []RevokeRequest) ([]RevokeResult, error)

	// Sweep is Store.Sweep over what is known of names: it ends the terms whose
	// session is gone, if that can be told, and deletes what was idle for longer than
	// the retention.
	Sweep(ctx context.Context, req SweepRequest) (SweepResult, error)
	// SweepDue is Sweep of a request with Every, and SweepPause of one with Pause.
	SweepDue(ctx context.Context, every time.Duration) (bool, error)
	SweepPause(ctx context.Context, pause time.Duration) error

	// SetValue is Store.SetValue.
	SetValue(ctx context.Context, req SetValueRequest) (bool, error)

	GuardStore
	TxStore

	Classify(err error) Fault
	Info() Info
	Close() error
}

// Session is a connection that holds locks. Its methods run one at a time. It ends
// by itself when the connection breaks or when a call fails in a way that leaves
// doubt: then the server has let go, or soon will let go, all that it held.
//
// A context that ends during a call ends the session, unless the call says
// otherwise: it is for a server that does not answer.
type Session interface {
	// ID names the session for GuardRequest.
	ID() string

	// Grant tries each request once. Requests are distinct by Key; none is for a key
	// that this session holds, unless both are shared. It never waits for a lock,
	// except that a session of the mode for update waits for its one request for as
	// long as that allows. A request that is not granted holds nothing; after an
	// error none is, or the session has ended.
	Grant(ctx context.Context, reqs []AcquireRequest) ([]AcquireResult, error)

	// Renew proves that the session lives, and restarts the server's clock for it.
	// It tells of each lock of the session that is asked about whether somebody
	// wants it back: Renewed or Revoked. It may write down who holds what.
	Renew(ctx context.Context, reqs []RenewRequest) (RenewResults, error)

	// Release lets go. It reports for each request whether the session held the lock
	// until then. If a transaction guards the lease, Release lets nothing go and
	// returns an error that classifies as Again.
	Release(ctx context.Context, reqs []ReleaseRequest) ([]bool, error)

	// Gone returns a channel that is closed when the session has ended, or when the
	// operating system says that the connection is closed, where it can be asked.
	Gone() <-chan struct{}

	// Close gives the connection back to the pool, as it was, if the session holds
	// nothing and is in no doubt, and ends it otherwise. After it the session holds
	// nothing.
	Close() error
}

// TxStore takes locks in transactions of the application.
type TxStore interface {
	// PrepareTx makes, outside of the transaction, what TryTx needs.
	PrepareTx(ctx context.Context, req TxRequest) error

	// TryTx tries once to take a lock for the rest of a transaction. It neither waits
	// nor does anything that would end the transaction if the lock is held. Raw errors
	// are returned.
	TryTx(ctx context.Context, tx *sql.Tx, req TxRequest) (TxStatus, error)

	// Draw commits a new token, outside of the transaction, for a lock that one
	// holds. The result is not granted as long as something other than a holder keeps
	// the name: a lock delay, a guard.
	Draw(ctx context.Context, req AcquireRequest) (AcquireResult, error)
}

// TxRequest asks for a lock that ends with the caller's transaction.
type TxRequest struct {
	Name   string
	Shared bool
}

// TxStatus is what TryTx found.
type TxStatus uint8

const (
	// TxHeld: somebody else has the lock.
	TxHeld TxStatus = iota
	// TxTaken: the transaction has it until it ends.
	TxTaken
	// TxForeign: the transaction is one of another database.
	TxForeign
	// TxTooOld: the transaction's snapshot is older than what stands for the name.
	// A new transaction can have it.
	TxTooOld
)

// TxFunc takes a lock in a transaction that it knows.
type TxFunc func(ctx context.Context, store TxStore, req TxRequest) (TxStatus, error)

// TxLocker takes locks in transactions: a *sqllock.Locker.
type TxLocker interface {
	// LockTxBy is LockTx, RLockTx if shared, or the one of their twins that does not
	// wait, by f.
	LockTxBy(ctx context.Context, name string, shared, wait bool, f TxFunc) (token int64, err error)
}
