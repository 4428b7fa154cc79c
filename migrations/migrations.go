// Package migrations makes and changes the tables of sqllock.
//
// If your application has no migrations of its own, call [Up] when it starts, or run
// "sqllock migrate up". If it uses goose, copy the files of [FS], or give FS to your goose
// provider. Choose one of these ways. Up accepts tables that goose has made. Down does not
// undo a migration that goose has applied.
//
// Up records the migrations that it has applied in table "sqllock_migration", which has
// the form of goose's version table.
package migrations

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/sqllock/sqllock/driver"
)

// Up brings the tables of db to the version that this library needs. It returns nil if
// they have that version already. It never changes tables that a newer library has made.
// If they are too new for this library, the error wraps [driver.ErrSchema]. So it does if
// they are older than any that was released: Down drops those.
//
// Up is safe to call from any number of processes and goroutines at once, on an empty
// database too: one does the work and the others wait. If a process dies in the middle,
// the next Up finishes its work. Up uses one connection at a time, so a pool of one is
// enough. On Postgres it also works through a pooler in transaction mode, with the
// default_query_exec_mode of pgx that the pooler needs.
//
// On a Galera cluster the processes may be on different nodes. There a row of the table
// "sqllock_migrating" tells who does the work, and what a process that died has begun is finished
// after half a minute. Up changes nothing if the tables are current.
//
// Up waits until ctx ends, on SQLite for up to one busy_timeout of the handle longer. It
// repeats after conflicts with others, for half a minute at most. If there is something to
// do, the role needs more than the right to read. On Postgres it needs CREATE on the
// schema, must own what earlier migrations have made, and needs CREATE on the database if
// Up has to create the configured schema. For Up and Down on MySQL and MariaDB it needs
// CREATE, ALTER, DROP, CREATE VIEW, SELECT, INSERT, UPDATE and DELETE. Up refuses sessions
// of MySQL in which autocommit is off.
func Up(ctx context.Context, db driver.Migratable) error {
	return run(ctx, db, "up", (*migrator).up)
}

// Down undoes the newest migration that Up has applied, and returns nil if there is none.
// If that is the first migration, Down drops the tables with all leases, and the table
// "sqllock_migration". It never drops a Postgres schema. Tables that are older than any that
// was released go with one call too, whoever made them.
//
// Nobody may use the locks or call Up meanwhile: holders lose their leases, and Up may
// fail. The error wraps [driver.ErrSchema] if this library does not know the newest
// migration, or if the application's own goose has applied it.
func Down(ctx context.Context, db driver.Migratable) error {
	return run(ctx, db, "down", (*migrator).down)
}

// Migration is one step in the history of the tables.
type Migration struct {
	Version int64  // a time stamp, as 20261122000001
	Name    string // of its file in FS; "" for a migration of a newer library
	Applied bool
	// AppliedAt is zero if the migration was not applied or Up did not do it.
	AppliedAt time.Time
}

// Status returns the migrations that this library knows and those that were
// applied, oldest first. It changes nothing and needs no privilege but reading.
func Status(ctx context.Context, db driver.Migratable) (list []Migration, err error) {
	err = run(ctx, db, "status", func(m *migrator, ctx context.Context) error {
		list, err = m.status(ctx)
		return err
	})
	return list, err
}

// FS returns the migrations of db as files for goose, with the names of the
// tables as configured, in the root of the file system. Their versions are time
// stamps, so that they do not collide with files that are numbered from one. A
// Postgres schema that was configured must exist. FS runs no SQL.
func FS(db driver.Migratable) (fs.FS, error) {
	m, err := newMigrator(db)
	if err != nil {
		return nil, wrap("files", err)
	}
	fsys, err := pack(m.files)
	return fsys, wrap("files", errors.Join(err, m.Close()))
}

// run calls fn with a migrator for db.
func run(ctx context.Context, db driver.Migratable, what string, fn func(*migrator, context.Context) error) error {
	if err := driver.CheckContext(ctx); err != nil {
		return wrap(what, err)
	}
	m, err := newMigrator(db)
	if err != nil {
		return wrap(what, err)
	}
	if err = m.checkSession(ctx); err == nil {
		err = fn(m, ctx)
	}
	return wrap(what, errors.Join(err, m.Close()))
}

// wrap says where err comes from. What goose reports as partial has one cause,
// which is all that is of interest of our few migrations.
func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	if partial := new(goose.PartialError); errors.As(err, &partial) {
		err = partial.Err
	}
	return fmt.Errorf("sqllock: migrate %s: %w", what, err)
}
