package check

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/sqllock/sqllock/faults/internal/history"
)

const never = math.MaxInt64

// A lease is a successful acquisition in a history.
type lease struct {
	id, proc, name, owner string
	shared, permit        bool
	slot                  int // of a permit
	token                 int64
	call, ret             int64 // of Lock
	kind                  string
	age                   time.Duration // of the token when Lock returned
	what                  string        // of package history, the kind of what was acquired
	options               history.Options
	key                   string // of Once
	from                  string // the lease whose detached term it has adopted

	looks        []history.Event // in the order of T
	unlock       int64           // when Unlock, or what ended the lease before it, was called, never if it was not
	unlocked     int64           // when it returned
	ending       string          // of package history, how its holder was to end it
	endsDone     bool            // the transaction, or Detach, that was to end it did
	guardDone    bool            // a transaction that guarded it was committed
	detached     bool            // its term was given away
	unknown      bool            // it is over for its holder, but perhaps not for the database
	unlockedWell bool            // and reported that the lease was held until then
	done         *history.Event  // the end of its context
}

// believed returns the last time at which the holder saw that it held. A loss is final,
// so a look that reports a held lease is true for all the time before.
func (l *lease) believed() int64 {
	if l.unlockedWell {
		return l.unlock
	}
	until := l.ret
	for _, look := range l.looks {
		if look.OK {
			until = max(until, look.T)
		}
	}
	return min(until, l.unlock)
}

// seen reports whether the holder saw that it held. A process that was paused before Lock
// returned may have lost the name by then.
func (l *lease) seen() bool {
	return l.unlockedWell || slices.ContainsFunc(l.looks, func(look history.Event) bool { return look.OK })
}

// claimed returns until when Remaining promised the name to the holder. An earlier loss
// or unlock ends the promise.
func (l *lease) claimed() int64 {
	until := l.ret
	for _, look := range l.looks {
		if look.OK && look.Left > 0 {
			until = max(until, look.T+look.Left)
		}
	}
	if l.done != nil {
		until = min(until, l.done.T)
	}
	return min(until, l.unlock)
}

// fault is a strike of a nemesis.
type fault struct {
	kind, proc string // proc is "" if it hits all
	from, to   int64  // to is never while it is active
	ends       bool
	injections int // of how many single ones it consisted
}

func (f *fault) hits(proc string) bool { return f.proc == "" || f.proc == proc }

// run is a history in the form that checks want.
type run struct {
	rules  Rules
	events []history.Event // in the order of time
	leases map[string]*lease
	names  map[string][]*lease // in the order of ret
	lines  map[string][]*lease // the same, with each slot of a semaphore apart
	faults []*fault
	clock  clock
	busy   []span
	last   int64 // time of the last event
}

func build(events []history.Event, rules Rules) *run {
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b history.Event) int { return cmp.Compare(a.T, b.T) })
	r := &run{rules: rules, events: events, leases: make(map[string]*lease), names: make(map[string][]*lease), lines: make(map[string][]*lease)}
	r.clock = clockOf(events)
	calls := make(map[string]int64)
	open := make(map[string]*fault)
	for _, e := range events {
		r.last = max(r.last, e.T)
		if e.ID != "" && !e.Ret {
			calls[e.ID] = e.T
		}
		switch e.Op {
		case history.Lock:
			r.granted(e, calls[e.ID])
		case history.Fault:
			r.addFault(open, e)
		case history.Busy:
			r.busy = append(r.busy, span{e.T, e.Until})
		}
	}
	// The lines about a lease may come before the line of the return of its Lock.
	for i, e := range events {
		if l := r.leases[e.Lease]; l != nil {
			l.note(&events[i])
		}
	}
	for _, byName := range []map[string][]*lease{r.names, r.lines} {
		for _, leases := range byName {
			slices.SortFunc(leases, func(a, b *lease) int { return cmp.Compare(a.ret, b.ret) })
		}
	}
	return r
}

func (r *run) granted(e history.Event, call int64) {
	if !e.Ret || e.Err != "" {
		return
	}
	l := &lease{
		id: e.Lease, proc: e.Proc, name: e.Name, owner: e.Owner, shared: e.Shared, permit: e.Permit, slot: e.Slot, token: e.Token,
		call: call, ret: e.T, kind: e.Reason, age: time.Duration(e.Age), unlock: never, unlocked: never,
		what: e.Kind, options: history.Options{TTL: int64(r.rules.TTL)}, key: e.Key, from: e.From,
	}
	if e.Options != nil {
		l.options = *e.Options
	}
	r.leases[l.id] = l
	r.names[l.name] = append(r.names[l.name], l)
	r.lines[e.Line()] = append(r.lines[e.Line()], l)
}

func (r *run) addFault(open map[string]*fault, e history.Event) {
	if e.Ret {
		if f := open[e.ID]; f != nil {
			f.to, f.injections = e.T, max(1, int(e.N))
		}
		return
	}
	f := &fault{kind: e.Reason, proc: e.Proc, from: e.T, to: never, ends: e.Ends, injections: 1}
	open[e.ID] = f
	r.faults = append(r.faults, f)
}

func (l *lease) note(e *history.Event) {
	switch {
	case e.Op == history.Look:
		l.looks = append(l.looks, *e)
	case e.Op == history.Done:
		l.done = e
	case e.Op == history.Guarded && e.Ret:
		l.guardDone = l.guardDone || e.OK && e.Err == ""
	case e.Op == history.Ends && e.Ret:
		l.endsDone = e.OK && e.Err == ""
		l.detached, l.unknown = e.OK && e.How == history.ByDetach, e.Reason == history.Unknown
	case (e.Op == history.Unlock || e.Op == history.Ends) && !e.Ret:
		l.unlock, l.ending = min(l.unlock, e.T), e.How
	case e.Op == history.Unlock:
		l.unlocked = e.T
		l.unlockedWell = e.Err == "" && !l.unknown
	}
}

// endedBy returns how a lease has ended: as it was to end if that was done, or else by Unlock.
func (l *lease) endedBy() string {
	done := true
	switch l.ending {
	case "":
		return ""
	case history.ByUnlockTx, history.ByUnlockInTx, history.ByDetach:
		done = l.endsDone
	case history.AfterGuard, history.UnderGuard:
		done = l.guardDone
	case history.BeyondMaxHold:
		done = l.done != nil && l.done.Lost
	}
	if !done {
		return history.Plainly
	}
	return l.ending
}

// killed returns when a process was killed, never if it was not.
func (r *run) killed(proc string) int64 {
	for _, f := range r.faults {
		if f.kind == Kill && f.proc == proc {
			return f.from
		}
	}
	return never
}

// The kinds of faults that checks have to know.
const (
	Kill  = "kill"  // a client gets SIGKILL
	Pause = "pause" // a client gets SIGSTOP, and SIGCONT when the fault ends
	// Outage: the server, or the network of a client, stands still for half a TTL.
	Outage = "outage"
)

// excused reports that two may have believed in this lease and in a later one: the
// database's clock was set, or a session ended that kept it.
func (r *run) excused(l *lease) bool {
	if r.rules.Unsteady {
		return true
	}
	if !r.rules.Sessions {
		return false
	}
	end := min(l.believed(), l.unlock)
	for _, f := range r.faults {
		// A client may notice a broken connection later, but within a TTL.
		if f.ends && f.hits(l.proc) && f.from <= end && (f.to == never || f.to+2*int64(r.rules.TTL) >= l.call) {
			return true
		}
	}
	return false
}

// revived reports that a lease may be of a term that was over, and is again.
func (r *run) revived(l *lease) bool { return r.rules.Forgets && l.shared }

// excludes reports that two leases of a name must not be held at the same time.
func excludes(a, b *lease) bool {
	if a.permit && b.permit {
		return a.slot == b.slot
	}
	return !a.shared || !b.shared
}
