package driver

import (
	"context"
	"time"
)

// Waiters of the unique mode queue: each has a claim, a row that says which name it waits
// for. The claims of a client count as long as the client is alive, which it shows by a
// beat. Whoever ends a term while somebody waits makes the head of the queue the next
// holder, in the same transaction: it hands the name over. Until then nobody else gets
// the name.

// LineStore is the queue of a Store.
type LineStore interface {
	// Line asks for names for those who wait. In the end each request either has the name,
	// as after Grant, or has a claim. The claims of this store's client count for Life
	// unless Line is called again. So it is called to queue, to keep the places, and to
	// learn that the name was handed over: a name that Acq holds already is reported as
	// granted and found. A claim may have been deleted when the client was silent for long;
	// then the request gets a new one, at the end.
	//
	// A name goes to a request if nobody holds it, nothing but the queue keeps it, and no
	// claim of a live client is before it. Those who share are in nobody's way who shares,
	// and enter together with those who share it now. A grant deletes the claim. While a
	// transaction guards the lease of a holder who has expired, nobody gets the name.
	//
	// Requests are distinct by name and acq, and sorted by name. Those of one name
	// enter the queue in their order.
	Line(ctx context.Context, reqs []AcquireRequest) ([]AcquireResult, error)

	// Waits reads the claims of those who hold something while they wait. It locks
	// nothing.
	Waits(ctx context.Context) ([]Waiter, error)
}

// ReleaseResult answers a ReleaseRequest.
type ReleaseResult struct {
	Freed bool // the lease was held until now

	// Next are the new holders, if the name was handed over to waiters of this same
	// store. They need not be told by other means.
	Next []HandOver
}

// HandOver is a name that was handed over to a waiter.
type HandOver struct {
	Acq       ID
	Version   int64
	Remaining time.Duration // from Now until the row expires
	Now       int64         // the database's clock, microseconds since the epoch
}

// Waiter is the claim of a waiter that holds something while it waits.
type Waiter struct {
	Name    string
	Acq     ID
	Label   string
	Seq     int64 // the place in the queue of the name; lower is before higher
	Since   int64 // when it entered, microseconds since the epoch
	Shared  bool
	Carries []ID
	Holders []ID // who holds the name, unless expired
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
