package sqllock

import (
	"context"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/clock"
)

// Trust is how long a lease of the given TTL is believed in.
var Trust = clock.Trust

// SystemNow reads the clock that Lockers use outside of tests.
func SystemNow() time.Duration { return clock.System{}.Now() }

// ClassifyingStore is a store that knows its errors.
type ClassifyingStore interface {
	driver.Store
	Classify(err error) driver.Fault
}

// NewWithClock returns a Locker of the unique mode on a store, with a clock of
// the test's.
func NewWithClock(store ClassifyingStore, now func() time.Duration, opts *UniqueOptions) (*Locker, error) {
	cfg, err := opts.config()
	if err != nil {
		return nil, err
	}
	return newLocker(newID(), cfg, newUniqueMode(store, store.Classify), clock.Func(now)), nil
}

// SetTables makes the number of names that the Locker keeps in memory visible.
func (l *Locker) QueueLen() int {
	l.queue.mu.Lock()
	defer l.queue.mu.Unlock()
	return len(l.queue.names)
}

// EndExpired has the keeper end the term of a lease if its deadline has passed, and reports whether the
// keeper keeps the term.
func (l *Lease) EndExpired() (kept bool) {
	k := l.term.locker.keeper
	k.endExpired([]*term{l.term})
	k.mu.Lock()
	defer k.mu.Unlock()
	_, kept = k.terms[l.term]
	return kept
}

// Wants says whether requests with an acquisition that waits go on.
func (l *Locker) Wants(acq driver.ID) bool { return l.claims.wants(acq) }

// Hooked says whether each statement goes through the hook Statement.
func (l *Locker) Hooked() bool {
	_, hooked := l.mode.backend.(*hookedBackend)
	return hooked
}

// NewSessionsWithClock returns a Locker of a mode that keeps locks in sessions: in at most
// maxConns of one lock each, or in one session for all locks if that is 0.
func NewSessionsWithClock(store driver.SessionStore, now func() time.Duration, opts *ForUpdateOptions, maxConns int) (*Locker, error) {
	cfg, err := opts.config()
	if err != nil {
		return nil, err
	}
	return newLocker(newID(), cfg, newSessionMode(store, &cfg, maxConns), clock.Func(now)), nil
}

// Deadlines lends contexts that end at a time, or a little before it.
type Deadlines struct{ d deadlines }

// Borrow returns a context, and the function that gives it back.
func (d *Deadlines) Borrow(base context.Context, until time.Time, early time.Duration) (context.Context, func()) {
	s := d.d.borrow(base, until, early)
	return s.Context, func() { d.d.giveBack(s) }
}
