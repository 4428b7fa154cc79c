package driver

import (
	"errors"
	"fmt"
)

var (
	// ErrSchema says that the tables are missing, older than the library needs or
	// newer than it can work with.
	ErrSchema = errors.New("sqllock: schema")
	// ErrUnsupported says that the server cannot keep what the mode promises.
	ErrUnsupported = errors.New("sqllock: unsupported")
	// ErrInvalidOption says that the handle or an option of the database is bad.
	ErrInvalidOption = errors.New("sqllock: invalid option")
	// ErrFenced says that a term, or a token, is not the current one any more.
	ErrFenced = errors.New("sqllock: fenced")
	// ErrNoConnection says that the pool had no connection to give in time.
	ErrNoConnection = errors.New("sqllock: pool exhausted")
	// ErrTooManyLocks says that the server's table of locks is full, or as full as
	// this client may make it.
	ErrTooManyLocks = errors.New("sqllock: too many locks")
)

// FirstSchema is the oldest version of tables that can be brought to a newer one. Older
// ones were never released.
const FirstSchema int64 = 20261122000001

// CheckSchema compares the version of the tables, and the version that a library must know
// to work with them, with the version that a driver needs. The error wraps ErrSchema.
func CheckSchema(version, compatibleFrom, needed int64) error {
	switch {
	case version < FirstSchema:
		return fmt.Errorf("%w: the tables are of version %d, older than any that was released; "+
			"drop them and all locks in them with migrations.Down or \"sqllock migrate down --force\", then run migrations.Up or \"sqllock migrate up\"",
			ErrSchema, version)
	case version < needed:
		return fmt.Errorf("%w: the tables are of version %d, older than %d which this library needs; run migrations.Up or \"sqllock migrate up\"",
			ErrSchema, version, needed)
	case compatibleFrom > needed:
		return fmt.Errorf("%w: the tables are of version %d and need a library that knows %d; this one knows %d: upgrade it",
			ErrSchema, version, compatibleFrom, needed)
	}
	return nil
}

// Fault is what an error means for the request that met it.
type Fault uint8

const (
	// Unclear: the statement may have run, now or later. The zero Fault, because
	// it is what must be assumed of an unknown error.
	Unclear Fault = iota
	// Again: the statement did not run or was undone, and may succeed when it is
	// tried again: deadlock, serialization failure, lock time-out, busy database.
	Again
	// Unreachable: no statement was sent, because there was no connection.
	Unreachable
	// Refused: the database refused the statement, which had no effect. Trying
	// again does not help.
	Refused
)
