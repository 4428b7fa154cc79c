// Package locktest gives tests a real Locker without a server: in unique mode, on an SQLite
// database that only the test has.
//
//	func TestOneReportIsWritten(t *testing.T) {
//		service := NewService(locktest.New(t, nil))
//		…
//	}
//
// The Locker is closed at the end of the test. A lease that is then still held fails the test.
//
// A [Database] also makes a lease lost, the database unreachable, and time pass. Several
// Lockers on one Database act like several processes. Tests can run in parallel, because each
// Database has tables of its own.
//
// # Time
//
// The easy way to let time pass is a bubble of [testing/synctest]. A Database that is made inside
// a bubble has its clock: the Lockers trust their leases by it, and the database reads it. Sleep
// for an hour, and leases are renewed as in an hour, at once. Make everything that the test uses
// inside the bubble, the Database too.
//
// Outside of a bubble the clocks run as usual. [Database.Advance] sets them forward.
//
// # What it is not
//
// The database is SQLite: transactions that write run one after the other, and waiters poll. It
// is not for several processes. What depends on a server, such as push, the modes for update and
// advisory, or a connection that breaks, needs a test on that server.
package locktest

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
)

// ErrDown is the error of each statement while a [Database] is down.
var ErrDown = errors.New("locktest: the database is down")

// closeTimeout is for how long a Locker waits at the end of a test for holders to unlock.
const closeTimeout = 5 * time.Second

// New returns a Locker on a [Database] of its own. It is short for NewDatabase(tb).Locker(opts).
func New(tb testing.TB, opts *sqllock.UniqueOptions) *sqllock.Locker {
	tb.Helper()
	return NewDatabase(tb).Locker(opts)
}

// Locker returns a new Locker in unique mode, with any options; nil means the defaults. Without
// a Logger in the options, the Locker writes its warnings to the output of the test.
//
// At the end of the test the Locker is closed: the contexts of its leases end with cause
// [sqllock.ErrClosed], and their holders have five seconds to unlock them. A lease that is held
// even then is an error of the test, which names it. The Locker is closed before the cleanups run
// that were registered before this call. So stop what works under a lease in the test itself or
// in a later cleanup.
func (d *Database) Locker(opts *sqllock.UniqueOptions) *sqllock.Locker {
	d.tb.Helper()
	var o sqllock.UniqueOptions
	if opts != nil {
		o = *opts
	}
	if o.Logger == nil {
		output := slog.NewTextHandler(d.tb.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})
		o.Logger = slog.New(handler{output})
	}
	target := &target{Database: d.locks, database: d}
	locks, err := sqllock.NewUnique(context.Background(), target, &o)
	if err != nil {
		d.tb.Fatalf("locktest: %v", err)
	}
	d.add(target.instance, locks)
	d.tb.Cleanup(func() { d.closeLocker(target.instance, locks) })
	return locks
}

// closeLocker closes a Locker and reports the leases that are left.
func (d *Database) closeLocker(instance string, locks *sqllock.Locker) {
	d.tb.Helper()
	d.Up()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	err := locks.Close(ctx)
	switch {
	case err == nil:
	case ctx.Err() == nil:
		d.tb.Errorf("locktest: %v", err)
	default:
		d.tb.Errorf("locktest: leases are left held at the end of the test, of %s: %v", d.heldBy(instance), err)
	}
}

// handler drops the warning that a power failure damages the file.
type handler struct{ slog.Handler }

// Handle implements [slog.Handler].
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "synchronous is off") {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}
