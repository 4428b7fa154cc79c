package sequencer

import (
	"math"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// VerdictOf compares a term with the row of its name, and whether that is held. Sessions
// says that sessions of the database keep the name.
//
// In unique mode, the tokens of all terms of a name rise. In sessions only those of
// exclusive terms do: readers have tokens of their own, several at a time. The row may have
// the token of a reader, and then names no holder.
//
// Permits that are held at the same time have different tokens. Of a term with a permit the row
// must have the slots.
func VerdictOf(r *driver.Row, held bool, t Term, sessions bool) Verdict {
	if t.Permit || r.Holder.Permit {
		return permitVerdict(r, t)
	}
	last := r.Holder.Version
	nameless := sessions && r.Holder.Acq == driver.ID{}
	v := Verdict{Left: math.MaxInt64}
	switch {
	case last == 0, nameless: // other readers may have lower tokens
	case held:
		v.Floor = last
	default:
		v.Floor = last + 1
	}
	v.All = v.Floor
	switch {
	case t.Token > last, nameless && t.Shared:
	case t.Token == last && held && t.Shared == r.Holder.Shared:
		v.State = Current
		if !r.Session {
			v.Left = time.Duration(r.Holder.Until-r.Now) * time.Microsecond
		}
	default:
		v.State = Stale
	}
	return v
}

// permitVerdict is VerdictOf for a permit, or for a name whose permits are held.
func permitVerdict(r *driver.Row, t Term) Verdict {
	last := r.Holder.Version
	v := Verdict{Left: math.MaxInt64, State: Stale}
	if last != 0 {
		v.Floor, v.All = last+1, last+1
	}
	if r.PermitsHeld > 0 {
		v.All = 0 // unless it is known which tokens are held
	}
	if held := r.Holder.Acq != (driver.ID{}) || r.Readers > 0; held {
		v.All = last
	}
	for i := range r.Slots {
		s := &r.Slots[i]
		if v.All == 0 || s.Version < v.All {
			v.All = s.Version
		}
		if !t.Permit || s.Slot != t.Slot {
			continue
		}
		if v.Floor = s.Version; s.Version == t.Token {
			v.State, v.Left = Current, time.Duration(s.Until-r.Now)*time.Microsecond
		}
	}
	if v.State != Current && t.Token > last && t.Token >= v.Floor {
		v.State = Unknown
	}
	return v
}
