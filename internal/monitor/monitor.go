// Package monitor reads what operators look at, for a page in the browser and for a terminal: a
// page of names, what is counted over all names, what was lost lately, and the history of a name.
package monitor

import (
	"context"

	"github.com/sqllock/sqllock"
)

// Query is which names are read.
type Query struct {
	Prefix string
	After  string // read those behind it
	Free   bool   // read also those that are free
	Limit  int
}

// Page reads the first names of a query. next is what they are to be read after that follow, ""
// if there are none.
func Page(ctx context.Context, locks *sqllock.Locker, q Query) (rows []sqllock.Info, next string, err error) {
	opts := []sqllock.ListOption{sqllock.Prefix(q.Prefix), sqllock.After(q.After), sqllock.Limit(q.Limit + 1)}
	if q.Free {
		opts = append(opts, sqllock.IncludeFree())
	}
	for info, err := range locks.List(ctx, opts...) {
		if err != nil {
			return nil, "", err
		}
		if len(rows) == q.Limit {
			return rows, rows[len(rows)-1].Name, nil
		}
		rows = append(rows, info)
	}
	return rows, "", nil
}

// State is the state of a name in one word. That a name is kept matters more than how its last
// term ended.
func State(i *sqllock.Info) string {
	if !IsHeld(i) && !i.KeptUntil.IsZero() {
		return "kept"
	}
	return i.State.String()
}

// IsHeld reports that a term goes on, that of a holder or one that is detached.
func IsHeld(i *sqllock.Info) bool {
	return i.State == sqllock.StateHeld || i.State == sqllock.StateDetached
}
