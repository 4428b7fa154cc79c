package testdb_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/netproxy"
	"github.com/sqllock/sqllock/internal/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }

func TestEachTestHasAnEmptyDatabaseOfItsOwn(t *testing.T) {
	for _, engine := range testdb.All() {
		t.Run(engine, func(t *testing.T) {
			for range 2 {
				db := testdb.New(t, engine)
				mustExec(t, db.Open(t), `CREATE TABLE t (id INTEGER PRIMARY KEY)`)
				mustExec(t, db.Open(t), `INSERT INTO t VALUES (1)`) // seen by another handle
			}
		})
	}
}

func TestTheDatabaseIsDroppedThoughSessionsAreLeft(t *testing.T) {
	for _, engine := range testdb.Engines() {
		t.Run(engine, func(t *testing.T) {
			var gone *testdb.Database
			t.Run("use", func(t *testing.T) {
				gone = testdb.New(t, engine)
				leaveSession(t, gone)
			})
			if t.Failed() {
				return
			}
			list := map[string]string{
				testdb.Postgres: `SELECT datname FROM pg_database`,
				testdb.MariaDB:  `SHOW DATABASES`,
				testdb.MySQL:    `SHOW DATABASES`,
			}
			if names := column(t, testdb.New(t, engine).Open(t), list[engine]); strings.Contains(names, gone.Name()) {
				t.Errorf("%s is still there: %s", gone.Name(), names)
			}
		})
	}
}

// leaveSession leaves a transaction open, with a row locked, until after the
// database was dropped.
func leaveSession(t *testing.T, d *testdb.Database) {
	driver := "mysql"
	if d.Engine() == testdb.Postgres {
		driver = "pgx"
	}
	db, err := sql.Open(driver, d.DSN())
	if err != nil {
		t.Fatal(err)
	}
	mustExec(t, db, `CREATE TABLE t (id INTEGER PRIMARY KEY)`)
	mustExec(t, db, `INSERT INTO t VALUES (1)`)
	tx, err := db.BeginTx(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(`UPDATE t SET id = 2`); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(time.Second, func() { _, _ = tx.Rollback(), db.Close() })
}

func TestParametersReachTheSession(t *testing.T) {
	for _, engine := range testdb.All() {
		t.Run(engine, func(t *testing.T) {
			db := testdb.New(t, engine)
			var handle *sql.DB
			var query, want string
			switch engine {
			case testdb.SQLite:
				handle, query, want = db.Open(t, "_pragma=synchronous(1)"), `PRAGMA synchronous`, "1"
			case testdb.Postgres:
				handle = db.Open(t, "default_transaction_isolation=repeatable read", "application_name=a&b")
				query, want = `SELECT current_setting('transaction_isolation') || current_setting('application_name')`, "repeatable reada&b"
			default:
				handle = db.Open(t, "lock_wait_timeout=7", "clientFoundRows=true")
				query, want = `SELECT @@lock_wait_timeout`, "7"
			}
			if got := column(t, handle, query); got != want {
				t.Errorf("want %q, got %q", want, got)
			}
		})
	}
}

func TestSQLiteHasWriteAheadLoggingAndWaits(t *testing.T) {
	db := testdb.New(t, testdb.SQLite)
	got := column(t, db.Open(t), `PRAGMA journal_mode`) + " " + column(t, db.Open(t), `PRAGMA busy_timeout`)
	if got != "wal 5000" || db.Path() == "" || db.Addr() != "" {
		t.Errorf("got %q, path %q, address %q", got, db.Path(), db.Addr())
	}
}

func TestSharedServersAreDurableAndAcceptManyConnections(t *testing.T) {
	for _, engine := range testdb.Startable() {
		t.Run(engine, func(t *testing.T) {
			query, want := `SELECT @@innodb_flush_log_at_trx_commit, @@autocommit, @@max_connections`, "1 1 1000"
			if engine == testdb.Postgres {
				query = `SELECT current_setting('fsync'), current_setting('synchronous_commit'), current_setting('max_connections')`
				want = "on on 1000"
			}
			var a, b, c string
			if err := testdb.New(t, engine).Open(t).QueryRow(query).Scan(&a, &b, &c); err != nil {
				t.Fatal(err)
			}
			if got := a + " " + b + " " + c; got != want {
				t.Errorf("want %q, got %q", want, got)
			}
		})
	}
}

func TestACommitSurvivesTheLossOfItsReply(t *testing.T) {
	for _, engine := range testdb.Engines() {
		t.Run(engine, func(t *testing.T) {
			d := testdb.New(t, engine)
			mustExec(t, d.Open(t), `CREATE TABLE t (id INTEGER PRIMARY KEY)`)
			proxy := netproxy.New(t, d.Addr())
			db := d.OpenVia(t, proxy.Addr())
			tx, err := db.Begin()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(`INSERT INTO t VALUES (1)`); err != nil {
				t.Fatal(err)
			}
			before := proxy.RoundTrips()
			proxy.OnUp(func(_ int, b []byte) netproxy.Action {
				if strings.Contains(strings.ToLower(string(b)), "commit") {
					return netproxy.CutAfterReply
				}
				return netproxy.Pass
			})
			if err := tx.Commit(); err == nil {
				t.Error("the reply was not lost")
			}
			if n := proxy.RoundTrips() - before; n != 1 {
				t.Errorf("COMMIT took %d round trips", n)
			}
			if got := column(t, d.Open(t), `SELECT id FROM t`); got != "1" {
				t.Errorf("the commit was lost: %q", got)
			}
		})
	}
}

func mustExec(t testing.TB, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.Exec(statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// column returns the first column of a query's rows, with blanks between.
func column(t testing.TB, db *sql.DB, query string) string {
	t.Helper()
	rows, err := db.Query(query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, " ")
}
