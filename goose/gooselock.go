// Package gooselock lets several processes run goose on the same database at the same
// time. One of them migrates, and the others wait. The lock is one of package sqllock. It
// works on Postgres, and on MySQL and MariaDB, for which goose has no lock of its own.
//
// A [Locker] implements both interfaces of goose:
//
//   - With goose.WithSessionLocker, the session that migrates is locked too. If a process
//     loses its lease while the server still runs its migration, no other process migrates
//     before that session has ended.
//   - With goose.WithLocker, the lease is the only lock. This works through a pooler in
//     transaction mode too.
//
// In both cases, call goose within [Locker.Do].
//
// Create the tables of sqllock before goose begins: call migrations.Up of package
// sqllock/migrations. Several processes can call it at the same time.
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

// Locker holds a name while goose migrates. Make one with [New]. It is safe for concurrent
// use. Of the goroutines that use the same Locker, one migrates at a time, even after a
// loss.
//
// Goose uses one connection of its pool, and a second one for a Go migration without a
// transaction. The lock needs one more connection in unique mode, and two more in the
// for-update and advisory modes. A pool that both share must allow the sum.
type Locker struct {
	locks *sqllock.Locker
	name  string
	opts  []sqllock.LockOption

	slot chan struct{} // full from before a lock until after its unlock

	mu   sync.Mutex
	term *term // nil while the name is not held
}

var (
	_ lock.Locker        = (*Locker)(nil)
	_ lock.SessionLocker = (*Locker)(nil)
)

// A term lasts from a lock to its unlock.
type term struct {
	lease *sqllock.Lease
	conn  *sql.Conn // the connection of goose; nil if its session is not locked
	pin   pin
}

// New returns a Locker for goose that locks name with locks, which may have any mode. All
// processes that migrate the same database must use the same name and the same mode. Any
// valid name will do, for example "goose". The options are those of [sqllock.Locker.Lock].
// By default a process waits for the others until its context ends; [sqllock.Wait] sets a
// limit.
//
// The lease is renewed while the migrations run. Keep locks open until goose has returned.
//
// New runs no SQL. It returns [sqllock.ErrInvalidOption] if locks or an option is nil, or if an
// option is out of bounds or does not apply, and [sqllock.ErrInvalidName] if the name is not valid.
func New(locks *sqllock.Locker, name string, opts ...sqllock.LockOption) (*Locker, error) {
	if locks == nil {
		return nil, fmt.Errorf("gooselock: %w", driver.NilError("*sqllock.Locker"))
	}
	if err := driver.CheckName(name); err != nil {
		return nil, fmt.Errorf("gooselock: %w", err)
	}
	// Lock checks the options first, then the name, and both before any SQL.
	if _, err := locks.Lock(context.Background(), "", opts...); !errors.Is(err, sqllock.ErrInvalidName) {
		return nil, fmt.Errorf("gooselock: %w", err)
	}
	return &Locker{locks: locks, name: name, opts: slices.Clone(opts), slot: make(chan struct{}, 1)}, nil
}

// Do waits until it holds the name, and then calls fn. Call goose in fn with the context
// that fn gets. This context ends with ctx, and when the lease is lost. Goose notices a
// loss in no other way. Then goose rolls back the transaction of the current migration and
// begins no other. On MySQL and MariaDB the current statement can run on for a while, and
// statements that change tables cannot be rolled back.
//
// Do also helps on an empty MySQL or MariaDB. Up of goose creates its version table before
// it locks anything, and several processes can disturb each other there ("missing zero
// version migration"). Within Do only one process at a time does that. A process that waits
// in Do uses no connection for goose yet.
//
// Do returns the errors of fn and of the unlock, joined. The error wraps [sqllock.ErrLost]
// if the lease was lost, even if goose succeeded.
func (l *Locker) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	if fn == nil {
		return fmt.Errorf("gooselock: %w", driver.NilError("function"))
	}
	return l.locks.Do(ctx, l.name, func(ctx context.Context, _ *sqllock.Lease) error { return fn(ctx) }, l.opts...)
}

// Lock implements lock.Locker, for goose.WithLocker. It waits until it holds the name. If
// ctx carries a lease of the name, as the context of [Locker.Do] does, Lock re-enters that
// lease. It does not use the handle.
//
// The errors are those of [sqllock.Locker.Lock], with one exception: if the pool has no
// connection for the lock beside the connection of goose, Lock does not wait until ctx ends.
// It returns [sqllock.ErrPoolExhausted] after the statement timeout, which is 5 s by
// default.
func (l *Locker) Lock(ctx context.Context, _ *sql.DB) error {
	return l.lock(ctx, nil)
}

// Unlock implements lock.Locker. The errors are those of [sqllock.Lease.Unlock]. If the
// lease was lost, another process may have migrated at the same time. Unlock then returns
// [sqllock.ErrLost], and goose returns it to its caller.
func (l *Locker) Unlock(ctx context.Context, _ *sql.DB) error {
	return l.unlock(ctx, nil)
}

// Lease returns the lease under which goose migrates now, or nil if goose does not migrate.
// A Go migration with a transaction can guard the lease. Then its writes are committed only
// if no other process has acquired the name.
func (l *Locker) Lease() *sqllock.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term == nil {
		return nil
	}
	return l.term.lease
}

// lock begins a term. If conn is not nil, it locks the session of conn too.
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
		err = fmt.Errorf("gooselock: goose has a connection of the pool, and the lock needs more: one in unique mode, two in the others; "+
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

// acquire tries once, and then waits. Without the first try, Lock would retry on an
// exhausted pool until ctx ends, while goose keeps its connection. A re-entry uses no
// connection, so one more statement checks that the pool has one for renewals.
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

// unlock ends the term, if conn began it.
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
