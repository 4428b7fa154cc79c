package history

// The calls of a store that Requested tells of, in the field Reason.
const (
	Acquire  = "acquire"
	Renew    = "renew"
	Release  = "release"
	Withdraw = "withdraw" // a release without a version
	Reading  = "reading"  // of rows, by their names
	Sweep    = "sweep"    // of the reaper: it has no requests
)

// Request is what a call asks of one name, or the answer. Times are microseconds, those of day on
// the clock of the database.
type Request struct {
	Name string `json:"name,omitempty"`
	Acq  string `json:"acq,omitempty"`

	Owner   string `json:"owner,omitempty"`
	Shared  bool   `json:"shared,omitempty"` // of a renewal and a release: or a permit
	Permits int    `json:"permits,omitempty"`
	TTL     int64  `json:"ttl,omitempty"`
	Handed  int64  `json:"handed,omitempty"`
	Waits   bool   `json:"waits,omitempty"`
	All     bool   `json:"all,omitempty"`
	Token   int64  `json:"token,omitempty"`
	Holds   int    `json:"holds,omitempty"`
	MinHold int64  `json:"min_hold,omitempty"`
	Guarded bool   `json:"guarded,omitempty"`

	Answer
}

// Answer is the answer of a call about one name.
type Answer struct {
	Granted bool   `json:"granted,omitempty"`
	Found   bool   `json:"found,omitempty"`
	Got     int64  `json:"got,omitempty"` // the token
	Slot    int    `json:"slot,omitempty"`
	Expires int64  `json:"expires,omitempty"`
	Now     int64  `json:"now,omitempty"`
	Ahead   bool   `json:"ahead,omitempty"`
	Refused bool   `json:"refused,omitempty"` // of all: because of this name
	Freed   bool   `json:"freed,omitempty"`
	Handed  int    `json:"handed_over,omitempty"`
	Next    []Next `json:"next,omitempty"`
	Status  string `json:"status,omitempty"` // of a renewal: renewed, gone, busy or revoked
	Holder  string `json:"holder,omitempty"` // of a row: the acquisition that holds it alone, with Got and Expires
}

// Next is a hand-over of which a release tells.
type Next struct {
	Acq     string `json:"acq"`
	Token   int64  `json:"token"`
	Slot    int    `json:"slot,omitempty"`
	Expires int64  `json:"expires"`
	Now     int64  `json:"now"`
}

// Row is a row of the table lock, with the claims of the name in the order of their places.
type Row struct {
	Name    string `json:"name"`
	Version int64  `json:"version"`
	Acq     string `json:"acq,omitempty"`
	Owner   string `json:"owner,omitempty"`
	Locker  string `json:"locker,omitempty"`
	Holds   int    `json:"holds,omitempty"`
	Since   int64  `json:"since,omitempty"`
	Expires int64  `json:"expires,omitempty"`
	Before  int64  `json:"not_before,omitempty"`
	Permits int    `json:"permits,omitempty"`
	Waiting int    `json:"waiting,omitempty"`
	Holding int    `json:"holding,omitempty"`
	Seq     int64  `json:"seq,omitempty"`
	Revoked int64  `json:"revoked,omitempty"`

	Claims []Claim `json:"claims,omitempty"`
}

// Claim is a row of the table claim.
type Claim struct {
	Acq     string `json:"acq"`
	Holding bool   `json:"holding,omitempty"`
	Kind    int    `json:"kind,omitempty"`
	Slot    int    `json:"slot,omitempty"`
	Seq     int64  `json:"seq"`
	Token   int64  `json:"token,omitempty"`
	Holds   int    `json:"holds,omitempty"`
	TTL     int64  `json:"ttl,omitempty"`
	Handed  int64  `json:"handed,omitempty"`
	Since   int64  `json:"since,omitempty"`
	Expires int64  `json:"expires,omitempty"`
	Locker  string `json:"locker,omitempty"`
	Owner   string `json:"owner,omitempty"`
}
