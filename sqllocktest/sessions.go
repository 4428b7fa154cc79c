package sqllocktest

import (
	"errors"
	"time"

	"github.com/sqllock/sqllock"
)

// What tests of all pairs need to know of modes that keep locks in sessions.

// inSessions reports that locks are kept by sessions of the database.
func (e *env) inSessions() bool { return e.h.Sessions != nil }

// noted is an option with which it is known at once who holds. In the mode advisory
// on Postgres a holder may write that down some time later.
var noted = sqllock.Value([]byte("noted"))

// known waits until l is told who holds a name that is held.
func (e *env) known(l *sqllock.Locker, name string) *sqllock.HeldError {
	e.Helper()
	held := e.wantHeld(l, name)
	if e.inSessions() {
		e.eventually(patience, "it is known who holds the name", func() bool {
			held = e.wantHeld(l, name)
			return held.Label != ""
		})
	}
	return held
}

// losable makes sure that the test may make leases lost, which in sessions takes a
// database of its own. It comes before everything else that a test does.
func (e *env) losable() {
	e.Helper()
	if e.inSessions() {
		e.fresh()
	}
}

// kill has the server end all sessions.
func (e *env) kill() {
	e.Helper()
	db, _ := e.open(e.source(), 1)
	if err := e.h.Sessions.Kill(e.ctx(), db); err != nil {
		e.Fatalf("kill the sessions: %v", err)
	}
	_ = db.Close()
	if e.db != nil { // what is idle in the pool is dead
		e.db.SetMaxIdleConns(-1)
		e.db.SetMaxIdleConns(e.roomy())
	}
}

// over makes the leases of a test that is losable ones that have ended, each in a
// way that its holder does not hear of at once.
func (e *env) over(leases ...*sqllock.Lease) {
	e.Helper()
	if e.inSessions() {
		e.kill()
		return
	}
	for _, lease := range leases {
		e.expire(lease.Name())
	}
}

// wantReason checks why a lease of a test that is losable was lost.
func (e *env) wantReason(lost *sqllock.LostError) {
	e.Helper()
	want := sqllock.LostTaken
	if e.inSessions() {
		want = sqllock.LostSession
	}
	if lost.Reason != want {
		e.Errorf("want the reason %q, got %+v", want, lost)
	}
}

// gone checks that nobody is left who would take a name. Where waiters wait in the
// database, one that has given up may be on its way out for as long as one statement
// waits.
func (e *env) gone(l *sqllock.Locker, name string) {
	e.Helper()
	e.wantFree(l, name, toldWithin)
}

// forced locks a name after a ForceUnlock. A holder whose session keeps the name says
// that it gives up just before it does.
func (e *env) forced(l *sqllock.Locker, name string) *sqllock.Lease {
	e.Helper()
	if !e.inSessions() {
		return e.try(l, name)
	}
	start := time.Now()
	lease := e.lock(l, name)
	if took := time.Since(start); took > toldWithin {
		e.Errorf("the name was free %v after ForceUnlock", took)
	}
	return lease
}

// soon is a TTL after which an abandoned session has ended before the test has.
const soon = 2 * time.Second

// crash ends a Locker of a test that is losable, with all that it holds.
func (e *env) crash(l *sqllock.Locker, leases ...*sqllock.Lease) {
	e.Helper()
	e.over(leases...)
	if e.inSessions() {
		for _, lease := range leases {
			receive(e, lease.Context().Done(), "the holder hears of the end of its session")
		}
	}
	e.abandon(l)
}

// refusedGuard checks that Guard was refused, whoever found out first.
func (e *env) refusedGuard(what string, err error) {
	e.Helper()
	if !errors.Is(err, sqllock.ErrFenced) && !(e.inSessions() && errors.Is(err, sqllock.ErrLost)) {
		e.Errorf("%s: want ErrFenced, or ErrLost where the session was known to be gone; got %v", what, err)
	}
}
