package replay

import (
	"fmt"

	"github.com/sqllock/sqllock/faults/internal/history"
)

// read is something that somebody has seen of a name: a snapshot of the tables, a lease that is
// held, an answer that needed no change. What was seen is some world of the time between from and
// to.
type read struct {
	from, to int64
	what     what
	ok       func(w *world) bool
}

// what names a read for people.
type what struct {
	event *history.Event
	call  *call
	row   *history.Row
}

func (w what) String() string {
	switch {
	case w.call != nil:
		return w.call.String()
	case w.row != nil:
		return fmt.Sprintf("the snapshot at %d: %+v", w.event.T, *w.row)
	}
	return fmt.Sprintf("the %s of %s with token %d at %d", w.event.Op, w.event.Lease, w.event.Token, w.event.T)
}

func (c *call) String() string {
	if !c.known {
		return fmt.Sprintf("the %s of %s at %d, whose answer is not known", c.what, c.acq, c.event)
	}
	return fmt.Sprintf("the %s of %s at %d, answered with %+v", c.what, c.acq, c.event, c.Answer)
}

func (g *grant) String() string {
	return fmt.Sprintf("the grant with token %d to %s at %d", g.token, g.acq, g.at)
}
