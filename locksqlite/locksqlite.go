// Package locksqlite makes a SQLite database a database of package sqllock.
// It works on a handle of any database/sql driver for SQLite and imports none;
// modernc.org/sqlite, mattn/go-sqlite3 and ncruces/go-sqlite3 are known to work.
// SQLite must be 3.38 or newer.
//
//	db, err := sql.Open("sqlite", "file:locks.db?_pragma=journal_mode(wal)")
//	…
//	err = migrations.Up(ctx, locksqlite.DB(db))
//	…
//	locks, err := sqllock.NewUnique(ctx, locksqlite.DB(db), nil)
//
// A lock excludes the processes of one host that open the same file. SQLite cannot lock a
// file on a network file system reliably, and the library cannot detect such a file.
//
// All processes must see the file and its journal (the files that end with -wal and
// -shm, or -journal) under one path. Mount the directory, never the file alone, and make
// no hard links. While a lease is held, do not replace the file, and do not remove its
// -wal. A process that has the database open must not read the file as a plain file: when
// it closes the plain file, SQLite's locks are dropped. Each renewal checks that the file
// and its -wal are those that were opened. If they are not, the leases are lost, and the
// Locker returns an error from then on.
//
// Use the write-ahead log (journal_mode wal). With it, an attempt that loses waits for
// nobody. Any setting of synchronous is safe: a power failure that undoes a grant has also
// ended every process that held a lock in the file, and later tokens rise with the clock.
package locksqlite

import (
	"context"
	"database/sql"
	"strings"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
	"github.com/sqllock/sqllock/internal/sqlconn"
)

// Database is a SQLite database whose tables sqllock keeps its locks in. It is
// made by [DB] and safe for concurrent use.
type Database struct {
	db      *sql.DB
	prefix  string
	problem error // of the options; told when it is used
}

var (
	_ driver.UniqueDatabase = (*Database)(nil)
	_ driver.Migratable     = (*Database)(nil)
)

// SchemaVersion is the version of the tables that this package needs: the newest migration
// that it knows for SQLite.
const SchemaVersion int64 = 20261122000001

// Option changes a default of [DB].
type Option func(*Database)

// TablePrefix sets what the names of the tables start with. The default is
// "sqllock_". It is a letter or underscore followed by up to 30 letters, digits
// and underscores. SQLite ignores the case of table names.
func TablePrefix(prefix string) Option {
	return func(d *Database) { d.prefix = prefix }
}

// DB returns the database that a handle of the application reaches. The library never
// closes the handle and does not change its settings. A statement of the library waits at
// most 250 ms for a busy database, whatever busy_timeout says, and is then tried again.
// The constructor that gets the Database reports errors in the options.
func DB(db *sql.DB, opts ...Option) *Database {
	d := &Database{db: db, prefix: driver.DefaultPrefix}
	for _, opt := range opts {
		if opt == nil {
			d.problem = driver.NilError("Option")
			continue
		}
		opt(d)
	}
	return d
}

// OpenUnique implements [driver.UniqueDatabase].
//
// It refuses a SQLite older than 3.38, a database that it may not write, and one
// that only a single connection sees (in memory, or temporary) unless the handle
// is limited to one connection. It refuses a file that has hard links or, on Linux, is
// mounted without its directory, and a connection that was opened before its file was
// replaced, where that can be seen.
func (d *Database) OpenUnique(ctx context.Context, client driver.Client) (driver.Store, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	known := sqlconn.Known(d.db, "modernc.org/sqlite", "github.com/mattn/go-sqlite3", "github.com/ncruces/go-sqlite3/driver")
	pool := &sqlconn.Pool{DB: d.db, Unsure: !known}
	e := &engine{conns: pool, texts: texts(d.prefix), client: client, writer: make(chan struct{}, 1),
		freed: new(rowstore.FreedNames)}
	e.writer <- struct{}{}
	err := whileBusy(ctx, func() error {
		return pool.Do(ctx, func(ctx context.Context, conn *sql.Conn) error { return e.inspect(ctx, conn, d) })
	})
	if err != nil {
		return nil, closedHandle(err)
	}
	pool.Fit = outsideTx // not before it is known to be SQLite
	rows := rowstore.New(rowstore.Options{Client: client, Info: e.info, Pool: pool, Engine: e.on, Classify: classify})
	return &store{Store: rows, engine: e}, nil
}

// outsideTx ends a transaction in which the application may have given a connection back: what the
// library changes must be committed at once.
func outsideTx(ctx context.Context, conn *sql.Conn) error {
	// A connection in memory is the whole database: no error that is none may end it.
	_, err := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK TRANSACTION")
	if err != nil && strings.Contains(err.Error(), "no transaction is active") {
		return nil
	}
	return err
}

// Migration implements [driver.Migratable].
func (d *Database) Migration() (driver.Migration, error) {
	if err := d.check(); err != nil {
		return driver.Migration{}, err
	}
	return driver.Migration{
		Dialect:   "sqlite",
		DB:        d.db,
		Prefix:    d.prefix,
		Version:   SchemaVersion,
		Retryable: func(err error) bool { return classify(err) == driver.Again },
		Close:     func() error { return nil },
	}, nil
}
