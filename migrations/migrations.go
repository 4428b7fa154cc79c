// Package migrations makes and changes the tables of sqllock.
//
// An application that has no migrations of its own calls [Up] when it starts, or
// has an operator run "sqllock migrate up". One that runs goose itself copies
// the files of [FS], or hands FS to its own goose provider. Choose one way: what
// goose has made, Up accepts and Down leaves to goose.
//
// Up keeps its own account of what was done, in table "sqllock_migration", which
// has the form of goose's version table.
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

// Up brings the tables of db to the version that this library needs and returns
// nil if they are there already. It never changes tables that a newer library
// has made; if they have become too new for this one, the error wraps
// [driver.ErrSchema].
//
// Up is safe to call from any number of processes and goroutines at once, on an
// empty database too: one does the work and the others wait for it. If a process
// dies in the middle, the next Up finishes its work. Up uses one connection at a
// time, so a pool of one is enough, and keeps its exclusion in transactions on
// Postgres, so a transaction pooler may be in between (with the
// default_query_exec_mode of pgx that the pooler asks for anyway).
//
// Up waits until ctx ends, and on SQLite perhaps for one busy_timeout of the
// handle more; conflicts with others are tried again for half a minute at most.
// The role needs the privilege to create tables and views if there is something
// to do; else reading is enough. A Postgres schema that was configured and does
// not exist is created. Sessions of MySQL in which autocommit is off are refused.
func Up(ctx context.Context, db driver.Migratable) error {
	return run(ctx, db, "up", (*migrator).up)
}

// Down undoes the newest migration that Up has applied, and returns nil if there
// is none. To undo the first is to drop the tables with every lease in them; then
// the account of migrations goes too and nothing of sqllock is left, but for the
// Postgres schema, which may have been there before.
//
// Nobody may use the locks or call Up meanwhile: holders lose what they hold, and
// Up may find that its account is gone. The error wraps [driver.ErrSchema] if the
// newest migration is one that this library does not know, or was not applied by
// Up but by the application's own goose.
func Down(ctx context.Context, db driver.Migratable) error {
	return run(ctx, db, "down", (*migrator).down)
}

// Migration is one step in the history of the tables.
type Migration struct {
	Version int64  // a time stamp, as 20261121000001
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
