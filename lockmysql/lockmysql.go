// Package lockmysql makes a MySQL or MariaDB database a database of package sqllock,
// through github.com/go-sql-driver/mysql or a driver that wraps it. MySQL must be 8.0 or
// newer, MariaDB 10.6 or newer. The DSN must name a database.
//
// The constructors refuse a read-only server, one whose
// innodb_flush_log_at_trx_commit is not 1 (see [AllowUnsafeDurability]), and sessions with
// autocommit off, a completion_type other than NO_CHAIN, an sql_mode with ORACLE or
// EMPTY_STRING_IS_NULL, or a character_set_connection of UTF-16, UTF-32 or UCS-2.
//
// Statements skip rows that another transaction has locked, and wait for a locked table
// for a second at most. In its own transactions the library sets wait_timeout of the
// session to a second, on MariaDB the idle time-outs of transactions too, and restores
// them, so that a client that is paused keeps no rows.
//
// On Galera, writes on several nodes exclude each other when they commit. That is safe for
// leases and costs the loser a retry; the constructor logs a warning. Guard changes the row of the
// name there: the transaction fails with error 1213, at its commit at the latest, if another node
// has changed who holds the name or waits for it, and renewals wait for it. A handle whose
// connections go to several nodes needs wsrep_sync_wait=7 in its DSN. Otherwise a lease
// can look lost on a node that lags behind. Proxies that send reads to replicas are not
// supported.
//
// The modes for update and advisory keep locks in sessions of the server. They refuse
// Galera, servers with several primaries, and proxies that move a session between
// connections. They need a handle that may open three connections or more, and a TTL of
// two seconds or more, which the server counts in whole seconds. A session that holds
// locks has time-outs of its own; the library restores the former ones.
package lockmysql

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
	"github.com/sqllock/sqllock/internal/sqlconn"
)

// Database is a MySQL or MariaDB database that keeps locks. It is safe for
// concurrent use and can serve any number of Lockers.
type Database struct {
	db       *sql.DB
	prefix   string
	unsafe   bool
	readOnly bool    // the account may only read
	problems []error // found by DB and the options; told when it is used

	hash func(name string) [16]byte // of advisory mode, in tests; else see AdvisoryKey
}

var (
	_ driver.UniqueDatabase    = (*Database)(nil)
	_ driver.ForUpdateDatabase = (*Database)(nil)
	_ driver.AdvisoryDatabase  = (*Database)(nil)
	_ driver.Migratable        = (*Database)(nil)
)

// SchemaVersion is the version of the tables that this package needs: the newest migration
// that it knows for MySQL and MariaDB.
const SchemaVersion int64 = 20261122000001

// Option is an option of [DB].
type Option func(*Database)

// TablePrefix begins the names of all tables; the default is "sqllock_". It must
// match [A-Za-z_][A-Za-z0-9_]{0,30} and is quoted. Whether upper and lower case
// differ is up to the server.
func TablePrefix(prefix string) Option {
	return func(d *Database) {
		d.prefix = prefix
		if err := driver.CheckIdentifier("table prefix", prefix); err != nil {
			d.problems = append(d.problems, err)
		}
	}
}

// AllowUnsafeDurability accepts a server whose innodb_flush_log_at_trx_commit is
// not 1, or whose redo log is disabled, for tests: after a crash such a server
// may have forgotten who holds what, and two may hold one name. The default is
// to refuse it.
func AllowUnsafeDurability() Option {
	return func(d *Database) { d.unsafe = true }
}

// ReadOnly is for an account that may only read: List, Inspect and Watch work, and what
// writes fails with the server's error. So does the reaper, which logs a warning with each
// pass: set ReaperOptions.Off of package sqllock too. The default is that a constructor tries
// whether the account may write, so that a missing privilege shows there.
func ReadOnly() Option {
	return func(d *Database) { d.readOnly = true }
}

// DB returns the database that a handle of the application reaches. The library never
// closes the handle. The constructor that gets the Database reports errors in the handle
// and in the options, before any SQL.
func DB(db *sql.DB, opts ...Option) *Database {
	d := newDatabase(opts)
	d.db = db
	if db != nil {
		if t := fmt.Sprintf("%T", db.Driver()); isForeign(t) {
			d.problems = append(d.problems, fmt.Errorf("%w: %s is not a driver of MySQL", driver.ErrInvalidOption, t))
		}
	}
	return d
}

func newDatabase(opts []Option) *Database {
	d := &Database{prefix: driver.DefaultPrefix}
	for _, opt := range opts {
		if opt == nil {
			d.problems = append(d.problems, driver.NilError("Option"))
			continue
		}
		opt(d)
	}
	return d
}

// check tells what is wrong before any SQL.
func (d *Database) check() error {
	if d == nil || d.db == nil {
		return driver.NilError("*sql.DB")
	}
	return errors.Join(d.problems...)
}

func isForeign(driverType string) bool {
	for _, other := range []string{"pgx", "stdlib.Driver", "pq.", "postgres", "sqlite"} {
		if strings.Contains(strings.ToLower(driverType), strings.ToLower(other)) {
			return true
		}
	}
	return false
}

// Migration implements [driver.Migratable].
func (d *Database) Migration() (driver.Migration, error) {
	if err := d.check(); err != nil {
		return driver.Migration{}, err
	}
	return driver.Migration{
		Dialect:   "mysql",
		DB:        d.db,
		Prefix:    d.prefix,
		Version:   SchemaVersion,
		Retryable: func(err error) bool { return classify(err) == driver.Again },
		Close:     func() error { return nil },
	}, nil
}

// OpenUnique implements [driver.UniqueDatabase].
func (d *Database) OpenUnique(ctx context.Context, client driver.Client) (driver.Store, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	pool := d.newPool()
	e := &engine{pool: pool, source: pool, queries: newQueries(d.prefix), client: client, freed: new(rowstore.FreedNames),
		locker: client.Instance.String(), label: digits(client.Label)}
	err := pool.Do(ctx, func(ctx context.Context, conn *sql.Conn) error {
		if _, err := d.inspect(ctx, session{Conn: conn}, e); err != nil {
			return err
		}
		return e.checkClaims(ctx, session{Conn: conn})
	})
	if err != nil {
		return nil, closedHandle(err)
	}
	e.info.MaxConns = d.db.Stats().MaxOpenConnections
	return &store{engine: e, Store: rowstore.New(rowstore.Options{
		Client: client, Info: e.info, Pool: pool, Engine: e.on, Classify: classify,
	})}, nil
}

// newPool knows of go-sql-driver that it returns when a context ends, and driver.ErrBadConn
// only if nothing was sent.
func (d *Database) newPool() *sqlconn.Pool {
	known := sqlconn.Known(d.db, "github.com/go-sql-driver/mysql")
	p := &sqlconn.Pool{DB: d.db, Fit: fit, Unsure: !known, Late: !known}
	if known {
		p.Alive = alive
	}
	return p
}

// alive has the driver look whether the server has closed a connection that was idle, as
// database/sql has it do with those that it takes from its pool.
func alive(ctx context.Context, conn *sql.Conn) error {
	return conn.Raw(func(c any) error {
		if r, ok := c.(sqldriver.SessionResetter); ok {
			return r.ResetSession(ctx)
		}
		return nil
	})
}

// isClosed reports the error of a closed handle, which database/sql does not export.
func isClosed(err error) bool { return strings.Contains(err.Error(), "sql: database is closed") }

// closedHandle says in our words that the handle is closed.
func closedHandle(err error) error {
	if isClosed(err) {
		return fmt.Errorf("%w: the handle is closed: %w", driver.ErrInvalidOption, err)
	}
	return err
}
