package sqllock_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockmysql"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
	"github.com/sqllock/sqllock/sqllocktest"
)

// engine is a database, and how to make it one of this library.
type engine struct {
	name    string // as testdb has it
	harness sqllocktest.Harness
	open    func(*sql.DB) database
	setting string   // how it differs from the ordinary, "" if it is the ordinary
	params  []string // of the DSN

	kill     string // lists the statements that end all other sessions of the database
	sessions bool   // the setting is tested in the modes that keep locks in sessions too
}

type database interface {
	driver.UniqueDatabase
	driver.Migratable
}

func sqlite(db *sql.DB) database   { return locksqlite.DB(db) }
func postgres(db *sql.DB) database { return lockpg.DB(db) }
func mySQL(db *sql.DB) database    { return lockmysql.DB(db) }

// engines are the databases, a row each, and then some with unusual settings.
var engines = []engine{
	// A power failure is not tested: nothing is gained by waiting for the disk.
	{testdb.SQLite, sqliteHarness, sqlite, "", []string{"_pragma=synchronous(NORMAL)"}, "", false},
	{testdb.Postgres, postgresHarness, postgres, "", nil, killPostgres, false},
	{testdb.MariaDB, mariadbHarness, mySQL, "", nil, killMySQL, false},
	{testdb.MySQL, mysqlHarness, mySQL, "", nil, killMySQL, false},

	{testdb.Postgres, postgresHarness, postgres, "SERIALIZABLE", []string{"default_transaction_isolation=serializable"}, killPostgres, true},
	{testdb.Postgres, postgresHarness, postgres, "the simple protocol", []string{"default_query_exec_mode=simple_protocol"}, killPostgres, false},
	{testdb.MariaDB, mariadbHarness, mySQL, "clientFoundRows", []string{"clientFoundRows=true"}, killMySQL, false},
	{testdb.MariaDB, mariadbHarness, mySQL, "SERIALIZABLE", []string{"tx_isolation='SERIALIZABLE'", "interpolateParams=true"}, killMySQL, true},
	{testdb.MariaDB, mariadbHarness, mySQL, "READ UNCOMMITTED", []string{"tx_isolation='READ-UNCOMMITTED'", "clientFoundRows=true"}, killMySQL, false},
	{testdb.MySQL, mysqlHarness, mySQL, "clientFoundRows", []string{"clientFoundRows=true"}, killMySQL, false},
	{testdb.MySQL, mysqlHarness, mySQL, "SERIALIZABLE", []string{"transaction_isolation='SERIALIZABLE'", "interpolateParams=true"}, killMySQL, true},
}

// pair is a mode on an engine.
type pair struct {
	*engine
	sqllocktest.Harness
}

// pairs are all pairs of a mode and a database, whether the database is here or
// not.
func pairs() (all []pair) {
	for i := range engines {
		e := &engines[i]
		all = append(all, pair{e, e.unique()})
		if e.name == testdb.SQLite { // package quorumtest has quorums on the others
			all = append(all, pair{e, e.quorum()})
		}
		if e.kill != "" && (e.setting == "" || e.sessions) {
			all = append(all, pair{e, e.forUpdate()}, pair{e, e.advisory()})
		}
	}
	return all
}

// harnesses are those of all pairs.
func harnesses() (all []sqllocktest.Harness) {
	for _, p := range pairs() {
		all = append(all, p.Harness)
	}
	return all
}

func (e *engine) of(mode string) sqllocktest.Harness {
	h := e.harness
	h.Mode, h.Database, h.Brief = mode, e.name, e.setting != ""
	h.Fresh = func(t testing.TB) string { return e.migrated(t, testdb.New(t, e.name)) }
	h.DSN = h.Fresh
	return h
}

func (e *engine) unique() sqllocktest.Harness {
	h := e.of("unique")
	h.New = func(ctx context.Context, db *sql.DB, o *sqllocktest.Options) (*sqllock.Locker, error) {
		return sqllock.NewUnique(ctx, e.open(db), o.Unique())
	}
	return h
}

func (e *engine) forUpdate() sqllocktest.Harness {
	h := e.ofSessions("for update", 6, 21) // the session, the row, the term; and back
	h.Sessions.Alone, h.Sessions.Conns = true, sqllock.DefaultMaxConns
	h.New = func(ctx context.Context, db *sql.DB, o *sqllocktest.Options) (*sqllock.Locker, error) {
		opts := o.ForUpdate()
		if opts != nil && db != nil { // as many as the test's handle may open, but for one
			opts.MaxConns = max(2, db.Stats().MaxOpenConnections-1)
		}
		return sqllock.NewForUpdate(ctx, e.open(db).(driver.ForUpdateDatabase), opts)
	}
	h.Transactions = true
	return h
}

func (e *engine) advisory() sqllocktest.Harness {
	h := e.ofSessions("advisory", 2, 8)
	h.Sessions.Conns = 2
	h.New = func(ctx context.Context, db *sql.DB, o *sqllocktest.Options) (*sqllock.Locker, error) {
		return sqllock.NewAdvisory(ctx, e.open(db).(driver.AdvisoryDatabase), o.Advisory())
	}
	h.Transactions = e.name == testdb.Postgres
	return h
}

// ofSessions is of a mode that keeps locks in sessions. The numbers are how many round
// trips a lock takes on Postgres, and on MySQL, where most statements take two.
func (e *engine) ofSessions(mode string, onPostgres, onMySQL int) sqllocktest.Harness {
	h := e.of(mode)
	h.Table = nil
	network := *h.Network
	network.RoundTrips = onMySQL
	if e.name == testdb.Postgres {
		network.RoundTrips = onPostgres
	}
	h.Network = &network
	h.Sessions = &sqllocktest.Sessions{Kill: func(ctx context.Context, db *sql.DB) error { return killAll(ctx, db, e.kill) }}
	if e.name != testdb.Postgres {
		h.MinTTL = 2 * time.Second
	}
	return h
}

// server starts a server that a test may stop.
func (e *engine) server(t testing.TB) (dsn string, stop, start func()) {
	t.Helper()
	s := testdb.StartServer(t, e.name)
	return e.migrated(t, s.Database), s.Kill, s.Restart
}

// migrated makes the tables.
func (e *engine) migrated(t testing.TB, d *testdb.Database) (dsn string) {
	t.Helper()
	if err := migrations.Up(context.Background(), e.open(d.Open(t))); err != nil {
		t.Fatal(err)
	}
	return d.DSN(e.params...)
}

func TestMain(m *testing.M) {
	slog.SetLogLoggerLevel(slog.LevelError + 1) // many tests lose leases, and say so by themselves
	sqllocktest.Main(harnesses()...)
	testdb.LeaveOut("TestConformance/_with_|TestConformance/^(for_update|advisory|quorum)_on_" +
		"|^Test(ARole|WhereFunctions|TenThousand|FiveHundredWaiters|Hostile|NothingThatIsGivenIsPartOfAStatementInTheLog)")
	testdb.Main(m)
}

func TestConformance(t *testing.T) {
	here, startable := testdb.All(), testdb.Startable()
	short := strings.Split(os.Getenv("SQLLOCK_TEST_BRIEF"), ",")
	for _, p := range pairs() {
		e, h := p.engine, p.Harness
		if slices.Contains(startable, e.name) {
			h.Server = &sqllocktest.Server{Start: e.server}
		}
		mode := h.Mode
		if h.Brief = h.Brief || testing.Short() || slices.Contains(short, h.Mode+" on "+h.Database); h.Brief {
			mode += " in brief"
		}
		if e.setting == "" && e.name != testdb.MySQL { // which is there by address only
			testdb.Expect(mode, h.Database)
		}
		if !slices.Contains(here, e.name) {
			continue
		}
		name := h.Mode + " on " + h.Database
		if e.setting != "" {
			name += " with " + e.setting
		}
		t.Run(name, func(t *testing.T) {
			if e.name != testdb.SQLite { // where writers of one file wait for each other
				dsn := h.Fresh(t)
				h.DSN = func(testing.TB) string { return dsn }
			}
			sqllocktest.Run(t, h)
			for _, s := range h.Omitted() {
				t.Log("does not apply, as " + s)
			}
			if e.setting == "" {
				testdb.Cover(mode, h.Database)
			}
		})
	}
}

// TestAHandleOfAnotherDatabaseIsRefused gives each package the handles of the
// others, and those once more through a driver that does not say what it is.
func TestAHandleOfAnotherDatabaseIsRefused(t *testing.T) {
	here := testdb.All()
	for _, e := range engines {
		if e.setting != "" || !slices.Contains(here, e.name) {
			continue
		}
		d := testdb.New(t, e.name)
		handle := d.Open(t)
		hidden := sql.OpenDB(anonymous{dsn: d.DSN(), driver: handle.Driver()})
		t.Cleanup(func() { _ = hidden.Close() })
		for product, open := range map[string]func(*sql.DB) database{"sqlite": sqlite, "pgx": postgres, "mysql": mySQL} {
			if product == e.harness.Driver {
				continue
			}
			for what, db := range map[string]*sql.DB{"the handle": handle, "the handle of an unknown driver": hidden} {
				l, err := sqllock.NewUnique(t.Context(), open(db), nil)
				if l != nil || !errors.Is(err, sqllock.ErrInvalidOption) {
					t.Errorf("%s of %s as one of %s: want ErrInvalidOption, got %v, %v", what, e.name, product, l, err)
				}
			}
		}
	}
}

// anonymous connects as a driver does that wraps another.
type anonymous struct {
	dsn    string
	driver sqldriver.Driver
}

func (a anonymous) Driver() sqldriver.Driver                        { return a }
func (a anonymous) Open(dsn string) (sqldriver.Conn, error)         { return a.driver.Open(dsn) }
func (a anonymous) Connect(context.Context) (sqldriver.Conn, error) { return a.driver.Open(a.dsn) }
