// Package driver holds what a database must implement to serve a mode of
// sqllock: small interfaces, one per mode, whose methods take slices. A batch
// of one is the ordinary case.
//
// The package is for implementers. It makes no compatibility promise: methods
// and fields are added as modes learn new things. Applications use package
// sqllock with the databases of packages lockpg, lockmysql and locksqlite.
//
// A driver keeps no lock state of its own. It runs a few statements, or one short
// transaction, per call and returns raw errors; package sqllock wraps them,
// decides what they mean with the help of Classify, and retries.
package driver

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
)

// ID is a random 128-bit number that names one acquisition or one Locker.
// The zero ID names nothing.
type ID [16]byte

// String returns the ID as 32 lower-case hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// UnmarshalText reads what String writes. It implements encoding.TextUnmarshaler.
func (id *ID) UnmarshalText(text []byte) error {
	if hex.DecodedLen(len(text)) != len(id) {
		return fmt.Errorf("an ID of %d digits", len(text))
	}
	_, err := hex.Decode(id[:], text)
	return err
}

// Client tells a driver for whom it works. Instance and Label are written into the rows of
// the client.
type Client struct {
	Instance ID     // the Locker; its beat keeps the claims of its waiters alive
	Label    string // host, process, service; for people, it decides nothing

	// Crashed is called for each expired term that a call has ended, unless a result
	// of the call tells of it. It does not wait for anything. It may be nil.
	Crashed func(Crash)

	// Wants reports that requests with an acquisition that waits go on. A claim that waits for
	// one that nobody wants is taken out of the queue: its request came late, or could not be
	// withdrawn. It does not wait for anything. If it is nil, no claim is taken out.
	Wants func(acq ID) bool
}

// UniqueDatabase is a database that offers the unique mode.
type UniqueDatabase interface {
	// OpenUnique checks that the database can keep what the mode promises and
	// returns its store. It returns an error that wraps ErrSchema when the
	// tables are missing or of another version, ErrUnsupported when the server
	// cannot be trusted with locks, and ErrInvalidOption when the handle or an option
	// of the database is bad; the latter before any SQL.
	OpenUnique(ctx context.Context, client Client) (Store, error)

	// Classify tells what an error of OpenUnique, or of a method of the store, means.
	Classify(err error) Fault
}

// Migratable is a database whose tables package migrations can make.
type Migratable interface {
	// Migration returns how to reach and name the tables. It runs no SQL. The
	// caller calls Close of the result when done.
	Migration() (Migration, error)
}

// Migration describes to package migrations where the tables of a database go.
type Migration struct {
	Dialect   string           // "postgres", "mysql" or "sqlite"
	DB        *sql.DB          // reaches the database
	Schema    string           // schema of the tables, "" for the connection's default
	Prefix    string           // table prefix, already checked
	Version   int64            // version of the tables that the driver needs
	Retryable func(error) bool // reports an error that a concurrent migration explains
	Close     func() error     // gives back what Migration opened, never the application's handle
}
