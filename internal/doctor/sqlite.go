package doctor

import (
	"context"
	"fmt"
	"strings"
)

// The SQL of doctor on SQLite.
const (
	liteVersion = `SELECT sqlite_version()`
	liteJournal = `PRAGMA journal_mode`
	liteSync    = `PRAGMA synchronous`
	liteBusy    = `PRAGMA busy_timeout`
	liteSchema  = `SELECT count(*) FROM sqlite_schema`
	liteCheck   = `SELECT quick_check FROM pragma_quick_check(?1)`
	liteTables  = `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND lower(name) IN (lower(?1), lower(?2))`
	litePrimary = `SELECT count(*) = 1 AND max(name) = 'name' FROM pragma_table_info(?1) WHERE pk > 0`
	// liteWrite changes nothing, but needs the right to.
	liteWrite = ` SET one = one WHERE one = 0`
)

// sqliteChecker is the check of an SQLite file.
type sqliteChecker struct {
	*checker
	file string           // how findings name it
	busy func(error) bool // reports that others use the file and that this passes
}

func sqliteChecks(c *checker, file string, busy func(error) bool) []check {
	s := &sqliteChecker{checker: c, file: file, busy: busy}
	return []check{
		{"file", s.checkFile}, {"server", s.server}, {"journal", s.journal}, {"durability", s.durability}, {"time-outs", s.busyTimeout},
		{"tables", s.checkTables}, {"pages", s.withTables(s.pages)}, {"migrations", s.withTables(s.version)}, {"writes", s.withTables(s.writes)}, {"index", s.withTables(s.index)},
	}
}

func (s *sqliteChecker) server(ctx context.Context) error {
	var version string
	if err := s.one(ctx, liteVersion, nil, &version); err != nil {
		return err
	}
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil || 100*major+minor < 3_38 {
		s.bad("server", "SQLite "+version+" is too old", "sqllock works with SQLite 3.38 or newer")
		return nil
	}
	s.ok("server", "SQLite "+version+", which is part of this program")
	return nil
}

// checkFile finds out whether the file is a database.
func (s *sqliteChecker) checkFile(ctx context.Context) error {
	var n int
	err := s.one(ctx, liteSchema, nil, &n)
	switch {
	case err == nil:
		s.ok("file", s.file+"; it must not be on a network file system, which cannot be seen from here")
	case s.busy(err) || ctx.Err() != nil:
		return err
	default:
		s.unusable = true
		s.bad("file", s.file+" is damaged, or not a database: "+err.Error(), restore)
	}
	return nil
}

// runMigrates says that a file needs no "sqllock migrate up".
const runMigrates = "; \"sqllock run\" does it too"

// restore is what to do with a file that is damaged.
const restore = "stop who uses it and restore it; a file that only sqllock uses can be deleted instead"

// pages looks at those of the locks: the file may have gigabytes of others.
func (s *sqliteChecker) pages(ctx context.Context) error {
	var found string
	switch err := s.one(ctx, liteCheck, []any{s.lockName}, &found); {
	case err != nil && (s.busy(err) || ctx.Err() != nil):
		return err
	case err != nil:
		found = err.Error()
	}
	if found != "ok" {
		s.unusable = true
		s.bad("pages", s.file+" is damaged: "+found, restore)
		return nil
	}
	s.ok("pages", "those of "+s.lock+" are in order")
	return nil
}

func (s *sqliteChecker) journal(ctx context.Context) error {
	var mode string
	if err := s.one(ctx, liteJournal, nil, &mode); err != nil {
		return err
	}
	if !strings.EqualFold(mode, "wal") {
		s.warn("journal", "journal_mode is "+mode+": readers and writers keep each other waiting", "PRAGMA journal_mode = wal, which \"sqllock run\" does by itself")
		return nil
	}
	s.ok("journal", "a write-ahead log")
	return nil
}

// durability is a matter of each connection; this tells of those of this program.
func (s *sqliteChecker) durability(ctx context.Context) error {
	var level int
	if err := s.one(ctx, liteSync, nil, &level); err != nil {
		return err
	}
	if level == 0 {
		s.warn("durability", "synchronous is off: a power failure can damage the file", "PRAGMA synchronous = normal")
		return nil
	}
	s.ok("durability", "what is committed is flushed")
	return nil
}

func (s *sqliteChecker) busyTimeout(ctx context.Context) error {
	var ms int
	if err := s.one(ctx, liteBusy, nil, &ms); err != nil {
		return err
	}
	s.ok("time-outs", fmt.Sprintf("busy_timeout of this program is %d ms; what finds the file busy is tried again", ms))
	return nil
}

func (s *sqliteChecker) checkTables(ctx context.Context) error {
	var found int
	if err := s.one(ctx, liteTables, []any{s.lockName, s.metaName}, &found); err != nil {
		return err
	}
	if s.hasTables = found == 2; !s.hasTables {
		s.unmigrated("tables", "table "+s.lock+" or "+s.meta+" does not exist", runMigrates)
		return nil
	}
	for _, r := range s.optional {
		if err := s.one(ctx, liteTables, []any{r.name, r.name}, &found); err != nil {
			return err
		}
		if found == 0 {
			s.unmigrated("tables", "table "+r.sql+" does not exist", runMigrates)
			return nil
		}
	}
	s.ok("tables", s.list())
	return nil
}

func (s *sqliteChecker) writes(ctx context.Context) error {
	switch _, err := s.conn.ExecContext(ctx, "UPDATE "+s.meta+liteWrite); {
	case err == nil || s.busy(err):
		s.ok("writes", "the file can be written")
	case ctx.Err() != nil:
		return err
	default:
		s.bad("writes", "the file cannot be written: "+err.Error(), "see who owns the file and its directory, and who may write there")
	}
	return nil
}

func (s *sqliteChecker) index(ctx context.Context) error {
	var sound bool
	if err := s.one(ctx, litePrimary, []any{s.lockName}, &sound); err != nil {
		return err
	}
	if !sound {
		s.bad("index", "the names are not the primary key of "+s.lock, "make the tables anew: \"sqllock migrate down --force\" and \"sqllock migrate up\"")
		return nil
	}
	s.ok("index", "the names are the primary key")
	return nil
}
