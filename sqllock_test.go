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

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/pairs"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockmysql"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/locksqlite"
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

type database = pairs.Database

func sqlite(db *sql.DB) database   { return locksqlite.DB(db) }
func postgres(db *sql.DB) database { return lockpg.DB(db) }
func mySQL(db *sql.DB) database    { return lockmysql.DB(db) }

// engines are the databases, a row each, and then some with unusual settings.
var engines = []engine{
	// A power failure is not tested: nothing is gained by waiting for the disk.
	{testdb.SQLite, pairs.SQLite, sqlite, "", []string{"_pragma=synchronous(NORMAL)"}, "", false},
	{testdb.Postgres, pairs.Postgres, postgres, "", nil, pairs.KillPostgres, false},
	{testdb.MariaDB, pairs.MariaDB, mySQL, "", nil, pairs.KillMySQL, false},
	{testdb.MySQL, pairs.MySQL, mySQL, "", nil, pairs.KillMySQL, false},

	{testdb.Postgres, pairs.Postgres, postgres, "SERIALIZABLE", []string{"default_transaction_isolation=serializable"}, pairs.KillPostgres, true},
	{testdb.Postgres, pairs.Postgres, postgres, "the simple protocol", []string{"default_query_exec_mode=simple_protocol"}, pairs.KillPostgres, false},
	{testdb.MariaDB, pairs.MariaDB, mySQL, "clientFoundRows", []string{"clientFoundRows=true"}, pairs.KillMySQL, false},
	{testdb.MariaDB, pairs.MariaDB, mySQL, "SERIALIZABLE", []string{"tx_isolation='SERIALIZABLE'", "interpolateParams=true"}, pairs.KillMySQL, true},
	{testdb.MariaDB, pairs.MariaDB, mySQL, "READ UNCOMMITTED", []string{"tx_isolation='READ-UNCOMMITTED'", "clientFoundRows=true"}, pairs.KillMySQL, false},
	{testdb.MySQL, pairs.MySQL, mySQL, "clientFoundRows", []string{"clientFoundRows=true"}, pairs.KillMySQL, false},
	{testdb.MySQL, pairs.MySQL, mySQL, "SERIALIZABLE", []string{"transaction_isolation='SERIALIZABLE'", "interpolateParams=true"}, pairs.KillMySQL, true},
}

// pair is a mode on an engine.
type pair struct {
	*engine
	sqllocktest.Harness
}

// allPairs are all pairs of a mode and a database, whether the database is here or
// not.
func allPairs() (all []pair) {
	for i := range engines {
		e := &engines[i]
		all = append(all, pair{e, e.shared().Unique()})
		if e.name == testdb.SQLite { // package quorumtest has quorums on the others
			all = append(all, pair{e, e.quorum()})
		}
		if e.kill != "" && (e.setting == "" || e.sessions) {
			all = append(all, pair{e, e.shared().ForUpdate()}, pair{e, e.shared().Advisory()})
		}
	}
	return all
}

// harnesses are those of all pairs.
func harnesses() (all []sqllocktest.Harness) {
	for _, p := range allPairs() {
		all = append(all, p.Harness)
	}
	return all
}

// shared is the engine as the tests of other drivers know it.
func (e *engine) shared() *pairs.Engine {
	return &pairs.Engine{Name: e.name, Harness: e.harness, Open: e.open, Short: e.setting != "", Params: e.params, Kill: e.kill}
}

// migrated makes the tables.
func (e *engine) migrated(t testing.TB, d *testdb.Database) (dsn string) {
	t.Helper()
	return e.shared().Migrated(t, d)
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
	for _, p := range allPairs() {
		e, h := p.engine, p.Harness
		if slices.Contains(startable, e.name) {
			h.Server = &sqllocktest.Server{Start: e.shared().Server}
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
			dsn := h.Fresh(t)
			if e.name != testdb.SQLite { // where writers of one file wait for each other
				h.DSN = func(testing.TB) string { return dsn }
			}
			e.shared().Complete(t, &h, dsn)
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
