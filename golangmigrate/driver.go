// Package migratelock gives golang-migrate a lock of package sqllock. A [Driver] wraps any database
// driver of golang-migrate and replaces its Lock and Unlock by a lease: several processes migrate
// at once, one of them does the work, and the others find it done.
//
// The lock need not be in the database that is migrated. It works with drivers that have no lock. It
// needs no session of that database, but the drivers of golang-migrate for Postgres and MySQL take a
// lock of their session when they are made: give them a direct connection, not a pooler.
package migratelock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/golang-migrate/migrate/v4/database"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
)

// DefaultWait is for how long Lock waits while another process migrates. It is a second less than
// the default LockTimeout of golang-migrate, after which nobody would unlock what Lock has locked.
const DefaultWait = 14 * time.Second

// Driver is a database.Driver, for migrate.NewWithInstance and migrate.NewWithDatabaseInstance. It
// is made by [New]. Like other drivers it serves one migrate.Migrate.
type Driver struct {
	database.Driver // that migrates

	locks *sqllock.Locker
	name  string
	opts  []sqllock.LockOption

	mu    sync.Mutex
	lease *sqllock.Lease // nil while it does not hold the lock
	busy  bool           // a Lock or Unlock is under way
}

var _ database.Driver = (*Driver)(nil)

// New returns a Driver that migrates with inner, under the lock of a name. Processes that migrate
// the same database must use the same name, in the same database of locks.
//
// The options are those of [sqllock.Locker.Lock]. By default Lock waits for [DefaultWait]. If
// migrations take longer, raise the LockTimeout of migrate.Migrate, and pass [sqllock.Wait] with a
// second less. Choose locks with a pool that inner does not use up: a lease that cannot be renewed
// is lost.
//
// New runs no SQL. It returns [sqllock.ErrInvalidOption] if inner, locks or an option is nil, or if
// an option is out of bounds or does not apply, and [sqllock.ErrInvalidName].
func New(inner database.Driver, locks *sqllock.Locker, name string, opts ...sqllock.LockOption) (*Driver, error) {
	switch {
	case inner == nil:
		return nil, fmt.Errorf("migratelock: %w", driver.NilError("database.Driver"))
	case locks == nil:
		return nil, fmt.Errorf("migratelock: %w", driver.NilError("*sqllock.Locker"))
	}
	if err := driver.CheckName(name); err != nil {
		return nil, fmt.Errorf("migratelock: %w", err)
	}
	opts = append([]sqllock.LockOption{sqllock.Wait(DefaultWait)}, opts...)
	// Lock checks the options first, then the name, and both before any SQL.
	if _, err := locks.Lock(context.Background(), "", opts...); !errors.Is(err, sqllock.ErrInvalidName) {
		return nil, fmt.Errorf("migratelock: %w", err)
	}
	return &Driver{Driver: inner, locks: locks, name: name, opts: opts}, nil
}

// Open implements database.Driver: it opens the inner driver, under the same lock.
func (d *Driver) Open(url string) (database.Driver, error) {
	inner, err := d.Driver.Open(url)
	if err != nil {
		return nil, err
	}
	return &Driver{Driver: inner, locks: d.locks, name: d.name, opts: d.opts}, nil
}

// Close implements database.Driver. It gives back a lock that is still held, and closes the inner
// driver.
func (d *Driver) Close() error {
	err := d.Unlock()
	if errors.Is(err, database.ErrNotLocked) {
		err = nil
	}
	return errors.Join(err, d.Driver.Close())
}

// Lock implements database.Driver. It waits until it holds the name. If another process holds it
// for longer than the wait, or this Driver holds it already, the error is database.ErrLocked; with
// the first it is [sqllock.ErrHeld], too.
func (d *Driver) Lock() error {
	if !d.begin(false) {
		return database.ErrLocked
	}
	lease, err := d.locks.Lock(context.Background(), d.name, d.opts...)
	d.end(lease)
	if errors.Is(err, sqllock.ErrHeld) {
		err = fmt.Errorf("%w: %w", database.ErrLocked, err)
	}
	return err
}

// Unlock implements database.Driver. It returns database.ErrNotLocked if the Driver does not hold
// the lock, and no other error: after one, golang-migrate would take the lock for held for ever. That
// the lease was lost before, so that another process may have migrated at the same time, is returned
// by the calls that change something, and told by the hook Lost and in the log. A name that could not
// be freed now is free when the lease expires.
func (d *Driver) Unlock() error {
	if !d.begin(true) {
		return database.ErrNotLocked
	}
	d.mu.Lock()
	lease := d.lease
	d.mu.Unlock()
	_ = lease.Unlock(context.Background())
	d.end(nil)
	return nil
}

// begin begins a Lock, or an Unlock, unless there is nothing to do for it.
func (d *Driver) begin(held bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.busy || held != (d.lease != nil) {
		return false
	}
	d.busy = true
	return true
}

// end ends a Lock or an Unlock.
func (d *Driver) end(lease *sqllock.Lease) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.busy, d.lease = false, lease
}

// Lease returns the lease under which the Driver migrates, or nil.
func (d *Driver) Lease() *sqllock.Lease {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lease
}

// Run implements database.Driver. It does not begin a migration if the lease was lost, and returns
// a [*sqllock.LostError]. A migration that runs already is not broken off.
func (d *Driver) Run(migration io.Reader) error {
	if err := d.lost(); err != nil {
		return err
	}
	return d.Driver.Run(migration)
}

// SetVersion implements database.Driver. If the lease was lost, it changes nothing, and returns a
// [*sqllock.LostError]. After a migration that has outlived its lease, the version stays dirty:
// somebody has to look whether two processes have migrated at once.
func (d *Driver) SetVersion(version int, dirty bool) error {
	if err := d.lost(); err != nil {
		return err
	}
	return d.Driver.SetVersion(version, dirty)
}

// Drop implements database.Driver. If the lease was lost, it drops nothing, and returns a
// [*sqllock.LostError].
//
// If the tables of the lock are in the schema that inner drops, they go, too, and the lease is lost.
func (d *Driver) Drop() error {
	if err := d.lost(); err != nil {
		return err
	}
	return d.Driver.Drop()
}

// lost returns why the lease is over, or nil. Without a Lock there is none: migrate.Migrate always
// locks.
func (d *Driver) lost() error {
	lease := d.Lease()
	if lease == nil || lease.Context().Err() == nil {
		return nil
	}
	return fmt.Errorf("migratelock: %w", context.Cause(lease.Context()))
}
