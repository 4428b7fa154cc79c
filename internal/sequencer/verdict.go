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
func VerdictOf(r *driver.Row, held bool, t Term, sessions bool) Verdict {
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
