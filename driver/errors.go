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

// CheckSchema compares what the meta table says of the tables with what the
// library needs. The error wraps ErrSchema.
func CheckSchema(version, compatibleFrom int64) error {
	switch {
	case version < SchemaVersion:
		return fmt.Errorf("%w: the tables are of version %d, older than %d which this library needs; run migrations.Up or \"sqllock migrate up\"",
			ErrSchema, version, SchemaVersion)
	case compatibleFrom > SchemaVersion:
		return fmt.Errorf("%w: the tables are of version %d and need a library that knows %d; this one knows %d: upgrade it",
			ErrSchema, version, compatibleFrom, SchemaVersion)
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
