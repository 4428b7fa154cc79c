package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockmysql"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
)

func TestUpIsRepeatableAndDownLeavesNothing(t *testing.T) {
	beNext(t)
	each(t, func(t *testing.T, d *testdb.Database) {
		db := d.Open(t)
		m := target(d.Engine(), db, "", "")
		down(t, m) // nothing to do
		for range 2 {
			up(t, m)
			up(t, m)
			checkApplied(t, m)
			checkUsable(t, m)
			downAll(t, m)
			down(t, m) // nothing to do
			if left := objects(t, d.Engine(), db); len(left) > 0 {
				t.Errorf("Down left %q", left)
			}
		}
	})
}

func TestStatusChangesNothing(t *testing.T) {
	each(t, func(t *testing.T, d *testdb.Database) {
		db := d.Open(t)
		m := target(d.Engine(), db, "", "")
		list, err := migrations.Status(t.Context(), m)
		if err != nil || len(list) == 0 || list[0].Applied || !list[0].AppliedAt.IsZero() ||
			!strings.HasSuffix(list[0].Name, "_sqllock.sql") {
			t.Errorf("%+v, %v", list, err)
		}
		if made := objects(t, d.Engine(), db); len(made) > 0 {
			t.Errorf("Status made %q", made)
		}
	})
}

// newest returns the version of the newest file.
func newest(t *testing.T, m driver.Migratable) int64 {
	t.Helper()
	files := steps(t, m)
	return files[len(files)-1].version
}

func TestEachDriverNeedsTheNewestMigrationOfItsDialect(t *testing.T) {
	never := func(error) bool { return false }
	for dialect, needed := range map[string]int64{
		"postgres": lockpg.SchemaVersion, "mysql": lockmysql.SchemaVersion, "sqlite": locksqlite.SchemaVersion,
	} {
		fsys, err := migrations.FS(fixed{desc: driver.Migration{Dialect: dialect, Prefix: "p_", Retryable: never}})
		if err != nil {
			t.Fatal(err)
		}
		paths, err := fs.Glob(fsys, "*.sql")
		if err != nil || !strings.HasPrefix(paths[len(paths)-1], fmt.Sprint(needed, "_")) {
			t.Errorf("%s: the driver needs %d, the files are %q, %v", dialect, needed, paths, err)
		}
		if !strings.HasPrefix(paths[0], fmt.Sprint(driver.FirstSchema, "_")) {
			t.Errorf("%s: the first file is %s, FirstSchema %d", dialect, paths[0], driver.FirstSchema)
		}
	}
	each(t, func(t *testing.T, d *testdb.Database) {
		m := target(d.Engine(), d.Open(t), "", "")
		if desc, err := m.Migration(); err != nil || desc.Version != newest(t, m) {
			t.Errorf("the driver tells that it needs %d, %v", desc.Version, err)
		}
	})
}

func TestTheTablesTellTheirVersionAndHaveAnID(t *testing.T) {
	each(t, func(t *testing.T, d *testdb.Database) {
		db := d.Open(t)
		m := target(d.Engine(), db, "", "")
		up(t, m)
		up(t, target(d.Engine(), db, "other_", ""))
		var version, compatibleFrom int64
		var id, other []byte
		err := db.QueryRow(`SELECT a.schema_version, a.compatible_from, a.id, b.id
			FROM sqllock_meta a CROSS JOIN other_meta b`).Scan(&version, &compatibleFrom, &id, &other)
		if err != nil || version != newest(t, m) || compatibleFrom != driver.FirstSchema {
			t.Errorf("%d, %d, %v", version, compatibleFrom, err)
		}
		if len(id) < 16 || string(id) == string(other) {
			t.Errorf("ids %x and %x", id, other)
		}
	})
}

func TestTwoPrefixesInOneDatabaseAreTwoSetsOfTables(t *testing.T) {
	each(t, func(t *testing.T, d *testdb.Database) {
		db := d.Open(t)
		one, two := target(d.Engine(), db, "App_", ""), target(d.Engine(), db, "_", "")
		up(t, one)
		up(t, two)
		checkApplied(t, one)
		checkUsable(t, one)
		checkUsable(t, two)
		down(t, one)
		up(t, one)
		checkUsable(t, one)
		downAll(t, one)
		checkUsable(t, two)
		for _, name := range objects(t, d.Engine(), db) {
			if name = strings.Trim(name, `"`); !strings.HasPrefix(name, "_") {
				t.Errorf("%q is left", name)
			}
		}
	})
}

func TestAPostgresSchemaIsCreatedAndStays(t *testing.T) {
	for _, engine := range testdb.Engines() {
		if engine != testdb.Postgres {
			continue
		}
		d := testdb.New(t, engine)
		db := d.Open(t)
		m := target(engine, db, "App_", "My_Locks")
		up(t, m)
		up(t, m)
		checkApplied(t, m)
		checkUsable(t, m)
		for _, name := range objects(t, engine, db) {
			if !strings.HasPrefix(name, `"My_Locks"."App_`) {
				t.Errorf("%s is elsewhere", name)
			}
		}
		downAll(t, m)
		if left := objects(t, engine, db); len(left) > 0 {
			t.Errorf("left %q", left)
		}
		if n := query(t, db, `SELECT nspname FROM pg_namespace WHERE nspname = 'My_Locks'`); len(n) != 1 {
			t.Error("the schema is gone")
		}
	}
}

// plainGoose is a provider as an application has it.
func plainGoose(t *testing.T, engine string, db *sql.DB, fsys fs.FS) *goose.Provider {
	t.Helper()
	dialect := map[string]goose.Dialect{testdb.SQLite: goose.DialectSQLite3, testdb.Postgres: goose.DialectPostgres}[engine]
	if dialect == "" {
		dialect = goose.DialectMySQL
	}
	p, err := goose.NewProvider(dialect, db, fsys)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestTheApplicationsGooseCanRunTheFiles(t *testing.T) {
	beNext(t)
	each(t, func(t *testing.T, d *testdb.Database) {
		db := d.Open(t, map[bool][]string{true: {"parseTime=true"}}[d.Engine() == testdb.MariaDB || d.Engine() == testdb.MySQL]...)
		m := target(d.Engine(), db, "App_", "")
		fsys, err := migrations.FS(m)
		if err != nil {
			t.Fatal(err)
		}
		if err := fstest.TestFS(fsys, "20261122000001_sqllock.sql", "20991231000001_next.sql"); err != nil {
			t.Error(err)
		}
		p := plainGoose(t, d.Engine(), db, fsys)
		if _, err := p.Up(t.Context()); err != nil {
			t.Fatal(err)
		}
		checkUsable(t, m)

		// Up accepts what goose did; Down does not touch it.
		up(t, m)
		list, err := migrations.Status(t.Context(), m)
		if err != nil || !list[0].Applied || !list[0].AppliedAt.IsZero() {
			t.Errorf("%+v, %v", list, err)
		}
		if err := migrations.Down(t.Context(), m); !errors.Is(err, driver.ErrSchema) {
			t.Errorf("Down: %v", err)
		}
		checkUsable(t, m)

		if _, err := p.Down(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Up(t.Context()); err != nil {
			t.Fatal(err)
		}
		checkUsable(t, m)
		if _, err := p.DownTo(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		for _, name := range objects(t, d.Engine(), db) {
			if strings.HasPrefix(strings.Trim(name, `"`), "App_") {
				t.Errorf("goose left %s", name)
			}
		}
	})
}

func TestGooseCanContinueTheAccountOfUp(t *testing.T) {
	beNext(t)
	each(t, func(t *testing.T, d *testdb.Database) {
		db := d.Open(t, map[bool][]string{true: {"parseTime=true"}}[d.Engine() == testdb.MariaDB || d.Engine() == testdb.MySQL]...)
		m := target(d.Engine(), db, "", "")
		up(t, m)
		fsys, err := migrations.FS(m)
		if err != nil {
			t.Fatal(err)
		}
		dialect := map[string]goose.Dialect{testdb.SQLite: goose.DialectSQLite3, testdb.Postgres: goose.DialectPostgres}[d.Engine()]
		if dialect == "" {
			dialect = goose.DialectMySQL
		}
		p, err := goose.NewProvider(dialect, db, fsys, goose.WithTableName("sqllock_migration"))
		if err != nil {
			t.Fatal(err)
		}
		if done, err := p.Up(t.Context()); err != nil || len(done) != 0 {
			t.Errorf("%v, %v", done, err)
		}
		if _, err := p.Down(t.Context()); err != nil {
			t.Error(err)
		}
		up(t, m)
		checkApplied(t, m)
		checkUsable(t, m)
	})
}

func TestWhatWasDroppedByHandIsMadeAgain(t *testing.T) {
	each(t, func(t *testing.T, d *testdb.Database) {
		db := d.Open(t)
		m := target(d.Engine(), db, "", "")
		up(t, m)
		for _, statement := range steps(t, m)[0].down { // which leaves the version table
			mustExec(t, db, statement)
		}
		up(t, m)
		checkApplied(t, m)
		checkUsable(t, m)
	})
}

// A dump without data restores tables whose version nobody knows. Up changes nothing then, so that
// whoever still has the account of migrations can undo them.
func TestTablesThatLostTheirRowAreRefused(t *testing.T) {
	each(t, func(t *testing.T, d *testdb.Database) {
		if engine := d.Engine(); engine != testdb.Postgres && engine != testdb.SQLite {
			return // a migration that died on the way leaves that too, and goes on
		}
		db := d.Open(t)
		m := target(d.Engine(), db, "", "")
		up(t, m)
		mustExec(t, db, `DELETE FROM sqllock_meta`)
		for range 2 {
			if err := migrations.Up(t.Context(), m); !errors.Is(err, driver.ErrSchema) || !strings.Contains(err.Error(), "sqllock_meta") {
				t.Errorf("Up of tables without their row = %v", err)
			}
		}
		down(t, m)
		if left := objects(t, d.Engine(), db); len(left) > 0 {
			t.Errorf("Down left %q", left)
		}
	})
}

func TestABadDatabaseIsToldBeforeAnySQL(t *testing.T) {
	never := func(error) bool { return false }
	closed := false
	for name, m := range map[string]driver.Migratable{
		"nil":     nil,
		"error":   fixed{err: driver.ErrInvalidOption},
		"dialect": fixed{desc: driver.Migration{Dialect: "oracle", Prefix: "p_", Retryable: never}},
		"prefix":  fixed{desc: driver.Migration{Dialect: "sqlite", Prefix: `"; `, Retryable: never}},
		"schema": fixed{desc: driver.Migration{
			Dialect: "postgres", Prefix: "p_", Schema: `a"b`, Retryable: never,
			Close: func() error { closed = true; return nil },
		}},
		"no schemas": fixed{desc: driver.Migration{Dialect: "sqlite", Prefix: "p_", Schema: "s", Retryable: never}},
	} {
		_, errStatus := migrations.Status(t.Context(), m)
		_, errFS := migrations.FS(m)
		for _, err := range []error{migrations.Up(t.Context(), m), migrations.Down(t.Context(), m), errStatus, errFS} {
			if !errors.Is(err, driver.ErrInvalidOption) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if !closed {
		t.Error("what was opened was not closed")
	}
}

// fixed is a database that gives a fixed description of itself.
type fixed struct {
	desc driver.Migration
	err  error
}

func (f fixed) Migration() (driver.Migration, error) {
	if f.desc.Close == nil {
		f.desc.Close = func() error { return nil }
	}
	return f.desc, f.err
}

func TestMySQLWithoutAutocommitIsRefused(t *testing.T) {
	for _, engine := range testdb.Engines() {
		if engine == testdb.Postgres {
			continue
		}
		db := testdb.New(t, engine).Open(t, "autocommit=0")
		if err := migrations.Up(t.Context(), target(engine, db, "", "")); !errors.Is(err, driver.ErrUnsupported) {
			t.Errorf("%s: %v", engine, err)
		}
	}
}

func TestUpEndsWithItsContext(t *testing.T) {
	each(t, func(t *testing.T, d *testdb.Database) {
		db := d.Open(t)
		m := target(d.Engine(), db, "", "")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := migrations.Up(ctx, m); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled before: %v", err)
		}
		release := block(t, d)
		ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		start := time.Now()
		if err := migrations.Up(ctx, m); err == nil || ctx.Err() == nil || time.Since(start) > 8*time.Second {
			t.Errorf("cancelled while waiting: %v after %v", err, time.Since(start))
		}
		release()
		up(t, m)
		checkUsable(t, m)
	})
}

// block makes whoever migrates wait until release is called.
func block(t *testing.T, d *testdb.Database) (release func()) {
	t.Helper()
	db := d.Open(t)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	statement := map[string]string{
		testdb.SQLite:   `BEGIN IMMEDIATE`,
		testdb.Postgres: `SELECT pg_advisory_lock(1936813164, 1835624306)`,
	}[d.Engine()]
	if statement == "" {
		statement = `DO GET_LOCK(concat('sqllock migrate ', left(sha2(database(), 256), 32)), 0)`
	}
	if _, err := conn.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
	return func() {
		end := map[string]string{
			testdb.SQLite:   `ROLLBACK`,
			testdb.Postgres: `SELECT pg_advisory_unlock_all()`,
		}[d.Engine()]
		if end == "" {
			end = `DO RELEASE_LOCK(concat('sqllock migrate ', left(sha2(database(), 256), 32)))`
		}
		if _, err := conn.ExecContext(context.Background(), end); err != nil {
			t.Error(err)
		}
		_ = conn.Close()
	}
}

func TestAMissingPrivilegeIsTold(t *testing.T) {
	each(t, func(t *testing.T, d *testdb.Database) {
		weak := unprivileged(t, d)
		m := target(d.Engine(), weak, "", "")
		start := time.Now()
		err := migrations.Up(t.Context(), m)
		if err == nil || time.Since(start) > 10*time.Second ||
			!slices.ContainsFunc([]string{"denied", "readonly"}, func(w string) bool { return strings.Contains(err.Error(), w) }) {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		// With the tables there, reading is enough.
		strong := d.Open(t)
		up(t, target(d.Engine(), strong, "", ""))
		if d.Engine() == testdb.Postgres {
			mustExec(t, strong, `GRANT SELECT ON ALL TABLES IN SCHEMA public TO PUBLIC`)
		}
		up(t, m)
		checkApplied(t, m)
	})
}

// mysqlRights are what the guide names for the role that migrates.
var mysqlRights = []string{"CREATE", "ALTER", "DROP", "CREATE VIEW", "SELECT", "INSERT", "UPDATE", "DELETE"}

func TestOnMySQLTheRoleThatMigratesNeedsWhatTheGuideNames(t *testing.T) {
	beNext(t)
	each(t, func(t *testing.T, d *testdb.Database) {
		if d.Engine() == testdb.SQLite || d.Engine() == testdb.Postgres {
			return
		}
		admin := target(d.Engine(), d.Open(t), "", "")
		migrate := func(m database) error {
			err := migrations.Up(t.Context(), m)
			for list, _ := migrations.Status(t.Context(), admin); err == nil && len(list) > 0; list = list[1:] {
				err = migrations.Down(t.Context(), m)
			}
			return err
		}
		t.Run("all", func(t *testing.T) {
			if err := migrate(target(d.Engine(), mysqlAccount(t, d, strings.Join(mysqlRights, ", ")), "", "")); err != nil {
				t.Error(err)
			}
		})
		for _, right := range mysqlRights {
			t.Run("without "+right, func(t *testing.T) {
				others := slices.DeleteFunc(slices.Clone(mysqlRights), func(r string) bool { return r == right })
				if migrate(target(d.Engine(), mysqlAccount(t, d, strings.Join(others, ", ")), "", "")) == nil {
					t.Errorf("it is not needed")
				}
			})
		}
	})
}

// unprivileged returns a handle that may read and not create.
func unprivileged(t *testing.T, d *testdb.Database) *sql.DB {
	t.Helper()
	switch d.Engine() {
	case testdb.SQLite:
		mustExec(t, d.Open(t), `PRAGMA user_version = 1`) // makes the file
		return d.Open(t, "mode=ro")
	case testdb.Postgres:
		mustExec(t, d.Open(t), `REVOKE CREATE ON SCHEMA public FROM PUBLIC`)
		db := d.Open(t, "role=pg_monitor")
		return db
	}
	return mysqlReader(t, d)
}
