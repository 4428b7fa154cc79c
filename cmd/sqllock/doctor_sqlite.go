package main

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

// sqliteExam is the exam of an SQLite file.
type sqliteExam struct {
	*exam
	db *database
}

func examineSQLite(e *exam, db *database) []check {
	s := &sqliteExam{exam: e, db: db}
	return []check{
		{"file", s.file}, {"server", s.server}, {"journal", s.journal}, {"durability", s.durability}, {"time-outs", s.busy},
		{"tables", s.tablesThere}, {"pages", s.ifThere(s.pages)}, {"migrations", s.ifThere(s.version)}, {"writes", s.ifThere(s.writes)}, {"index", s.ifThere(s.index)},
	}
}

func (s *sqliteExam) server(ctx context.Context) error {
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

// file finds out whether it is a database at all.
func (s *sqliteExam) file(ctx context.Context) error {
	var n int
	err := s.one(ctx, liteSchema, nil, &n)
	switch {
	case err == nil:
		s.ok("file", s.db.shown+"; it must not be on a network file system, which cannot be seen from here")
	case s.db.busy(err) || ctx.Err() != nil:
		return err
	default:
		s.hopeless = true
		s.bad("file", s.db.shown+" is damaged, or not a database: "+err.Error(), restore)
	}
	return nil
}

// restore is what to do with a file that is damaged.
const restore = "stop who uses it and restore it; a file that only sqllock uses can be deleted instead"

// pages looks at those of the locks: the file may have gigabytes of others.
func (s *sqliteExam) pages(ctx context.Context) error {
	var found string
	switch err := s.one(ctx, liteCheck, []any{s.lockName}, &found); {
	case err != nil && (s.db.busy(err) || ctx.Err() != nil):
		return err
	case err != nil:
		found = err.Error()
	}
	if found != "ok" {
		s.hopeless = true
		s.bad("pages", s.db.shown+" is damaged: "+found, restore)
		return nil
	}
	s.ok("pages", "those of "+s.lock+" are in order")
	return nil
}

func (s *sqliteExam) journal(ctx context.Context) error {
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
func (s *sqliteExam) durability(ctx context.Context) error {
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

func (s *sqliteExam) busy(ctx context.Context) error {
	var ms int
	if err := s.one(ctx, liteBusy, nil, &ms); err != nil {
		return err
	}
	s.ok("time-outs", fmt.Sprintf("busy_timeout of this program is %d ms; what finds the file busy is tried again", ms))
	return nil
}

func (s *sqliteExam) tablesThere(ctx context.Context) error {
	var found int
	if err := s.one(ctx, liteTables, []any{s.lockName, s.metaName}, &found); err != nil {
		return err
	}
	if s.there = found == 2; !s.there {
		s.bad("tables", "table "+s.lock+" or "+s.meta+" does not exist", "run \"sqllock migrate up\"; \"sqllock run\" does it too")
		return nil
	}
	for _, r := range s.others {
		if err := s.one(ctx, liteTables, []any{r.name, r.name}, &found); err != nil {
			return err
		}
		if found == 0 {
			s.bad("tables", "table "+r.sql+" does not exist", "run \"sqllock migrate up\"; \"sqllock run\" does it too")
			return nil
		}
	}
	s.ok("tables", s.list())
	return nil
}

func (s *sqliteExam) writes(ctx context.Context) error {
	switch _, err := s.conn.ExecContext(ctx, "UPDATE "+s.meta+liteWrite); {
	case err == nil || s.db.busy(err):
		s.ok("writes", "the file can be written")
	case ctx.Err() != nil:
		return err
	default:
		s.bad("writes", "the file cannot be written: "+err.Error(), "see who owns the file and its directory, and who may write there")
	}
	return nil
}

func (s *sqliteExam) index(ctx context.Context) error {
	var sound bool
	if err := s.one(ctx, litePrimary, []any{s.lockName}, &sound); err != nil {
		return err
	}
	if !sound {
		s.bad("index", "the names are not the primary key of "+s.lock, "make the tables anew: \"sqllock migrate down\" and \"sqllock migrate up\"")
		return nil
	}
	s.ok("index", "the names are the primary key")
	return nil
}
