package history

// The kinds of what Lock acquires, in cells with options.
const (
	Exclusive = "exclusive"
	Shared    = "shared"
	Permit    = "permit"
	Together  = "lockall" // several names
	Once      = "once"
	Election  = "election"
	Adopted   = "adopted" // a term that another lease has detached
)

// Kinds are all of them.
var Kinds = []string{Exclusive, Shared, Permit, Together, Once, Election, Adopted}

// How leases end, by the will of their holders.
const (
	Plainly       = "unlock"
	ByUnlockTx    = "UnlockTx"
	ByUnlockInTx  = "UnlockInTx"
	AfterGuard    = "guard"   // a transaction that guarded the lease has ended
	UnderGuard    = "guarded" // such a transaction is still open
	BeyondMaxHold = "kept past MaxHold"
	ByDetach      = "detach"
)

// Endings are all of them.
var Endings = []string{Plainly, ByUnlockTx, ByUnlockInTx, AfterGuard, UnderGuard, BeyondMaxHold, ByDetach}

// EndingsOf are the endings that a kind may have, without that of MaxHold, the more frequent ones more
// than once.
func EndingsOf(kind string) []string {
	switch kind {
	case Shared:
		return []string{Plainly}
	case Permit, Together, Once:
		return []string{Plainly, AfterGuard}
	}
	return []string{Plainly, ByUnlockTx, ByUnlockTx, ByUnlockInTx, AfterGuard, UnderGuard, ByDetach}
}

// Unknown is the reason of an end of which the database has not said whether it came: the library sees
// to it in the background, and Unlock has nothing to do.
const Unknown = "unknown"

// Mismatch is a Lock for a permit of a semaphore that has another number of them; it must fail.
const Mismatch = "mismatch"

// Options are those of an acquisition. Times are ns.
type Options struct {
	TTL     int64  `json:"ttl"`
	MinHold int64  `json:"min_hold,omitempty"`
	MaxHold int64  `json:"max_hold,omitempty"`
	Delay   int64  `json:"delay,omitempty"` // LockDelay
	Value   string `json:"value,omitempty"`
	User    string `json:"user,omitempty"` // what kind of user of the library it is
}

// Trusted is for how long a holder trusts a grant at most, without a renewal.
func (o *Options) Trusted() int64 {
	if o.MaxHold > 0 {
		return min(o.TTL, o.MaxHold)
	}
	return o.TTL
}

// Kept is for how long the database keeps the name after a grant.
func (o *Options) Kept() int64 { return max(o.Trusted(), o.MinHold) + o.Delay }
