package history

// The tables whose changes are written down.
const (
	LockTable   = "lock"
	ClaimTable  = "claim"
	WaiterTable = "waiter"
)

// Change is a change of a row, as the database has written it down in the same transaction. So what
// a transaction that was undone has changed is not there.
type Change struct {
	At    int64   `json:"at"` // when, on the clock of the database
	Tx    int64   `json:"tx"` // the transaction; of MariaDB the session, which has one at a time
	Table string  `json:"table"`
	Old   *Record `json:"old,omitempty"` // nil if the row is new
	New   *Record `json:"new,omitempty"` // nil if it was deleted
}

// Record is a row of one of the tables, with the names that its columns have there. It has those
// that the rules of a name decide on.
type Record struct {
	Name    string `json:"name,omitempty"`
	Acq     string `json:"acq,omitempty"`
	Locker  string `json:"locker,omitempty"`
	Owner   string `json:"owner,omitempty"`
	Version int64  `json:"version,omitempty"`
	Holds   int    `json:"holds,omitempty"`
	Since   int64  `json:"since,omitempty"`
	Expires int64  `json:"expires_at,omitempty"`
	Before  int64  `json:"not_before,omitempty"`
	Permits int    `json:"permits,omitempty"`
	Waiting int    `json:"waiting,omitempty"`
	Holding int    `json:"holding,omitempty"`
	Seq     int64  `json:"seq,omitempty"`
	Revoked int64  `json:"revoked,omitempty"`

	State  int   `json:"state,omitempty"`
	Kind   int   `json:"kind,omitempty"`
	Slot   int   `json:"slot,omitempty"`
	Token  int64 `json:"token,omitempty"`
	TTL    int64 `json:"ttl,omitempty"`
	Handed int64 `json:"handed,omitempty"`
}
