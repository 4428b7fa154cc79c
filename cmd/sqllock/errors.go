package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/doctor"
	"github.com/sqllock/sqllock/internal/supervise"
)

// Exit codes of this program, those of sysexits.h where it has a fitting one. All others are
// the exit code of CMD.
const (
	exitHeld        = 1                     // unless -E says otherwise
	exitNo          = 1                     // the answer is no: not held, not known, not in order
	exitUsage       = 64                    // EX_USAGE
	exitUnavailable = 69                    // EX_UNAVAILABLE: the database
	exitSystem      = supervise.CodeOSError // EX_OSERR
	exitCannotWrite = 73                    // EX_CANTCREAT: a file, or stdout
	exitLost        = 75                    // EX_TEMPFAIL
	exitNotRunnable = 126                   // as in a shell
	exitNotFound    = 127                   // as in a shell
	exitSignal      = supervise.CodeSignal  // plus the number of the signal
)

// failure is an error with the exit code that it leads to. Without an err there is nothing to
// say.
type failure struct {
	code        int
	err         error
	interrupted bool // by the interrupt key, which only CMD got
}

func (f *failure) Error() string {
	if f.err == nil {
		return fmt.Sprintf("exit code %d", f.code)
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

// fail returns a failure with a message.
func fail(code int, format string, args ...any) error {
	return &failure{code: code, err: fmt.Errorf(format, args...)}
}

// exit returns a failure without a message, or nil for code 0.
func exit(code int) error {
	if code == 0 {
		return nil
	}
	return &failure{code: code}
}

// failure turns an error of the database into one line, and tells errors of the user from
// those of the database. d may be nil.
func (d *database) failure(err error) error {
	if f := (*failure)(nil); err == nil || errors.As(err, &f) {
		return err
	}
	for _, usage := range []error{sqllock.ErrInvalidName, sqllock.ErrInvalidOption, sqllock.ErrInvalidOwner} {
		if errors.Is(err, usage) {
			return &failure{code: exitUsage, err: err}
		}
	}
	if d != nil && d.nodes != nil { // the error tells of each of them
		return &failure{code: exitUnavailable, err: flatError{err}}
	}
	if c := (*connectError)(nil); errors.As(err, &c) {
		return &failure{code: exitUnavailable, err: c}
	}
	if reason := fileReason(err); reason != "" && d != nil {
		return fail(exitUnavailable, "cannot use %s: %s", d.shown, reason)
	}
	if doctor.IsDenied(err) {
		return fail(exitUnavailable, "the account lacks a privilege: %s; %s", serverText(err), toGrant(err))
	}
	return &failure{code: exitUnavailable, err: err}
}

// toGrant says how to get a privilege that the account lacks.
func toGrant(err error) string {
	pg := (*pgconn.PgError)(nil)
	switch m := (migrationError{}); {
	case !errors.As(err, &m):
		return "\"sqllock doctor\" names what to grant"
	case errors.As(err, &pg):
		return "use the role that migrates: it owns the tables, and has CREATE and USAGE on their schema, or CREATE on the database if there is no such schema yet"
	}
	return "use the account that migrates: it has CREATE, ALTER, DROP, CREATE VIEW, SELECT, INSERT, UPDATE and DELETE on the database"
}

// migrationError is an error of reading the migrations, or of applying them. Doctor does not
// look at the privileges that they need.
type migrationError struct{ error }

func (e migrationError) Unwrap() error { return e.error }

// optionFlags writes the flags of this program for the options of the library.
var optionFlags = strings.NewReplacer(
	"lockpg.AllowUnsafeDurability", "--allow-unsafe-durability",
	"lockmysql.AllowUnsafeDurability", "--allow-unsafe-durability",
	"lockpg.AllowSessionPooler", "--allow-session-pooler",
	"AdvisoryOptions.AllowSilentHolders", "--allow-silent-holders",
)

// flagError is an error of opening a Locker. It names flags where the library names options.
type flagError struct{ error }

func (e flagError) Unwrap() error { return e.error }

func (e flagError) Error() string {
	text := optionFlags.Replace(e.error.Error())
	if errors.Is(e.error, sqllock.ErrSchema) && strings.Contains(text, "; create it with") {
		text += "; if the application gives its tables a prefix or a schema, give the same with --table-prefix, or --schema on Postgres"
	}
	return text
}

// ofDatabase says which database of a quorum an error of opening it is about.
func ofDatabase(i int, err error) error {
	f := (*failure)(nil)
	if !errors.As(err, &f) || f.err == nil {
		return err
	}
	return &failure{code: f.code, err: fmt.Errorf("database %d: %w", i, f.err)}
}

// openError says of an error of opening the database that the time was over.
func openError(err error) error {
	if c := (*connectError)(nil); errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &c) {
		return fail(exitUnavailable, "the database did not answer within %v: %w", openTimeout, err)
	}
	return err
}

// serverText is the message of the server alone.
func serverText(err error) string {
	if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) {
		return pg.Message
	}
	if my := (*mysql.MySQLError)(nil); errors.As(err, &my) {
		return my.Message
	}
	return err.Error()
}

// isFull reports that the server has no connection left just now, as when all jobs of an hour
// start in the same second.
func isFull(err error) bool {
	if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) {
		return pg.Code == "53300" || pg.Code == "57P03" // too_many_connections, cannot_connect_now
	}
	my := (*mysql.MySQLError)(nil)
	return errors.As(err, &my) && (my.Number == 1040 || my.Number == 1203) // ER_CON_COUNT_ERROR, ER_TOO_MANY_USER_CONNECTIONS
}

// isRefused reports that the server, or a proxy before it, does not offer a mode to this
// account, although it offers another. A table that does not exist is a table that the account
// may not see.
func isRefused(err error) bool {
	for _, e := range []error{sqllock.ErrUnsupported, sqllock.ErrInvalidOption, sqllock.ErrSchema} {
		if errors.Is(err, e) {
			return true
		}
	}
	return doctor.IsDenied(err) || isFull(err)
}

// fileReason tells why SQLite cannot use a file, or "".
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

// openFailure is the error for an SQLite file that the operating system refuses.
func (t target) openFailure(err error) error {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		err = p.Err // without the path
	}
	return fail(exitUnavailable, "cannot open %s: %w", t.shown(t.path), err)
}

// shown is how messages name the server or the file of a DSN. They do not repeat it if it can
// be part of a user name or a password: then the DSN does not mean what it seems to say.
func (t target) shown(where string) string {
	switch {
	case t.product != "sqlite" && t.maybeCut:
		return "the server that the DSN names"
	case t.product == "sqlite" && (t.maybeCut || strings.ContainsAny(strings.TrimPrefix(where, filepath.VolumeName(where)), "@:")):
		return "the file that the DSN names"
	}
	return where
}
