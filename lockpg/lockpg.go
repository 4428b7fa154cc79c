// Package lockpg makes a Postgres database a database of package sqllock, through a
// pgxpool.Pool or a handle of database/sql. Postgres must be 12 or newer, for advisory mode
// 14 or newer.
//
// The driver of such a handle should be pgx (github.com/jackc/pgx/v5/stdlib). Others
// work, lib/pq among them, with five differences. They are not known to return
// driver.ErrBadConn only if nothing was sent, so a call that meets a broken connection
// ends as one without a reply: a Lock goes on, a TryLock returns the error. They are not
// known to return when a context ends, so a call that takes 250 ms longer has its
// connection closed. They tell of no session that ends, and of no waiter's turn: the
// library asks from time to time. They send one statement at a time: to enter a queue,
// to hand a name over or to share one takes about ten round trips, with pgx two or three.
// And each connection that comes from the pool costs two round trips more: if the application
// has given it back inside a transaction, that is rolled back.
package lockpg

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/jackc/puddle/v2"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
	"github.com/sqllock/sqllock/internal/sqlconn"
)

// Database is a Postgres database that keeps locks. It is safe for concurrent
// use and can serve any number of Lockers.
type Database struct {
	db   *sql.DB
	pool *pgxpool.Pool

	schema   string
	prefix   string
	unsafe   bool
	problems []error // found by DB, Pool and the options; told when it is used

	sessionPooler bool
	hash          func(name string) int64     // of advisory mode, in tests; else see AdvisoryKey
	version       func(version string) string // what the server says of itself, in tests
}

var (
	_ driver.UniqueDatabase    = (*Database)(nil)
	_ driver.ForUpdateDatabase = (*Database)(nil)
	_ driver.AdvisoryDatabase  = (*Database)(nil)
	_ driver.Migratable        = (*Database)(nil)
)

// SchemaVersion is the version of the tables that this package needs: the newest migration
// that it knows for Postgres.
const SchemaVersion int64 = 20261122000001

// Option is an option of [DB] and [Pool].
type Option func(*Database)

// Schema names the schema of the tables. By default it is that where the search_path of
// the first connection finds the table of metadata, "sqllock_meta". The constructor of
// the Locker looks once: from then on all statements name that schema, and the function
// of advisory mode names it too. So the search_path of other connections and tables of the
// same names elsewhere do not matter. After ALTER SCHEMA … RENAME the constructor of that
// mode returns [driver.ErrSchema], which says how to bind the function anew.
//
// [Fence] and [FenceSQL] have no constructor: without Schema they mean the table that
// the search_path of their transaction finds.
//
// The name must match [A-Za-z_][A-Za-z0-9_]{0,30} and is quoted, so upper and lower case
// differ.
func Schema(name string) Option {
	return func(d *Database) {
		d.schema = name
		d.check("schema", name)
	}
}

// TablePrefix begins the names of all tables; the default is "sqllock_". It must
// match [A-Za-z_][A-Za-z0-9_]{0,30} and is quoted, so upper and lower case
// differ.
func TablePrefix(prefix string) Option {
	return func(d *Database) {
		d.prefix = prefix
		d.check("table prefix", prefix)
	}
}

// AllowUnsafeDurability accepts a server that runs with fsync or
// full_page_writes off, for tests: after a crash such a server may have
// forgotten who holds what, and two may hold one name. The default is to refuse
// it.
func AllowUnsafeDurability() Option {
	return func(d *Database) { d.unsafe = true }
}

// AllowSessionPooler says that the pooler in between is in session mode, such as pgbouncer
// with pool_mode = session. The modes for update and advisory then accept it, and a Locker
// in unique mode listens through it. By default these two modes refuse every pooler, and
// in unique mode waiters poll.
//
// The constructors still refuse a pooler in transaction mode where they detect it: it would
// give the locks of a session to other clients. The server sees only the pooler, so the
// pooler must notice when a client has vanished.
func AllowSessionPooler() Option {
	return func(d *Database) { d.sessionPooler = true }
}

// DB returns the database that a handle of the application reaches. The library never
// closes the handle. The constructor that gets the Database reports errors in the handle
// and in the options, before any SQL.
//
// If the driver is pgx and the DSN names several hosts, a Locker in unique mode finds the one that
// takes writes after a fail-over. When the connection for its renewals does not answer, or is lost
// while all others that the handle may open are in use, it opens the next one by itself, with the
// configuration of a connection of the handle: one more than SetMaxOpenConns says. It asks all
// hosts at the same time. So one that is frozen does not cost a lease, whatever connect_timeout is.
// Functions that were given to stdlib.OpenDB are not called then.
func DB(db *sql.DB, opts ...Option) *Database {
	d := newDatabase(opts)
	d.db = db
	if db == nil {
		d.problems = append(d.problems, driver.NilError("*sql.DB"))
	} else if t := fmt.Sprintf("%T", db.Driver()); strings.Contains(t, "mysql") || strings.Contains(t, "sqlite") {
		d.problems = append(d.problems, fmt.Errorf("%w: %s is not a driver of Postgres", driver.ErrInvalidOption, t))
	}
	return d
}

// Pool keeps locks through an application's pool, which is never closed. Close the Locker
// before the pool: pgxpool.Pool.Close waits for all connections, and the Locker gives back
// those that it keeps when it is closed.
//
// After a fail-over it does what [DB] says, with BeforeConnect and AfterConnect of the pool.
func Pool(pool *pgxpool.Pool, opts ...Option) *Database {
	d := newDatabase(opts)
	d.pool = pool
	if pool == nil {
		d.problems = append(d.problems, driver.NilError("*pgxpool.Pool"))
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

func (d *Database) check(what, name string) {
	if err := driver.CheckIdentifier(what, name); err != nil {
		d.problems = append(d.problems, err)
	}
}

// Migration implements driver.Migratable.
func (d *Database) Migration() (driver.Migration, error) {
	p, err := d.open()
	if err != nil {
		return driver.Migration{}, err
	}
	return driver.Migration{
		Dialect:   "postgres",
		DB:        p.DB,
		Schema:    d.schema,
		Prefix:    d.prefix,
		Version:   SchemaVersion,
		Retryable: migrationConflict,
		Close:     p.close,
	}, nil
}

// OpenUnique implements driver.UniqueDatabase.
func (d *Database) OpenUnique(ctx context.Context, client driver.Client) (driver.Store, error) {
	p, err := d.open()
	if err != nil {
		return nil, err
	}
	t := tables{schema: d.schema, prefix: d.prefix}
	e := &engine{conns: conns{source: &p.Pool}, client: client, locker: client.Instance, label: client.Label, quick: !p.Unsure}
	var info driver.Info
	err = p.Do(ctx, func(ctx context.Context, conn *sql.Conn) error {
		info, e.isolate, err = d.inspect(ctx, conn, &t, "")
		if p.Beside == nil {
			p.Beside = d.beside(conn)
		}
		return err
	})
	if err != nil {
		return nil, errors.Join(closedHandle(err), p.end())
	}
	e.texts = t.unique()
	info.MaxConns = p.maxConns
	rows := rowstore.New(rowstore.Options{
		Client: client, Info: info, Pool: &p.Pool, Engine: e.on, Classify: classify, Close: p.end,
	})
	return &store{Store: rows, engine: e, pool: &p.Pool, id: t.id, sessionPooler: d.sessionPooler}, nil
}

// handle is what a Database opens for one user of it.
type handle struct {
	sqlconn.Pool
	maxConns int
	close    func() error
}

// end closes what was opened, also beside the pool.
func (h *handle) end() error {
	if h.Beside == nil {
		return h.close()
	}
	return errors.Join(h.Beside.DB.Close(), h.close())
}

func (d *Database) open() (*handle, error) {
	if d == nil || d.db == nil && d.pool == nil && d.problems == nil {
		return nil, driver.NilError("*lockpg.Database")
	}
	if err := errors.Join(d.problems...); err != nil {
		return nil, err
	}
	if d.pool == nil {
		h := &handle{Pool: sqlconn.Pool{DB: d.db}, maxConns: d.db.Stats().MaxOpenConnections, close: func() error { return nil }}
		if !sqlconn.Known(d.db, "github.com/jackc/pgx/v5/stdlib") {
			h.Unsure, h.Late, h.Fit = true, true, outsideTx
		}
		return h, nil
	}
	db := stdlib.OpenDBFromPool(d.pool)
	limit := d.pool.Config().MaxConns
	full := func() bool { return d.pool.Stat().AcquiredConns() >= limit }
	idle := func() int { return int(d.pool.Stat().IdleConns()) }
	return &handle{Pool: sqlconn.Pool{DB: db, Full: full, Idle: idle, End: endConn}, maxConns: int(limit), close: db.Close}, nil
}

// outsideTx ends a transaction in which the application may have given a connection back. pgx ends
// such a connection itself. A ROLLBACK outside of a transaction would write a line into the log of the
// server. If the connection is dead, another one is tried.
func outsideTx(ctx context.Context, conn *sql.Conn) error {
	tx, err := conn.BeginTx(ctx, nil)
	if err == nil {
		err = tx.Rollback()
	}
	state, known := stateOf(err)
	switch {
	case state == "25P02": // a transaction that has failed
		_, err = conn.ExecContext(ctx, queryRollback)
	case err != nil && ctx.Err() == nil && (!known || strings.HasPrefix(state, "57P")):
		err = sqlconn.Repeatable(err)
	}
	return err
}

// endConn ends a connection that its pool would otherwise get back alive.
func endConn(c any) {
	if c, ok := c.(*stdlib.Conn); ok {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Conn().Close(ctx)
	}
}

// isClosed reports the error of a closed pool, or of a closed handle, which database/sql
// does not export.
func isClosed(err error) bool {
	return errors.Is(err, puddle.ErrClosedPool) || strings.Contains(err.Error(), "sql: database is closed")
}

// closedHandle says in our words that the handle is closed.
func closedHandle(err error) error {
	if isClosed(err) {
		return fmt.Errorf("%w: the handle is closed: %w", driver.ErrInvalidOption, err)
	}
	return err
}
