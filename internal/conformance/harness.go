package conformance

import (
	"cmp"
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"log/slog"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
)

// Harness tells the suite how to reach one pair of a mode and a database. The
// fields of the first group are required. A field that is nil says that the pair
// cannot have what it stands for, and keeps some promises from being asked for.
type Harness struct {
	Mode     string // as in "unique"
	Database string // as in "postgres"

	// Driver is the name under which the driver is registered with database/sql;
	// the data source names below are for it. The suite opens and limits its
	// handles itself.
	Driver string

	// Connect returns what opens connections of a DSN, for a driver that needs more than its
	// name, a pool for example. If it is an io.Closer, it is closed with the handle. If Connect
	// is nil, Driver opens them.
	Connect func(dsn string) (sqldriver.Connector, error)

	// DSN returns a database with tables for a test. It may be the same for all:
	// tests use names that no other test uses.
	DSN func(t testing.TB) string

	// Fresh returns a database with tables of its own, which the test may damage.
	Fresh func(t testing.TB) string

	// New returns a Locker of the mode. db may be nil, which must be refused.
	New func(ctx context.Context, db *sql.DB, o *Options) (*sqllock.Locker, error)

	// Brief leaves out the promises that settings of the database can hardly break.
	// It is for further settings of a pair that is tested in full.
	Brief bool

	// MinTTL is the shortest TTL of the mode; 0 means sqllock.MinTTL.
	MinTTL time.Duration

	Table    *Table    // locks are rows of a table
	Sessions *Sessions // locks are kept by sessions of the database
	Network  *Network  // the database is reached over TCP
	Server   *Server   // the database has a server that can be stopped

	// Nodes is on how many databases the mode keeps each name, see [sqllock.NewQuorum]; 0 means on
	// one. Several have not what a database can do in one of its transactions, or for waiters.
	Nodes int

	// SilentHolders says that the database does not end the session of a silent client: the
	// session keeps its locks beyond the TTL, see [sqllock.AdvisoryOptions].
	SilentHolders bool

	// PastHandle says that the Locker does not use the handle that New gets, but a pool of its own
	// kind: what the suite counts on the handle says nothing then.
	PastHandle bool

	// Transactions says that the mode can lock in transactions of the caller.
	Transactions bool

	// Traces returns what changes when anything at all is written: the position
	// of a log, a counter of transactions. It is asked for while nothing else
	// uses the database.
	Traces func(ctx context.Context, db *sql.DB) (string, error)

	// Settings returns the settings of a session that a Locker might change.
	Settings func(ctx context.Context, conn *sql.Conn) (string, error)

	// How many statements calls about several names take at most: AllStatements LockAll and
	// TryLockAll of free names, NewStatements those of names that nobody has ever held,
	// UnlockStatements Unlock, and GuardStatements Guard. 0 means that they are not compared.
	AllStatements, NewStatements, UnlockStatements, GuardStatements int

	// ReadOnly changes a DSN so that nothing can be written through it.
	ReadOnly func(dsn string) string

	pace time.Duration // what a Lock with its Unlock takes here
}

// OpenDB opens a handle on a database as the suite does.
func (h *Harness) OpenDB(dsn string) (*sql.DB, error) {
	if h.Connect == nil {
		return sql.Open(h.Driver, dsn)
	}
	c, err := h.Connect(dsn)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(c), nil
}

// Sessions tells how to end the sessions that keep locks.
type Sessions struct {
	// Kill ends all sessions of the database but the one that it uses, from the
	// server's side. It is asked for with a database of the test's own only.
	Kill func(ctx context.Context, db *sql.DB) error
	// Conns is how many connections a Locker may use that holds many names, and
	// waits for many.
	Conns int
	// Alone says that a session holds one lock only.
	Alone bool
}

// Network tells how to put a proxy before a database.
type Network struct {
	// Address returns the host:port that a DSN names.
	Address func(dsn string) string
	// Via returns the DSN that reaches the same database through addr.
	Via func(dsn, addr string) string
	// RoundTrips is how many an uncontended Lock with its Unlock takes, when all
	// is prepared.
	RoundTrips int
}

// Server is a database server that the suite may stop.
type Server struct {
	// Start returns a server of the test's own, with tables. Its stop ends it as
	// a crash does, its start brings it back at the same address.
	Start func(t testing.TB) (dsn string, stop, start func())
}

// Options are the options of a Locker that all modes have. They mean what the
// fields of [sqllock.UniqueOptions] mean.
type Options struct {
	TTL, RetryMin, RetryMax, StatementTimeout time.Duration

	Label  string
	Logger *slog.Logger
	Hooks  *sqllock.Hooks

	MaxBatch int // in unique mode

	Reaper *sqllock.ReaperOptions // nil: off, so that it disturbs no test
}

// ForUpdate returns the options for sqllock.NewForUpdate.
func (o *Options) ForUpdate() *sqllock.ForUpdateOptions {
	u := o.Unique()
	if u == nil {
		return nil
	}
	return &sqllock.ForUpdateOptions{
		TTL: u.TTL, RetryMin: u.RetryMin, RetryMax: u.RetryMax, StatementTimeout: u.StatementTimeout,
		Label: u.Label, Logger: u.Logger, Hooks: u.Hooks, Reaper: u.Reaper, MaxConns: poolSize - 2,
	}
}

// Advisory returns the options for sqllock.NewAdvisory.
func (o *Options) Advisory() *sqllock.AdvisoryOptions {
	u := o.Unique()
	if u == nil {
		return nil
	}
	return &sqllock.AdvisoryOptions{
		TTL: u.TTL, RetryMin: u.RetryMin, RetryMax: u.RetryMax, StatementTimeout: u.StatementTimeout,
		Label: u.Label, Logger: u.Logger, Hooks: u.Hooks, Reaper: u.Reaper,
	}
}

// Quorum returns the options for sqllock.NewQuorum.
func (o *Options) Quorum() *sqllock.QuorumOptions {
	u := o.Unique()
	if u == nil {
		return nil
	}
	longest := cmp.Or(u.TTL, sqllock.DefaultTTL) / 6 // a machine that is busy is no database that is down
	return &sqllock.QuorumOptions{
		TTL: u.TTL, RetryMin: u.RetryMin, RetryMax: u.RetryMax, NodeTimeout: min(cmp.Or(u.StatementTimeout, longest), longest),
		Label: u.Label, Logger: u.Logger, Hooks: u.Hooks, Reaper: u.Reaper, MaxBatch: u.MaxBatch,
	}
}

// Unique returns the options for sqllock.NewUnique.
func (o *Options) Unique() *sqllock.UniqueOptions {
	if o == nil {
		return nil
	}
	reaper := o.Reaper
	if reaper == nil {
		reaper = &sqllock.ReaperOptions{Off: true}
	}
	return &sqllock.UniqueOptions{
		TTL: o.TTL, RetryMin: o.RetryMin, RetryMax: o.RetryMax, StatementTimeout: o.StatementTimeout,
		Label: o.Label, Logger: o.Logger, Hooks: o.Hooks, Reaper: reaper,
		MaxBatch: o.MaxBatch,
	}
}
