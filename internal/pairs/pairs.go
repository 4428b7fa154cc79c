// Package pairs has a Harness of the conformance suite for each pair of a mode and an engine. The
// tests of the root module run the suite on the drivers that the library is developed with, those
// of the module matrix on other drivers, and through poolers.
package pairs

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/migrations"
	"github.com/sqllock/sqllock/sqllocktest"
)

// Database is a database with the tables of unique mode.
type Database interface {
	driver.UniqueDatabase
	driver.Migratable
}

// Engine is a database, and how to make it one of this library.
type Engine struct {
	Name    string              // as package testdb has it
	Harness sqllocktest.Harness // what all modes have
	Open    func(*sql.DB) Database
	Short   bool     // ask for less, see [sqllocktest.Harness.Brief]
	Params  []string // of the DSN
	Kill    string   // lists the statements that end all other sessions of the database

	// Source returns how the driver of Harness reaches a database. If it is nil, the DSN is that
	// of testdb, with Params, and the driver of testdb makes the tables.
	Source func(d *testdb.Database) (dsn string)
}

// of returns what pairs of all modes have.
func (e *Engine) of(mode string) sqllocktest.Harness {
	h := e.Harness
	h.Mode, h.Database, h.Brief = mode, e.Name, e.Short
	h.Fresh = func(t testing.TB) string { return e.Migrated(t, testdb.New(t, e.Name)) }
	h.DSN = h.Fresh
	return h
}

// Unique is the unique mode on the engine.
func (e *Engine) Unique() sqllocktest.Harness {
	h := e.of("unique")
	h.New = func(ctx context.Context, db *sql.DB, o *sqllocktest.Options) (*sqllock.Locker, error) {
		return sqllock.NewUnique(ctx, e.Open(db), o.Unique())
	}
	return h
}

// ForUpdate is the for update mode on the engine.
func (e *Engine) ForUpdate() sqllocktest.Harness {
	h := e.ofSessions("for update", 6, 21) // the session, the row, the term; and back
	h.Sessions.Alone, h.Sessions.Conns = true, sqllock.DefaultMaxConns
	h.New = func(ctx context.Context, db *sql.DB, o *sqllocktest.Options) (*sqllock.Locker, error) {
		opts := o.ForUpdate()
		if opts != nil && db != nil { // as many as the test's handle may open, but for one
			opts.MaxConns = max(2, db.Stats().MaxOpenConnections-1)
		}
		return sqllock.NewForUpdate(ctx, e.Open(db).(driver.ForUpdateDatabase), opts)
	}
	h.Transactions = true
	return h
}

// Advisory is the advisory mode on the engine. Postgres before 14 is accepted: [Engine.Complete]
// says what is lost there.
func (e *Engine) Advisory() sqllocktest.Harness {
	h := e.ofSessions("advisory", 2, 8)
	h.Sessions.Conns = 2
	h.New = func(ctx context.Context, db *sql.DB, o *sqllocktest.Options) (*sqllock.Locker, error) {
		opts := o.Advisory()
		if opts != nil {
			opts.AllowSilentHolders = true
		}
		return sqllock.NewAdvisory(ctx, e.Open(db).(driver.AdvisoryDatabase), opts)
	}
	h.Transactions = e.Name == testdb.Postgres
	return h
}

// ofSessions is of a mode that keeps locks in sessions. The numbers are how many round
// trips a lock takes on Postgres, and on MySQL, where most statements take two.
func (e *Engine) ofSessions(mode string, onPostgres, onMySQL int) sqllocktest.Harness {
	h := e.of(mode)
	h.Table = nil
	network := *h.Network
	network.RoundTrips = onMySQL
	if e.Name == testdb.Postgres {
		network.RoundTrips = onPostgres
	}
	h.Network = &network
	h.Sessions = &sqllocktest.Sessions{Kill: func(ctx context.Context, db *sql.DB) error { return killAll(ctx, db, e.Kill) }}
	if e.Name != testdb.Postgres {
		h.MinTTL = 2 * time.Second
	}
	return h
}

// Server starts a server that a test may stop.
func (e *Engine) Server(t testing.TB) (dsn string, stop, start func()) {
	t.Helper()
	s := testdb.StartServer(t, e.Name)
	return e.Migrated(t, s.Database), s.Kill, s.Restart
}

// Migrated makes the tables.
func (e *Engine) Migrated(t testing.TB, d *testdb.Database) (dsn string) {
	t.Helper()
	var db *sql.DB
	if e.Source == nil {
		dsn, db = d.DSN(e.Params...), d.Open(t)
	} else {
		var err error
		dsn = e.Source(d)
		if db, err = e.Harness.OpenDB(dsn); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
	}
	if err := migrations.Up(context.Background(), e.Open(db)); err != nil {
		t.Fatal(err)
	}
	return dsn
}

// VersionIs begins the line in which [Engine.Complete] tells the version of an engine.
const VersionIs = "the version of the database is "

// Complete logs the version of the database, and adds to a harness what depends on it.
func (e *Engine) Complete(t testing.TB, h *sqllocktest.Harness, dsn string) {
	t.Helper()
	db, err := h.OpenDB(dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	query := map[string]string{testdb.SQLite: `SELECT sqlite_version()`, testdb.Postgres: `SELECT current_setting('server_version')`}[e.Name]
	if query == "" {
		query = `SELECT version()`
	}
	var version string
	if err := db.QueryRowContext(t.Context(), query).Scan(&version); err != nil {
		t.Fatal(err)
	}
	t.Log(VersionIs + version)
	h.SilentHolders = e.Name == testdb.Postgres && h.Mode == "advisory" && major(version) < 14 // it has no idle_session_timeout
}

// major returns the first number of a version.
func major(version string) int {
	n, _ := strconv.Atoi(version[:len(version)-len(strings.TrimLeft(version, "0123456789"))])
	return n
}
