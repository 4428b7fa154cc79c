package main

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/sqllock/sqllock"
)

// failure tells in one line what is wrong with the database, and what the user said wrong
// from that. d may be nil.
func (d *database) failure(err error) error {
	if f := (*failure)(nil); err == nil || errors.As(err, &f) {
		return err
	}
	for _, usage := range []error{sqllock.ErrInvalidName, sqllock.ErrInvalidOption, sqllock.ErrInvalidOwner} {
		if errors.Is(err, usage) {
			return &failure{code: exitUsage, err: err}
		}
	}
	if c := (*connectError)(nil); errors.As(err, &c) {
		return &failure{code: exitUnavailable, err: c}
	}
	if reason := fileReason(err); reason != "" && d != nil {
		return fail(exitUnavailable, "cannot use %s: %s", d.shown, reason)
	}
	if denied(err) {
		return fail(exitUnavailable, "the account lacks a privilege: %s; \"sqllock doctor\" names what to grant", serverText(err))
	}
	return &failure{code: exitUnavailable, err: err}
}

// serverText is what a server says, without what stands before it.
func serverText(err error) string {
	if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) {
		return pg.Message
	}
	if my := (*mysql.MySQLError)(nil); errors.As(err, &my) {
		return my.Message
	}
	return err.Error()
}

// fileReason tells why SQLite cannot use a file, if it is so.
func fileReason(err error) string {
	e := (*sqlite.Error)(nil)
	if !errors.As(err, &e) {
		return ""
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_CANTOPEN:
		return "it cannot be opened; see whether its directory exists, and who may read and write there"
	case sqlite3.SQLITE_NOTADB:
		return "it is no SQLite database"
	case sqlite3.SQLITE_CORRUPT:
		return "it is damaged"
	case sqlite3.SQLITE_READONLY:
		return "it, or its directory, may not be written"
	case sqlite3.SQLITE_FULL:
		return "the disk is full"
	case sqlite3.SQLITE_IOERR:
		return "the operating system cannot read or write it"
	}
	return ""
}

// unopenable is the error for an SQLite file that the operating system refuses.
func (t target) unopenable(err error) error {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		err = p.Err // without the path
	}
	return fail(exitUnavailable, "cannot open %s: %w", t.shown(t.path), err)
}

// shown is how messages name where a DSN leads, unless that may be a part of a user's name
// or password: then the DSN is not meant as it can be read.
func (t target) shown(where string) string {
	switch {
	case t.product != "sqlite" && t.torn:
		return "the server that the DSN names"
	case t.product == "sqlite" && (t.torn || strings.ContainsAny(strings.TrimPrefix(where, filepath.VolumeName(where)), "@:")):
		return "the file that the DSN names"
	}
	return where
}
