// Package history is the history that the processes of a fault run write: one JSON object
// a line. The times are of a clock that all processes of the machine share and that is
// never set.
//
// A call has one line before it is made and one after it has returned. Lines go straight
// to the file. If a process is killed, at most its last line is incomplete.
package history

import "strconv"

// The operations. Of those of a client, Lock to Inspect are calls: they have an event
// before and one after, with one ID.
const (
	Lock     = "lock"     // Lock, RLock and their kin
	Enter    = "enter"    // a re-entry of the lease in the context
	Leave    = "leave"    // the unlock of a re-entry
	Unlock   = "unlock"   // the end of a lease
	Announce = "announce" // the token, to the fenced register
	Read     = "read"     // of the fenced register
	Fenced   = "fenced"   // a write that carries the token
	Guarded  = "guarded"  // a write in a transaction that guards the lease
	Plain    = "plain"    // a write that nothing protects, some time after a look
	Inspect  = "inspect"
	Ends     = "ends" // what ends a lease before its Unlock: a transaction, or Detach; see the ends
	OnceEnds = "once" // the end of a call of Once

	Requested = "request" // a call of the library to its store, in unique mode: an event before, and one after
	Rows      = "rows"    // what the tables said at some moment between T and Until
	Changed   = "changed" // changes of the tables, in their order; it comes at the end

	Look  = "look"  // what a lease reported between T and Until
	Done  = "done"  // the context of a lease ended
	Open  = "open"  // a client has its Locker
	Drain = "drain" // a client begins nothing new
	Left  = "left"  // what a client left at the end
	Exit  = "exit"  // a process has ended

	Busy   = "busy"   // the machine or the server was slow from T to Until without a fault
	Kept   = "kept"   // a lease that is kept all the time, of the TTL N: it was granted, or was lost
	Outage = "outage" // the server takes no writes: an event when that begins, and one when it ends

	Fault = "fault" // a call of a nemesis: from its strike until it has healed
)

// Event is a line of a history.
type Event struct {
	T    int64  `json:"t"`              // ns
	Op   string `json:"op"`             // one of the constants
	Ret  bool   `json:"ret,omitempty"`  // the call has returned
	ID   string `json:"id,omitempty"`   // of the call
	Proc string `json:"proc,omitempty"` // client.incarnation; the target of a fault, "" for all
	Work int    `json:"work,omitempty"` // worker of the client

	Lease  string `json:"lease,omitempty"` // ID of the Lock that began it
	Name   string `json:"name,omitempty"`
	Shared bool   `json:"shared,omitempty"`
	Permit bool   `json:"permit,omitempty"` // of a semaphore, with the Slot when that is known
	Slot   int    `json:"slot,omitempty"`
	Token  int64  `json:"token,omitempty"`
	Owner  string `json:"owner,omitempty"`
	Start  int64  `json:"start,omitempty"` // of the term, on the clock of the database, µs
	Left   int64  `json:"left,omitempty"`  // Remaining, ns
	Until  int64  `json:"until,omitempty"` // of a look: when it had been taken; of Busy its end
	Age    int64  `json:"age,omitempty"`   // of the token, by the wall clock of the machine, ns
	Late   int64  `json:"late,omitempty"`  // by how much the process overslept of late, ns
	N      int64  `json:"n,omitempty"`     // the value that a register had or got; the number of injections of a fault

	OK     bool   `json:"ok,omitempty"`     // the lease is not lost; the write was accepted
	Lost   bool   `json:"lost,omitempty"`   // the error is an ErrLost
	Refuse bool   `json:"refuse,omitempty"` // the error means that nothing was done
	Cycle  bool   `json:"cycle,omitempty"`  // the error is an ErrDeadlock
	Reason string `json:"reason,omitempty"` // of a loss; of a fault its kind
	Err    string `json:"err,omitempty"`

	Ends bool `json:"ends,omitempty"` // a fault that may end sessions of the database

	Kind    string   `json:"kind,omitempty"`    // of Lock: what is acquired, see the kinds
	How     string   `json:"how,omitempty"`     // of Ends and Unlock: see the ends
	Options *Options `json:"options,omitempty"` // of Lock
	Key     string   `json:"key,omitempty"`     // of Once
	From    string   `json:"from,omitempty"`    // of Lock: the lease whose detached term is adopted

	Wall     int64     `json:"wall,omitempty"`     // of Requested and Rows: T by the clock of the database, µs
	Locker   string    `json:"locker,omitempty"`   // of Requested
	Requests []Request `json:"requests,omitempty"` // the event after it has the answers only
	Names    []Row     `json:"names,omitempty"`    // of Rows, with all claims
	Changes  []Change  `json:"changes,omitempty"`  // of Changed
}

// Line is where tokens rise from term to term, and where one register is: the name, or one slot
// of a semaphore.
func (e *Event) Line() string {
	if !e.Permit {
		return e.Name
	}
	return Slot(e.Name, e.Slot)
}

// Slot is the line of a slot.
func Slot(name string, slot int) string { return name + "/" + strconv.Itoa(slot) }
