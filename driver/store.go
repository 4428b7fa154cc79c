package driver

import (
	"context"
	"time"
)

// Store is the unique mode on one database: leases kept in rows, and the queues of those who
// wait for them. Package rowstore implements it, but for Guard. What some databases can do
// besides is found by assertion, see [Listener]. All methods are safe for concurrent use.
//
// Waiters queue: each has a claim, a row that says which name it waits for. The claims of a
// client count as long as the client is alive, which it shows by a beat. Whoever ends a term
// while somebody waits makes the head of the queue the next holder, in the same transaction:
// it hands the name over. Until then nobody else gets the name.
//
// A store chooses the connection of each call. It keeps one connection of the pool for
// renewals if the pool may open two or more, from the first Acquire on until CloseIdle.
//
// Results stand in the order of the requests. A non-nil error of a call says that no result is
// known; [UniqueDatabase.Classify] tells what that means. Cancelling ctx ends the call within a
// short time; whether the statement ran is then unclear.
type Store interface {
	// Acquire asks once for each name. All requests of a call are of one kind.
	//
	// A request that does not wait gets a name that is free or whose holder has expired.
	// If it loses it leaves no trace in the database. Requests are sorted by name, and
	// distinct by name, those that are shared or for a permit by name and acq.
	//
	// A request that waits, with a Life, either gets the name in the end or has a claim. So
	// Acquire is called to queue, to keep the places, and to learn that the name was handed
	// over. A claim may have been deleted when the client was silent for long; then the
	// request gets a new one, at the end. A name goes to such a request if nobody holds it,
	// nothing but the queue keeps it, and no claim of a live client is before it. Those who
	// share are in nobody's way who shares, and enter together with those who share it now.
	// A grant deletes the claim. While a transaction guards the lease of a holder who has
	// expired, nobody gets the name. Requests are distinct by name and acq, and sorted by
	// name. Those of one name enter the queue in their order.
	//
	// Requests that are All do not wait either. They are distinct by name, and are granted
	// together: if one of them is not granted none is, and nothing was changed. The results then
	// say which were Refused.
	//
	// A request that resumes, see Resumes, goes past the queue, and past what the former
	// term had asked for to be waited out after its end. If the name has another holder by
	// now, or none, it is not granted, and nothing was changed. It waits for a row that
	// somebody has locked, also to guard the term that it would end, for a second at most;
	// the error then classifies as [Again].
	//
	// A request that adopts, see Adopts, goes past the queue, too. If the name has another
	// holder than the detached term, or that has expired, it is not granted, and nothing was
	// changed. It waits for a guard as a request that resumes does.
	//
	// Acquire may be repeated with the same Acq after an unclear outcome: a name that Acq
	// already holds is reported as granted and found, with its version and what remains.
	Acquire(ctx context.Context, reqs []AcquireRequest) ([]AcquireResult, error)

	// Renew extends each lease that is still held: name, acq and version match and
	// the row has not expired. It never shortens a lease. Requests are distinct by
	// name and sorted by name.
	//
	// With wait false Renew is urgent: it waits for a connection no longer than half of the
	// time that ctx leaves, if there is another one. A row that somebody else has locked is
	// skipped and reported as [Busy]; with wait true the call waits for it, for a second at
	// most.
	Renew(ctx context.Context, reqs []RenewRequest, wait bool) (RenewResults, error)

	// Release frees each lease that is still held (name, acq and version match)
	// and keeps its row. It reports for each request whether it freed the name. If
	// somebody waits for it, it is handed over, also by a request that is Awaited and finds
	// the name free: a transaction has ended the term. Requests are sorted by name, and
	// distinct by name, those of who holds together with others by name and acq.
	//
	// A request that detaches, see To, frees nothing: the term goes on, and belongs to whoever
	// adopts it before it expires. All requests of a call detach or none. Freed is true if the
	// term is detached, now or by an earlier request with the same To. It waits for a guard
	// if it is Guarded; the error then classifies as [Again].
	//
	// Requests without a version, which all requests of a call are or none, free whatever
	// the acquisitions hold, if anything, and take them out of the queue; the results say
	// nothing. What becomes free is handed over, and waiters of this store hear of it as
	// those of others do. This cleans up after requests whose outcome stayed unclear, and
	// after waiters who have gone.
	Release(ctx context.Context, reqs []ReleaseRequest) ([]ReleaseResult, error)

	// Read reads what is known of names, or of waiters. It locks nothing.
	Read(ctx context.Context, req ReadRequest) (ReadResult, error)

	// Revoke ends the terms of names, whoever holds them, and what keeps them. It
	// raises the versions, so that the former holders can tell. A name that nobody
	// holds and nothing keeps is left as it is, and so is one of another version than
	// the request's. It waits for rows that somebody has locked, for a second at most;
	// the error then classifies as [Again], and no name was changed. Requests are
	// distinct by name and sorted by name.
	Revoke(ctx context.Context, reqs []RevokeRequest) ([]RevokeResult, error)

	// Sweep looks at the next rows of the table, in the byte order of the names.
	// It ends the terms of those whose holder has expired, deletes the claims of clients
	// that have been silent for long, and deletes rows that have been idle for longer than
	// the retention. Rows that somebody has locked are passed over. If there is nothing to
	// do it writes nothing. A request with Every only asks whether to do all this, and
	// one with Pause says for how long nobody is to be told so.
	Sweep(ctx context.Context, req SweepRequest) (SweepResult, error)

	// SetValue changes the value of a term that is held: name, acq and version match,
	// and it has not expired. It reports whether it did. It waits for a row that
	// somebody has locked, for a second at most; the error then classifies as [Again].
	SetValue(ctx context.Context, req SetValueRequest) (bool, error)

	GuardStore

	// CloseIdle gives the connection that is kept for renewals back until the next Acquire.
	// It does not block. It reports false if the connection is in use.
	CloseIdle() bool

	// Info tells what OpenUnique found out.
	Info() Info

	// Close gives back what the store opened, never the application's handle.
	Close() error
}

// Listener is a Store whose database can tell the store that a name was handed
// over to one of its waiters.
type Listener interface {
	// Listen calls heard with the acquisition of each waiter of this store to whom a
	// name was handed over by another, or whose turn it may be, from the moment when
	// it calls heard with the zero ID. It takes a connection out of the pool and
	// returns, always with an error, when ctx ends or the connection breaks; what is
	// said meanwhile is not repeated. The error wraps ErrUnsupported if the driver of
	// the database, or what stands between, cannot do it.
	Listen(ctx context.Context, heard func(ID)) error
}

// NodeStore is a Store that can be a node of a quorum: one of several databases that keep a name
// together.
type NodeStore interface {
	Store
	// Raise sets the version of each term that is still held, where it is not higher: name and
	// acq match, and the row has not expired. It reports for each request whether the term has
	// that version now, or a higher one. Requests are distinct by name and sorted by name.
	Raise(ctx context.Context, reqs []RaiseRequest) ([]bool, error)
}

// RaiseRequest asks for a version of one term.
type RaiseRequest struct {
	Name    string
	Acq     ID
	Version int64
}

// MaxPermits is the highest number of permits that a name can have.
const MaxPermits = 10_000

// PermitStore is a Store that grants permits, see AcquireRequest.Permits.
type PermitStore interface {
	// Resize sets how many permits a name has. If there are more, whoever is next gets them. If
	// there are fewer than are held, nobody loses one: the next is granted when fewer than
	// permits are held. It may be repeated. It waits for a row that somebody has locked, for a
	// second at most; the error then classifies as [Again].
	Resize(ctx context.Context, name string, permits int) error
}

// Info is what a driver found out about its database when it was opened.
type Info struct {
	Server   string   // product and version, for logs
	Database string   // the id that the first migration gave to the tables, as a text; or ""
	MaxConns int      // connections that the pool may open; 0 means no limit
	MaxLocks int      // locks that one client should take at most; 0 means no limit
	Warnings []string // what is not refused but should be known
}

// AcquireRequest asks for one name.
type AcquireRequest struct {
	Name  string
	Acq   ID
	Owner string
	TTL   time.Duration // for how long the row keeps the name, unless it is renewed
	Value []byte        // kept while the name is held; empty is none

	// Shared asks for the name together with others who do.
	Shared bool
	// All asks for all names of the call together. The requests of a call are All, or none is.
	All bool
	// Permits, if it is not 0, asks for one of so many permits of the name, which as many can hold
	// together; Shared is false then. The first request for a permit says how many the name has.
	// Later ones must say the same, until [PermitStore.Resize] changes it. One that waits keeps
	// its place then.
	Permits int
	// Named asks that it is known as soon as the name is granted who holds it. In a
	// Store it always is.
	Named bool

	// Floor is the lowest version that a grant may have; 0 is none. A quorum proposes one version to
	// all of its nodes. A request that waits, or is Together, has none.
	Floor int64

	// The next three are of a request that waits.

	// Life is how long the client counts as alive after this call. The request does not wait
	// if it is 0.
	Life time.Duration
	// Handed is in the place of TTL if the client of another store hands the name
	// over: for so long the row keeps the name for a waiter that may have died.
	Handed time.Duration
	// Carries are the acquisitions that cannot end before this one has.
	Carries []ID

	// Resumes is the version of a term of the same owner that is to end, if the request
	// makes the next term of that owner.
	Resumes int64
	// Adopts is the key of a detached term that is to end, if the request makes the next term.
	// All requests of a call adopt or none.
	Adopts ID

	// The rest is for the modes that keep locks in sessions; in a Store it is
	// part of TTL.

	MinHold time.Duration // from the grant on, the name is kept from others
	Delay   time.Duration // for this long it is kept after a term that did not end by a release
	Wait    time.Duration // how long the server may wait for the lock, not at all if 0
}

// Together reports that the name is wanted together with others: shared, or with a permit.
func (r *AcquireRequest) Together() bool { return r.Shared || r.Permits != 0 }

// AcquireResult answers an AcquireRequest.
type AcquireResult struct {
	Granted   bool
	Found     bool          // it was granted before: this request has only read it
	Version   int64         // the fencing token, if granted
	Slot      int           // of the permit, from 0, if one is granted
	Remaining time.Duration // from Now until the row expires, if granted
	Now       int64         // the database's clock, microseconds since the epoch
	Holder    Holder        // who holds the name, as far as known, if not granted
	Crashed   Holder        // whose expired term the request has ended, if it has
	// Refused says of a request that is All and was not granted that it is because of this name.
	Refused bool
	// Permits is not 0 if the name has another number of permits than the request says: then the
	// request is neither granted nor does it wait.
	Permits int
	// Ahead is not 0 if the request waits, is not granted, and a live claim is before its own.
	Ahead int
}

// Holder tells who holds a name. Times are microseconds since the epoch on the
// clock of the database. The zero Holder means that nobody was seen to hold it;
// with nothing but Until, the name is kept until then.
type Holder struct {
	Acq     ID
	Owner   string
	Label   string
	Version int64
	Since   int64
	Until   int64 // 0 if the session decides
	Shared  bool  // one or more hold it together; then Acq, Owner and Label may be zero
	Permit  bool  // if Shared: they hold permits
}

// RenewRequest asks to extend one lease to TTL from now.
type RenewRequest struct {
	Name    string
	Acq     ID
	Version int64
	TTL     time.Duration
	Holds   int  // how often the owner holds the lease, written as it stands
	Shared  bool // it is held together with others: shared, or with a permit
}

// RenewResults answers the requests of one call of Renew.
type RenewResults struct {
	Now    int64 // the database's clock, microseconds since the epoch
	Status []RenewStatus
	Why    error // why leases are Gone, if the driver knows more of it
	// Errs are of requests that failed although others did not; nil if none did. The Status
	// of such a request says nothing.
	Errs []error
}

// RenewStatus is the outcome of one RenewRequest.
type RenewStatus uint8

const (
	// Gone: the row is not held by this acquisition any more, or has expired.
	Gone RenewStatus = iota
	// Renewed: the lease is extended.
	Renewed
	// Busy: somebody has locked the row; nothing was changed. Ask again with wait.
	Busy
	// Revoked is Gone for a term that Revoke has ended, as long as it was the last
	// that Revoke has ended of this name.
	Revoked
	// Ended: the session that held it is gone.
	Ended
)

// ReleaseRequest asks to free one lease.
type ReleaseRequest struct {
	Name    string
	Acq     ID
	Version int64         // 0 is whichever there is
	MinHold time.Duration // from the grant on, the name is kept from others
	Guarded bool          // the lease was guarded: free it only if no transaction guards it now
	Shared  bool          // it is held together with others: shared, or with a permit
	Permit  bool          // it is held with a permit: it saves the attempt to hand over what readers share
	Awaited bool          // somebody waits for the name, or may well: it saves the attempt to free it plainly
	Lost    bool          // the holder has lost it: a session lets go without a word, as in a crash

	// Settle is for a request without a version: an earlier request of Acq may be under way. The
	// call waits for rows that somebody has locked, for a second at most; the error then
	// classifies as [Again]. Without it, a grant that is not committed yet is not seen.
	Settle bool

	// The next two are of a request that detaches. The modes that keep locks in sessions are
	// not asked for it.

	To  ID            // the key with which the term can be adopted; zero: the request frees the lease
	TTL time.Duration // for how long from now
}

// ReleaseResult answers a ReleaseRequest.
type ReleaseResult struct {
	Freed bool // the lease was held until now
	// HandedOver is to how many waiters the name was handed over, those of other stores
	// included.
	HandedOver int

	// Next are the new holders, if the name was handed over to waiters of this same
	// store. They need not be told by other means.
	Next []HandOver
}

// HandOver is a name that was handed over to a waiter.
type HandOver struct {
	Acq       ID
	Version   int64
	Slot      int           // of a permit
	Remaining time.Duration // from Now until the row expires
	Now       int64         // the database's clock, microseconds since the epoch
}

// SetValueRequest asks for another value of one term; empty is none.
type SetValueRequest struct {
	Name    string
	Acq     ID
	Version int64
	Value   []byte

	// Rising leaves a value as it is that is higher in the order of bytes. Then a request that comes
	// late changes nothing back. The table unique only.
	Rising bool
}
