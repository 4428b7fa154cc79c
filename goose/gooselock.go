// Package gooselock lets any number of processes run goose at once on one database,
// with a lock of package sqllock: on Postgres, and on MySQL and MariaDB, for which
// goose has none of its own.
//
// A [Locker] is both of what goose can use. With goose.WithSessionLocker the session
// that migrates is locked as well, so that nobody migrates beside a process that has
// lost its lease while the server still works for it. With goose.WithLocker it is
// the lease alone, which works through a pooler in transaction mode too. Either way
// call goose inside of [Locker.Do].
//
// The tables of sqllock must be there before goose begins: call migrations.Up of
// package sqllock/migrations first, in as many processes at once as you like.
package gooselock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/pressly/goose/v3/lock"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
)

// Locker holds a name while goose migrates. It is safe for concurrent use; of the
// goroutines that use one Locker, one migrates at a time, even after a loss. Make one
// with [New].
//
// Goose uses one connection of its pool, and a second one for a Go migration that
// is run without a transaction. The lock needs another for its renewals, in the modes
// for update and advisory two. A pool that both share must be as large as all of that.
type Locker struct {
	locks *sqllock.Locker
	name  string
	opts  []sqllock.LockOption

	slot chan struct{} // full from before a lock until after its unlock

	mu   sync.Mutex
	term *term // nil while nobody holds
}

var (
	_ lock.Locker        = (*Locker)(nil)
	_ lock.SessionLocker = (*Locker)(nil)
)

// term is the time between a lock and its unlock.
type term struct {
	lease *sqllock.Lease
	conn  *sql.Conn // on which goose migrates; nil if its session is not locked
	pin   pin
}

// New returns a Locker for goose that locks name with locks, of any mode. All
// processes that migrate one database must use one name and one mode; name is that
// of a lock like others, and "goose" would do. Options are those of Lock:
// sqllock.Wait bounds the wait for other processes, which by default ends with the
// context.
//
// The lease is renewed for as long as the migrations take. Keep locks open until
// goose has returned. New runs no SQL. It returns [sqllock.ErrInvalidOption] if locks
// or an option is nil, and [sqllock.ErrInvalidName].
func New(locks *sqllock.Locker, name string, opts ...sqllock.LockOption) (*Locker, error) {
	if locks == nil {
		return nil, fmt.Errorf("gooselock: %w", driver.NilError("*sqllock.Locker"))
	}
	if err := driver.CheckName(name); err != nil {
		return nil, fmt.Errorf("gooselock: %w", err)
	}
	if slices.ContainsFunc(opts, func(opt sqllock.LockOption) bool { return opt == nil }) {
		return nil, fmt.Errorf("gooselock: %w", driver.NilError("sqllock.LockOption"))
	}
	return &Locker{locks: locks, name: name, opts: slices.Clone(opts), slot: make(chan struct{}, 1)}, nil
}

// Do waits until it holds the name and runs fn, which calls goose with the context
// that it is given. That ends with ctx, or when the lease is lost, of which goose
// hears in no other way. Then goose stops: the transaction of a migration is rolled
// back, and no further one begins. What MySQL and MariaDB are in the middle of may go
// on for a while, and statements that change tables are not undone there.
//
// Goose's Up looks at its version table, and makes it, before it locks anything. On an
// empty MySQL or MariaDB those who do so at once can get in each other's way ("missing
// zero version migration"); within Do they do not. And who waits in Do has not yet
// taken a connection for goose.
//
// Do returns the errors of fn and of the unlock, joined; so an [sqllock.ErrLost] if
// the lease was lost, even if goose noticed nothing.
func (l *Locker) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	if fn == nil {
		return fmt.Errorf("gooselock: %w", driver.NilError("function"))
	}
	return l.locks.Do(ctx, l.name, func(ctx context.Context, _ *sqllock.Lease) error { return fn(ctx) }, l.opts...)
}

// Lock implements lock.Locker, for goose.WithLocker: it waits until it holds the
// name. If ctx carries a lease of the name, as that of [Locker.Do] does, it re-enters
// that. It does not use the handle.
//
// Errors are those of [sqllock.Locker.Lock]. But where the pool has no connection for
// the lock beside that of goose, it does not wait until ctx ends: after the time that
// one statement may take, 5 s by default, it returns [sqllock.ErrPoolExhausted].
func (l *Locker) Lock(ctx context.Context, _ *sql.DB) error {
	return l.lock(ctx, nil)
}

// Unlock implements lock.Locker, with the errors of [sqllock.Lease.Unlock]. An
// [sqllock.ErrLost] says that the lease was lost on the way, and that somebody else
// may have migrated at the same time. Goose returns it.
func (l *Locker) Unlock(ctx context.Context, _ *sql.DB) error {
	return l.unlock(ctx, nil)
}

// Lease returns the lease under which goose migrates now, nil if it does not. A Go
// migration that runs in a transaction can guard it: then what it writes is
// committed only if nobody else has the name.
func (l *Locker) Lease() *sqllock.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term == nil {
		return nil
	}
	return l.term.lease
}

// lock begins a term, with the session of conn if that is not nil.
func (l *Locker) lock(ctx context.Context, conn *sql.Conn) error {
	if err := driver.CheckContext(ctx); err != nil {
		return fmt.Errorf("gooselock: %w", err)
	}
	select {
	case l.slot <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("gooselock: lock %q: this process migrates already: %w", l.name, context.Cause(ctx))
	}
	t, err := l.begin(ctx, conn)
	if err != nil {
		<-l.slot
		return err
	}
	l.mu.Lock()
	l.term = t
	l.mu.Unlock()
	return nil
}

func (l *Locker) begin(ctx context.Context, conn *sql.Conn) (*term, error) {
	lease, err := l.acquire(ctx)
	if errors.Is(err, sqllock.ErrPoolExhausted) {
		err = fmt.Errorf("gooselock: goose has a connection of the pool, and the lock needs more: one in the mode unique, two in the others; "+
			"allow that many with SetMaxOpenConns: %w", err)
	}
	if err != nil {
		return nil, err
	}
	t := &term{lease: lease, conn: conn}
	if conn != nil {
		if t.pin, err = l.pin(ctx, lease, conn); err != nil {
			return nil, errors.Join(err, lease.Unlock(ctx))
		}
	}
	return t, nil
}

// acquire tries once, and then waits: Lock alone would ask again and again where the
// pool has nothing to give, while goose keeps a connection. Who re-enters has asked
// for nothing yet, so one statement more shows that there is one for renewals.
func (l *Locker) acquire(ctx context.Context) (*sqllock.Lease, error) {
	lease, err := l.locks.Lock(ctx, l.name, append(slices.Clip(l.opts), sqllock.Tries(1))...)
	if err != nil && !errors.Is(err, sqllock.ErrPoolExhausted) {
		lease, err = l.locks.Lock(ctx, l.name, l.opts...)
	}
	if err != nil {
		return nil, err
	}
	if _, err := l.locks.Inspect(ctx, l.name); errors.Is(err, sqllock.ErrPoolExhausted) {
		return nil, errors.Join(err, lease.Unlock(ctx))
	}
	return lease, nil
}

// unlock ends the term, if it is of this conn.
func (l *Locker) unlock(ctx context.Context, conn *sql.Conn) error {
	l.mu.Lock()
	t := l.term
	if t == nil || t.conn != conn {
		l.mu.Unlock()
		return fmt.Errorf("gooselock: unlock %q: %w", l.name, sqllock.ErrNotHeld)
	}
	l.term = nil
	l.mu.Unlock()
	defer func() { <-l.slot }()
	var err error
	if conn != nil {
		err = t.pin.free(ctx, conn)
	}
	return errors.Join(t.lease.Unlock(ctx), err)
}
