// Package driver holds what a database must implement to serve a mode of
// sqllock: small interfaces, one per mode, whose methods take slices. A batch
// of one is the ordinary case.
//
// The package is for implementers. It makes no compatibility promise: methods
// and fields are added as modes learn new things. Applications use package
// sqllock with the databases of packages lockpg, lockmysql and locksqlite.
//
// A driver keeps no lock state of its own. It runs one statement, or one short
// transaction, per call and returns raw errors; package sqllock wraps them,
// decides what they mean with the help of Classify, and retries.
package driver

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"time"
)

// ID is a random 128-bit number that names one acquisition or one Locker.
// The zero ID names nothing.
type ID [16]byte

// String returns the ID as 32 lower-case hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// UnmarshalText reads what String writes. It implements encoding.TextUnmarshaler.
func (id *ID) UnmarshalText(text []byte) error {
	if hex.DecodedLen(len(text)) != len(id) {
		return fmt.Errorf("an ID of %d digits", len(text))
	}
	_, err := hex.Decode(id[:], text)
	return err
}

// Client tells a driver for whom it works. Instance and Label are written into the rows of
// the client.
type Client struct {
	Instance ID     // the Locker; its beat keeps the claims of its waiters alive
	Label    string // host, process, service; for people, it decides nothing

	// Crashed is called for each expired term that a call has ended, unless a result
	// of the call tells of it. It does not wait for anything. It may be nil.
	Crashed func(Crash)
}

// UniqueDatabase is a database that offers the unique mode.
type UniqueDatabase interface {
	// OpenUnique checks that the database can keep what the mode promises and
	// returns its lease store. It returns an error that wraps ErrSchema when the
	// tables are missing or of another version, ErrUnsupported when the server
	// cannot be trusted with locks, and ErrInvalidOption when the handle or an option
	// of the database is bad; the latter before any SQL.
	OpenUnique(ctx context.Context, client Client) (Store, error)

	// Classify tells what an error of OpenUnique means, as Store.Classify
	// does.
	Classify(err error) Fault
}

// Migratable is a database whose tables package migrations can make.
type Migratable interface {
	// Migration returns how to reach and name the tables. It runs no SQL. The
	// caller calls Close of the result when done.
	Migration() (Migration, error)
}

// Migration describes to package migrations where the tables of a database go.
type Migration struct {
	Dialect   string           // "postgres", "mysql" or "sqlite"
	DB        *sql.DB          // reaches the database
	Schema    string           // schema of the tables, "" for the connection's default
	Prefix    string           // table prefix, already checked
	Version   int64            // version of the tables that the driver needs
	Retryable func(error) bool // reports an error that a concurrent migration explains
	Close     func() error     // gives back what Migration opened, never the application's handle
}

// Store is the unique mode on one database: leases kept in rows. Package rowstore
// implements it, but for the methods that are about connections and transactions of the
// application. All methods are safe for concurrent use, except that a store returned by
// Reserve runs one call at a time.
//
// Results stand in the order of the requests. A non-nil error of a call says
// that no result is known; Classify tells what that means. Cancelling ctx ends
// the call within a short time; whether the statement ran is then unclear.
type Store interface {
	// Grant tries each request once: a name that is free, or whose holder has
	// expired, goes to the requester. Requests are sorted by name, and distinct by name,
	// those that are shared by name and acq. A request that loses leaves no trace in the
	// database.
	//
	// Grant may be repeated with the same Acq after an unclear outcome: a row that
	// Acq already holds is reported as granted and found, with its version and what
	// remains.
	Grant(ctx context.Context, reqs []AcquireRequest) ([]AcquireResult, error)

	// Renew extends each lease that is still held: name, acq and version match and
	// the row has not expired. It never shortens a lease. Requests are distinct by
	// name and sorted by name.
	//
	// With wait false a row that somebody else has locked is skipped and reported
	// as [Busy]; with wait true the call waits for it, for a second at most.
	Renew(ctx context.Context, reqs []RenewRequest, wait bool) (RenewResults, error)

	// Release frees each lease that is still held (name, acq and version match)
	// and keeps its row. It reports for each request whether it freed the name. If
	// somebody waits for it, it is handed over, also by a request that is Awaited and finds
	// the name free: a transaction has ended the term. Requests are sorted by name, and
	// distinct by name, those that are shared by name and acq.
	Release(ctx context.Context, reqs []ReleaseRequest) ([]ReleaseResult, error)

	// Abandon frees whatever the given acquisitions hold, if anything, whatever
	// the version, and takes them out of the queue. What becomes free is handed over,
	// and waiters of this store hear of it as those of others do. It cleans up after
	// requests whose outcome stayed unclear, and after waiters who have gone.
	Abandon(ctx context.Context, reqs []ReleaseRequest) error

	// Look reads what is known of names, in their order. It locks nothing.
	Look(ctx context.Context, names []string) ([]Row, error)

	// List reads on in the table, in the byte order of the names. One call looks
	// at limit rows at most, however few of them it returns.
	List(ctx context.Context, req ListRequest) (Page, error)

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
	// do it writes nothing.
	Sweep(ctx context.Context, req SweepRequest) (SweepResult, error)

	// Turn reports whether a pass over the table is due, which is so if no call
	// has reported it for the time given, on the database's clock, and takes it
	// on: of any number of Lockers one is told to go.
	Turn(ctx context.Context, every time.Duration) (bool, error)

	GuardStore
	LineStore
	ElectionStore

	// Reserve returns a store whose statements all run on one connection of its
	// own, taken from the pool. Close of that store gives the connection back, or
	// destroys it if its state is in doubt. The error wraps ErrNoConnection when
	// the pool is exhausted.
	Reserve(ctx context.Context) (Store, error)

	// Exhausted reports that a call would have to wait for a connection, because
	// all that the pool may open are in use. A reserved store answers false.
	Exhausted() bool

	// Classify tells what an error of one of the other methods means.
	Classify(err error) Fault

	// Info tells what OpenUnique found out.
	Info() Info

	// Close gives back what the store opened, never the application's handle. A
	// store that was reserved gives back its connection.
	Close() error
}

// Info is what a driver found out about its database when it was opened.
type Info struct {
	Server   string   // product and version, for logs
	MaxConns int      // connections that the pool may open; 0 means no limit
	MaxLocks int      // locks that one client should take at most; 0 means no limit
	Warnings []string // what is not refused but should be known
}

// AcquireRequest asks for one name, or a place in its queue.
type AcquireRequest struct {
	Name  string
	Acq   ID
	Owner string
	TTL   time.Duration // for how long the row keeps the name, unless it is renewed
	Value []byte        // kept while the name is held; empty is none

	// Shared asks for the name together with others who do.
	Shared bool
	// Named asks that it is known as soon as the name is granted who holds it. In a
	// Store it always is.
	Named bool

	// The next three are for a request that waits.

	// Life is how long the client counts as alive after this call.
	Life time.Duration
	// Handed is in the place of TTL if the client of another store hands the name
	// over: for so long the row keeps the name for a waiter that may have died.
	Handed time.Duration
	// Carries are the acquisitions that cannot end before this one has.
	Carries []ID

	// The rest is for the modes that keep locks in sessions; in a Store it is
	// part of TTL.

	MinHold time.Duration // from the grant on, the name is kept from others
	Delay   time.Duration // for this long it is kept after a term that did not end by a release
	Wait    time.Duration // how long the server may wait for the lock, not at all if 0
}

// AcquireResult answers an AcquireRequest.
type AcquireResult struct {
	Granted   bool
	Found     bool          // it was granted before: this request has only read it
	Version   int64         // the fencing token, if granted
	Remaining time.Duration // from Now until the row expires, if granted
	Now       int64         // the database's clock, microseconds since the epoch
	Holder    Holder        // who holds the name, as far as known, if not granted
	Crashed   Holder        // whose expired term the request has ended, if it has
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
}

// RenewRequest asks to extend one lease to TTL from now.
type RenewRequest struct {
	Name    string
	Acq     ID
	Version int64
	TTL     time.Duration
	Holds   int // how often the owner holds the lease, written as it stands
	Shared  bool
}

// RenewResults answers the requests of one call of Renew.
type RenewResults struct {
	Now    int64 // the database's clock, microseconds since the epoch
	Status []RenewStatus
	Why    error // why leases are Gone, if the driver knows more of it
	// Errs are of requests whose session did not answer, where there are several
	// sessions; nil if all did. The Status of such a request says nothing.
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
	Version int64         // 0 in Abandon, which frees the name whatever the version
	MinHold time.Duration // from the grant on, the name is kept from others
	Guarded bool          // the lease was guarded: free it only if no transaction guards it now
	Shared  bool
	Awaited bool // somebody is known to wait for the name: it saves the attempt to free it plainly
	Lost    bool // the holder has lost it: a session lets go without a word, as in a crash
}
