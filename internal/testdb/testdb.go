// Package testdb gives tests real databases that are removed afterwards: always a SQLite
// file, and a Postgres, MariaDB or MySQL server if one is available.
//
// For each server, an environment variable may have the address of a running one:
// SQLLOCK_TEST_POSTGRES_DSN (a URL), SQLLOCK_TEST_MARIADB_DSN and SQLLOCK_TEST_MYSQL_DSN
// (the format of github.com/go-sql-driver/mysql). Its user must be allowed to create
// databases and to end sessions. If the variable is not set, the package starts a server
// from installed programs, for Postgres and MariaDB, and for MySQL from the program that
// SQLLOCK_TEST_MYSQLD names. If it is "none", the tests do without.
//
// Do not skip a test because a database is absent, since skips are overlooked. Iterate
// over [All] or [Engines]; [Main] reports what was not covered. The databases in
// SQLLOCK_REQUIRE, a list with commas, must be present.
//
// A package that uses it has
//
//	func TestMain(m *testing.M) { testdb.Main(m) }
//
// and its tests
//
//	for _, engine := range testdb.All() {
//		t.Run(engine, func(t *testing.T) {
//			db := testdb.New(t, engine).Open(t)
//
// Servers listen on 127.0.0.1 only and keep their files in a temporary directory. They
// end with the test process, even if it is killed. If root starts them, they run as
// another user, who must have access to that directory (TMPDIR).
package testdb

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/testdb/supervisor"
)

// The databases by name.
const (
	SQLite   = "sqlite"
	Postgres = "postgres"
	MariaDB  = "mariadb"
	MySQL    = "mysql" // Oracle's, by address or by SQLLOCK_TEST_MYSQLD
)

// stepTimeout bounds each step that a server takes: start, stop, create, drop.
const stepTimeout = time.Minute

// All returns SQLite and the result of [Engines].
func All() []string { return append([]string{SQLite}, Engines()...) }

// Engines returns the servers that [New] can use here.
func Engines() []string { return having(absentReason) }

// Startable returns the servers that [StartServer] can start here, for tests that
// kill, pause or configure one; an address is not enough for that.
func Startable() []string { return having(unstartableReason) }

// having returns the servers that are not absent, and notes the absent ones for
// the report of Main.
func having(reason func(engine) string) []string {
	var found []string
	for _, e := range engines {
		if r := reason(e); r == "" {
			found = append(found, e.name())
		} else {
			coverage.missed(e.name(), r)
		}
	}
	return found
}

// Database is an empty database for one test. It is safe for concurrent use.
type Database struct {
	engine string
	dialect
	base string // DSN of the server, or the path of the SQLite file
	name string
}

// New creates an empty database on a server that the tests of this process share,
// or an SQLite file, and drops it when the test has ended, with whatever sessions
// are left. It fails the test if the engine is absent.
func New(t testing.TB, engine string) *Database {
	t.Helper()
	if engine == SQLite {
		return &Database{engine: SQLite, dialect: sqliteDialect{}, base: filepath.Join(directory(t), "test.db")}
	}
	e := mustEngine(t, engine)
	return begin(t, e, func(d *Database) error { return d.admin(e.create) })
}

// begin creates a database of the shared server with create.
func begin(t testing.TB, e engine, create func(*Database) error) *Database {
	t.Helper()
	base, err := sharedServer(e)
	if err != nil {
		t.Fatalf("testdb: %v", err)
	}
	d := &Database{engine: e.name(), dialect: e, base: base, name: uniqueName()}
	if err := create(d); err != nil {
		t.Fatalf("testdb: create a database on %s: %v", e.name(), err)
	}
	t.Cleanup(func() {
		if err := d.admin(e.drop); err != nil {
			t.Errorf("testdb: drop the database on %s: %v", e.name(), err)
		}
	})
	return d
}

// directory returns one for a file of SQLite, where the servers have theirs: on their
// disk each delays the flushes of the others.
func directory(t testing.TB) string {
	t.Helper()
	if !active.Load() {
		return t.TempDir()
	}
	w, err := theSupervisor()
	if errors.Is(err, supervisor.ErrUnsupported) {
		return t.TempDir()
	}
	if err != nil {
		t.Fatalf("testdb: %v", err)
	}
	dir, err := w.MkdirMemory(nil)
	if err != nil {
		t.Fatalf("testdb: %v", err)
	}
	t.Cleanup(func() {
		if err := w.Remove(dir); err != nil {
			t.Errorf("testdb: %v", err)
		}
	})
	return dir
}

// admin runs a statement about the database, which is not connected to for that.
func (d *Database) admin(do func(ctx context.Context, db *sql.DB, database string) error) error {
	db, err := adminOf(d)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), stepTimeout)
	defer cancel()
	return do(ctx, db, d.name)
}

// Engine returns the name of the engine.
func (d *Database) Engine() string { return d.engine }

// DSN returns the data source name: a URL for Postgres, the form of
// github.com/go-sql-driver/mysql for MariaDB and MySQL, that of
// modernc.org/sqlite, with WAL and a busy time-out, for SQLite. Parameters are
// written "key=value", without escapes.
func (d *Database) DSN(params ...string) string { return d.DSNVia("", params...) }

// DSNVia is [Database.DSN] through a proxy that listens on addr, a host:port.
// SQLite has no network; there addr is ignored.
func (d *Database) DSNVia(addr string, params ...string) string {
	return d.dsn(d.base, addr, d.name, params)
}

// Addr returns the server's host:port, "" for SQLite.
func (d *Database) Addr() string { return d.addr(d.base) }

// Path returns the file of an SQLite database, "" for others.
func (d *Database) Path() string {
	if d.engine == SQLite {
		return d.base
	}
	return ""
}

// Open returns a new handle with parameters as in [Database.DSN]. It is closed at the end
// of the test.
func (d *Database) Open(t testing.TB, params ...string) *sql.DB {
	t.Helper()
	return d.OpenVia(t, "", params...)
}

// OpenVia is [Database.Open] through a proxy that listens on addr.
func (d *Database) OpenVia(t testing.TB, addr string, params ...string) *sql.DB {
	t.Helper()
	db, err := sql.Open(d.driver(), d.DSNVia(addr, params...))
	if err != nil {
		t.Fatalf("testdb: %v", err)
	}
	t.Cleanup(func() {
		// Ignore the error of a connection to a killed server. That of the MySQL driver is
		// not always driver.ErrBadConn, but says so.
		if err := db.Close(); err != nil && !strings.HasSuffix(err.Error(), "bad connection") {
			t.Errorf("testdb: close the handle: %v", err)
		}
	})
	return db
}

// uniqueName returns a name that no other process takes on a server that was
// given by its address.
func uniqueName() string { return "sqllock_test_" + strings.ToLower(rand.Text()[:16]) }

// query returns parameters in the form that all the drivers read. A plus sign is
// a blank to some of them only.
func query(params []string) string {
	var b strings.Builder
	for _, p := range params {
		key, value, _ := strings.Cut(p, "=")
		fmt.Fprintf(&b, "&%s=%s", url.QueryEscape(key), url.QueryEscape(value))
	}
	return strings.ReplaceAll(strings.TrimPrefix(b.String(), "&"), "+", "%20")
}
