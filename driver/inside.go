package driver

import "time"

// Row is what the table knows of a name. Times are microseconds since the epoch
// on the clock of the database.
type Row struct {
	Name string
	// Holder tells of the current term or else of the last. If that was ended, Acq,
	// Owner and Label are zero, and Until is when it was. If the table does not
	// know the name, all is zero.
	Holder  Holder
	Holds   int
	Readers int  // who share it
	Session bool // a session that lives keeps it; then Holder.Until says nothing

	// Detached says that the term was detached and not adopted yet. Holder.Acq is its key.
	Detached bool

	Gate  int64  // until when something other than a holder or a waiter keeps the name; or past
	Ended Ending // how the last term was ended

	// Asked is the version of the last term whose holder was asked to end it. It is read by
	// requests that ask for it only.
	Asked int64

	Revoked int64  // the version of the last term that Revoke has ended while it was held, if it has
	Value   []byte // not read by List

	Permits     int    // how many permits there are, 0 if nobody has said
	PermitsHeld int    // how many of them are held
	Slots       []Slot // those, in the order of their numbers; read only if asked for

	// Holders are the first of those who hold the name together, in the order of their slots and
	// of their grants, if the request asks for them. Readers have the slot 0.
	Holders []Slot

	// Waiters is how many claims of live clients wait, if the request asks for it, and Queue
	// are the first of them.
	Waiters int
	Queue   []Queued

	Now int64 // the clock, when the row was read
}

// Slot is a permit that is held, or a reader.
type Slot struct {
	Slot int
	Holder
}

// Queued is a claim that waits, at its place in the queue of a name.
type Queued struct {
	Label string
	Since int64 // when it entered, microseconds since the epoch
	Kind  Kind
}

// Kind is what a waiter wants of a name. The numbers are in the tables.
type Kind uint8

// The kinds.
const (
	KindExclusive Kind = 0
	KindShared    Kind = 1
	KindPermit    Kind = 2
)

// Held reports that the row names a holder, who may have expired.
func (r Row) Held() bool { return r.Holder.Acq != ID{} || r.Together() > 0 }

// Together is how many hold the name together: readers, or holders of permits.
func (r Row) Together() int { return r.Readers + r.PermitsHeld }

// Ending is how a term was ended. The numbers stand in the tables.
type Ending uint8

// The endings. A term of a library that wrote none counts as released.
const (
	EndedReleased Ending = 1 // by its holder
	EndedExpired  Ending = 2 // by Sweep
	EndedRevoked  Ending = 3 // by Revoke
)

// ReadRequest asks for one of three things.
type ReadRequest struct {
	Names   []string    // the rows of these names, in their order
	Slots   bool        // with Names: also who holds each permit
	Holders int         // of these names also the first so many of those who hold it together; not with Slots
	Queue   int         // of these names also how many wait, and the first so many of them
	Asked   bool        // with Names: also whose holder was asked to end its term
	List    ListRequest // if it has a Limit: the rows that follow a name
	Waiters bool        // the claims of those who hold something while they wait
}

// ReadResult answers a ReadRequest.
type ReadResult struct {
	Page    // of names: Rows only
	Waiters []Waiter
}

// Waiter is the claim of a waiter that holds something while it waits.
type Waiter struct {
	Name    string
	Acq     ID
	Label   string
	Seq     int64 // the place in the queue of the name; lower is before higher
	Since   int64 // when it entered, microseconds since the epoch
	Kind    Kind
	Carries []ID
	Holders []ID // who holds the name, unless expired
}

// ListRequest asks for rows after a name, in the byte order of the names. One call looks at
// Limit rows at most, however few of them it returns.
type ListRequest struct {
	After string // "" is before all names
	Limit int
	Free  bool // also rows that nobody holds and nothing keeps
	Count bool // also how many wait
}

// Page answers a ListRequest.
type Page struct {
	Rows []Row
	Last string // up to where the table was looked at
	More bool   // there may be more behind Last
}

// RevokeRequest asks to end the term of one name.
type RevokeRequest struct {
	Name    string
	Version int64 // of the term to end; 0 is whichever there is

	// Politely says that nothing ends: the holder of the term with the Version is asked to end
	// it. A row that somebody has locked may be passed over. The result is not Revoked. All
	// requests of a call ask or none. The modes that keep locks in sessions are not asked
	// for it.
	Politely bool
}

// RevokeResult is what became of one name.
type RevokeResult struct {
	Row     Row  // before
	Revoked bool // false if there was nothing to end
}

// SweepRequest asks to clean up rows after a name.
type SweepRequest struct {
	After     string // "" is before all names
	Limit     int
	Retention time.Duration

	// Every, if it is not 0, asks only whether a pass over the table is due, and takes it on:
	// of any number of Lockers one is told to go.
	Every time.Duration
	// Pause, if it is not 0, does nothing but note for how long after the last pass none is due,
	// whoever asks.
	Pause time.Duration
}

// SweepResult answers a SweepRequest.
type SweepResult struct {
	Due     bool // no request has been told so for Every, on the database's clock
	Crashed []Crash
	Purged  int
	Seen    int    // rows
	Last    string // up to where the table was looked at
	More    bool   // there may be more behind Last
}

// Crash is an expired term that a call has ended.
type Crash struct {
	Name   string
	Holder Holder
}
