package driver

import (
	"context"
	"database/sql"
	"time"
)

// GuardStore is the part of a store that works in transactions of the
// application. What these run is not repeated: raw errors are returned.
type GuardStore interface {
	// Guard checks in the caller's transaction that a term is still the current
	// one, and keeps everybody else from becoming the holder until the transaction
	// ends. Renewals must not wait for that, where the database can do so. If the request
	// says so, it also ends the term in the transaction.
	Guard(ctx context.Context, tx *sql.Tx, req GuardRequest) (GuardStatus, error)

	// Begin begins a transaction on the application's handle.
	Begin(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}

// GuardRequest asks to guard one lease, or several.
type GuardRequest struct {
	Name    string
	Acq     ID
	Version int64
	Session string // that holds the lock, in the modes that keep locks in sessions
	Shared  bool   // it is held together with others: with a permit

	// Ends says that the transaction ends the term, see claim.Row.End. It does not wait for
	// what other transactions have locked. The modes that keep locks in sessions are not
	// asked for it.
	Ends    bool
	Guarded bool          // if Ends: the transaction guards the term already
	MinHold time.Duration // if Ends: as in ReleaseRequest

	// Others are further exclusive terms, behind this one in the order of the names, each of
	// another name. One statement guards them with it: all are the current ones, or the answer is
	// Fenced. A request that Ends has none, and neither has one of a mode that keeps locks in
	// sessions.
	Others []Term
}

// Term is a term of a name.
type Term struct {
	Name    string
	Acq     ID
	Version int64
}

// Terms returns all terms of the request.
func (r *GuardRequest) Terms() []Term {
	return append([]Term{{r.Name, r.Acq, r.Version}}, r.Others...)
}

// GuardStatus is what Guard found.
type GuardStatus uint8

const (
	// Fenced: the term is not the current one, as far as the transaction sees.
	Fenced GuardStatus = iota
	// Guarded: it is, and stays so until the transaction ends.
	Guarded
	// Foreign: the transaction is one of another database.
	Foreign
	// PassedOver: another transaction guards the term, or has locked its row. Nothing was
	// changed. It answers a request that Ends only.
	PassedOver
	// Awaited is Guarded if the request Ends and somebody waits for the name: after the commit
	// a visit has to serve the queue.
	Awaited
)

// GuardFunc guards a lease in a transaction that it knows.
type GuardFunc func(ctx context.Context, store GuardStore, req GuardRequest) (GuardStatus, error)

// Unlockable is a lease whose term a transaction can end: a *sqllock.Lease.
type Unlockable interface {
	Guardable
	// UnlockTxBy ends the term by f, as Lease.UnlockTx does.
	UnlockTxBy(ctx context.Context, f GuardFunc) error
	// UnlockInTxBy does that in a transaction that guards the lease, then calls commit, which
	// commits the transaction, and then unlocks the lease.
	UnlockInTxBy(ctx context.Context, f GuardFunc, commit func(ctx context.Context) error) error
}

// Guardable is what can be guarded: a *sqllock.Lease, or a *sqllock.Leases.
type Guardable interface {
	// GuardBy guards the lease as Lease.Guard does, by f.
	GuardBy(ctx context.Context, f GuardFunc) error
}
