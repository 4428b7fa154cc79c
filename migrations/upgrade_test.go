package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/migrations"
)

// literal is an id in SQL.
func literal(engine string, id byte) string {
	if engine == testdb.Postgres {
		return "'" + driver.ID{15: id}.String() + "'"
	}
	return "x'" + driver.ID{15: id}.String() + "'"
}

// rows are the rows of the lock table, but for what a later migration adds.
func rows(t *testing.T, engine string, db *sql.DB) []string {
	t.Helper()
	list := []string{"name", "coalesce(owner, '-')", "version", "holds", "since", "expires_at", "not_before", "acq IS NULL"}
	if engine == testdb.SQLite || engine == testdb.Postgres {
		return query(t, db, `SELECT `+strings.Join(list, ` || ' ' || `)+` FROM sqllock_lock ORDER BY name`)
	}
	return query(t, db, `SELECT concat_ws(' ', `+strings.Join(list, `, `)+`) FROM sqllock_lock ORDER BY name`)
}

func TestRowsSurviveEachMigrationUpAndDown(t *testing.T) {
	each(t, func(t *testing.T, d *testdb.Database) {
		db := d.Open(t)
		m := target(d.Engine(), db, "", "")
		up(t, m)
		mustExec(t, db, `INSERT INTO sqllock_lock (name, acq, owner, version, holds, since, expires_at, not_before) VALUES
			('free', NULL, NULL, 7, 0, 1, 2, 3), ('held', `+literal(d.Engine(), 9)+`, 'o', 8, 2, 1, 9000000000000000, 0)`)
		wantRows, wantColumns := rows(t, d.Engine(), db), columns(t, d.Engine(), db)
		if len(wantRows) != 2 {
			t.Fatalf("%q", wantRows)
		}
		beNext(t)
		for range 2 {
			up(t, m)
			checkApplied(t, m)
			checkUsable(t, m)
			mustExec(t, db, `DELETE FROM sqllock_lock WHERE name = 'k'`)
			if got := rows(t, d.Engine(), db); !slices.Equal(got, wantRows) {
				t.Errorf("Up made %q of %q", got, wantRows)
			}
			if got := query(t, db, `SELECT count(*) FROM sqllock_lock WHERE note IS NULL`)[0]; got != "2" {
				t.Errorf("%s of 2 rows have the default", got)
			}
			downTo(t, m, driver.FirstSchema)
			if got := rows(t, d.Engine(), db); !slices.Equal(got, wantRows) {
				t.Errorf("Down made %q of %q", got, wantRows)
			}
			if got := columns(t, d.Engine(), db); !slices.Equal(got, wantColumns) {
				t.Errorf("Down left %q, want %q", got, wantColumns)
			}
			if got := query(t, db, `SELECT schema_version FROM sqllock_meta`)[0]; got != fmt.Sprint(driver.FirstSchema) {
				t.Errorf("Down left version %s", got)
			}
		}
	})
}

// newer brings a database to the next version of the library.
func newer(t *testing.T, m driver.Migratable) {
	t.Helper()
	defer migrations.Add("testdata/next")()
	up(t, m)
}

func TestALibraryGoesOnWithNewerTablesThatAreCompatible(t *testing.T) {
	each(t, func(t *testing.T, d *testdb.Database) {
		db := d.Open(t)
		m := target(d.Engine(), db, "", "")
		up(t, m)
		s, err := m.OpenUnique(t.Context(), driver.Client{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		newer(t, m)
		take(t, s) // opened before
		before := columns(t, d.Engine(), db)
		up(t, m)
		checkUsable(t, m)
		if err := migrations.Down(t.Context(), m); !errors.Is(err, driver.ErrSchema) {
			t.Errorf("Down: %v", err)
		}
		list, err := migrations.Status(t.Context(), m)
		if n := len(list); err != nil || n < 2 || list[n-1].Version != 20991231000001 || !list[n-1].Applied || list[n-1].Name != "" {
			t.Errorf("%+v, %v", list, err)
		}
		if got := columns(t, d.Engine(), db); !slices.Equal(got, before) {
			t.Errorf("the older library made %q of %q", got, before)
		}

		mustExec(t, db, `UPDATE sqllock_meta SET compatible_from = 20991231000001`)
		if err := migrations.Up(t.Context(), m); !errors.Is(err, driver.ErrSchema) {
			t.Errorf("Up: %v", err)
		}
		for mode, err := range openAll(t, m) {
			if !errors.Is(err, sqllock.ErrSchema) || !strings.Contains(err.Error(), "upgrade") {
				t.Errorf("%s: %v", mode, err)
			}
		}
	})
}

// openAll opens and closes a Locker of each mode, and returns the errors.
func openAll(t *testing.T, m database) map[string]error {
	t.Helper()
	errs := make(map[string]error)
	try := func(mode string, l *sqllock.Locker, err error) {
		if errs[mode] = err; err == nil {
			_ = l.Close(t.Context())
		}
	}
	l, err := sqllock.NewUnique(t.Context(), m, nil)
	try("unique", l, err)
	if m, ok := m.(driver.ForUpdateDatabase); ok {
		l, err := sqllock.NewForUpdate(t.Context(), m, nil)
		try("for update", l, err)
	}
	if m, ok := m.(driver.AdvisoryDatabase); ok {
		l, err := sqllock.NewAdvisory(t.Context(), m, nil)
		try("advisory", l, err)
	}
	return errs
}

func TestOnPostgresTheFunctionsOfTwoVersionsWorkSideBySide(t *testing.T) {
	for _, engine := range testdb.Engines() {
		if engine != testdb.Postgres {
			continue
		}
		db := testdb.New(t, engine).Open(t)
		m := lockpg.DB(db)
		up(t, m)
		locker, err := sqllock.NewAdvisory(t.Context(), m, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			_ = locker.Close(ctx)
		}()
		newer(t, m)

		// The session of a newer library, which calls the newer function.
		session, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = session.Close() }()
		try := func() (token int64) {
			t.Helper()
			err := session.QueryRowContext(t.Context(), `SELECT f.tokens[1] FROM sqllock_meta m, LATERAL sqllock_try_2(ARRAY[('x' ||
				left(encode(sha256('sqllock advisory'::bytea || '\x00'::bytea || uuid_send(m.id) || '\x00'::bytea || 'n'::bytea), 'hex'),
				16))::bit(64)::bigint], '{1}', '{f}', '{n}', '{t}', 3) f`).Scan(&token)
			if err != nil {
				t.Fatal(err)
			}
			return token
		}
		lease, err := locker.TryLock(t.Context(), "n")
		if err != nil {
			t.Fatal(err)
		}
		if token := try(); token != 0 {
			t.Errorf("both hold the name, the newer one with token %d", token)
		}
		if err := lease.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if token := try(); token <= lease.Token() {
			t.Errorf("token %d follows %d", token, lease.Token())
		}
		if _, err := locker.TryLock(t.Context(), "n"); !errors.Is(err, sqllock.ErrHeld) {
			t.Errorf("while the newer one holds the name: %v", err)
		}
		if _, err := session.ExecContext(t.Context(), `SELECT pg_advisory_unlock_all()`); err != nil {
			t.Fatal(err)
		}
		lease, err = locker.TryLock(t.Context(), "n")
		if err != nil {
			t.Fatalf("after the newer one has let go: %v", err)
		}
		if err := lease.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// makeUnreleased makes tables as libraries had them that were never released.
func makeUnreleased(t *testing.T, engine string, db *sql.DB) {
	t.Helper()
	name := engine
	if engine != testdb.SQLite && engine != testdb.Postgres {
		name = "mysql"
	}
	text, err := os.ReadFile("testdata/unreleased/" + name + ".sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range statements(string(text)) {
		mustExec(t, db, statement)
	}
}

func TestTablesThatWereNeverReleasedAreRefusedAndDroppedByOneDown(t *testing.T) {
	each(t, func(t *testing.T, d *testdb.Database) {
		db := d.Open(t)
		m := target(d.Engine(), db, "", "")
		for _, change := range []string{
			``,
			`DROP TABLE sqllock_migration`, // the application's own goose made them
			`UPDATE sqllock_meta SET schema_version = 20261121000001`,
			`DROP VIEW sqllock_locks`, // a Down that died
		} {
			makeUnreleased(t, d.Engine(), db)
			if change != "" {
				mustExec(t, db, change)
			}
			before := columns(t, d.Engine(), db)
			errs := openAll(t, m)
			errs["Up"] = migrations.Up(t.Context(), m)
			for what, err := range errs {
				if !errors.Is(err, sqllock.ErrSchema) || !strings.Contains(err.Error(), `"sqllock migrate down --force"`) {
					t.Errorf("%s after %q: %v", what, change, err)
				}
			}
			if got := columns(t, d.Engine(), db); !slices.Equal(got, before) {
				t.Errorf("a refusal made %q of %q", got, before)
			}
			if list, err := migrations.Status(t.Context(), m); err != nil || !list[0].Applied || list[0].Version >= driver.FirstSchema {
				t.Errorf("after %q: %+v, %v", change, list, err)
			}
			down(t, m)
			if left := append(objects(t, d.Engine(), db), functions(t, d.Engine(), db)...); len(left) > 0 {
				t.Errorf("after %q Down left %q", change, left)
			}
			up(t, m)
			checkApplied(t, m)
			checkUsable(t, m)
			down(t, m)
		}
	})
}

// On MySQL each statement commits by itself, so a Down can die between any two.
func TestOnMySQLAnUnfinishedDropOfTablesThatWereNeverReleasedIsFinished(t *testing.T) {
	for _, engine := range testdb.Engines() {
		if engine == testdb.Postgres {
			continue
		}
		db := testdb.New(t, engine).Open(t)
		m := target(engine, db, "", "")
		makeUnreleased(t, engine, db)
		mustExec(t, db, `DROP VIEW sqllock_locks`)
		for _, table := range []string{"ticket", "holder", "term", "pin", "fence", "lock", "meta"} {
			mustExec(t, db, `DROP TABLE sqllock_`+table)
			if err := migrations.Up(t.Context(), m); !errors.Is(err, sqllock.ErrSchema) {
				t.Errorf("without %s: %v", table, err)
			}
		}
		down(t, m)
		if left := objects(t, engine, db); len(left) > 0 {
			t.Errorf("Down left %q", left)
		}
		up(t, m)
		checkUsable(t, m)
	}
}

func TestTablesInAnotherSchemaThanNewOnesWouldBeAreNotMigrated(t *testing.T) {
	for _, engine := range testdb.Engines() {
		if engine != testdb.Postgres {
			continue
		}
		d := testdb.New(t, engine)
		db := d.Open(t)
		up(t, lockpg.DB(db))
		mustExec(t, db, `CREATE SCHEMA app`)
		elsewhere := lockpg.DB(d.Open(t, "search_path=app,public"))
		up(t, elsewhere) // nothing to do
		beNext(t)
		if err := migrations.Up(t.Context(), elsewhere); err == nil || !strings.Contains(err.Error(), "are in schema public") {
			t.Errorf("Up with a search_path that begins elsewhere = %v", err)
		}
		up(t, lockpg.DB(db))
		up(t, elsewhere)
	}
}

func TestTheViewShowsTimestampsAndWhoIsAlive(t *testing.T) {
	each(t, func(t *testing.T, d *testdb.Database) {
		db := d.Open(t)
		up(t, target(d.Engine(), db, "", ""))
		id := func(n byte) string { return literal(d.Engine(), n) }
		const past, future = "1750000000123000", "2208988800456000" // in 2040
		for ended, name := range []string{"a", "b", "c", "d"} {
			mustExec(t, db, fmt.Sprintf(`INSERT INTO sqllock_lock (name, version, ended, not_before) VALUES ('%s', 1, %d, %d * %s)`,
				name, ended, ended%2, future))
		}
		mustExec(t, db, `INSERT INTO sqllock_lock (name, acq, owner, label, version, holds, since, expires_at, ended) VALUES
			('e', `+id(1)+`, 'o', 'host 7', 42, 2, `+past+`, `+future+`, 3), ('f', `+id(2)+`, 'o', 'l', 43, 1, `+past+`, `+past+`, 0)`)
		mustExec(t, db, `INSERT INTO sqllock_lock (name, version, since, waiting, holding) VALUES ('g', 44, `+past+`, 3, 3)`)
		claim := func(n byte, state, kind int, locker byte, until string) {
			mustExec(t, db, fmt.Sprintf(`INSERT INTO sqllock_claim (name, state, seq, acq, kind, slot, token, holds, ttl, handed, max_hold,
				since, expires_at, limit_at, delay, locker, owner, label) VALUES ('g', %d, %d, %s, %d, 0, 44, 1, 1, 1, 0, 1, %s, 0, 0, %s, 'o', 'l')`,
				state, n, id(n), kind, until, id(locker)))
		}
		claim(11, 1, 1, 1, future)
		claim(12, 1, 1, 1, past)
		claim(13, 0, 0, 1, "0")
		claim(14, 0, 1, 2, "0")
		claim(15, 0, 0, 3, "0")
		mustExec(t, db, `INSERT INTO sqllock_waiter (locker, expires_at) VALUES (`+id(1)+`, `+future+`), (`+id(2)+`, `+past+`)`)

		texts := map[string]string{
			testdb.Postgres: `coalesce(to_char(COLUMN AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.MS'), '-')`,
			testdb.SQLite:   `coalesce(COLUMN, '-')`,
		}
		text := texts[d.Engine()]
		if text == "" {
			text = `coalesce(LEFT(DATE_FORMAT(COLUMN, '%Y-%m-%d %H:%i:%s.%f'), 23), '-')`
		}
		const since, until, long = "2025-06-15 15:06:40.123", "2040-01-01 00:00:00.456", "1970-01-01 00:00:00.000"
		for column, want := range map[string][]string{
			"CASE WHEN held THEN 'yes' ELSE 'no' END": {"no", "no", "no", "no", "yes", "no", "yes"},
			"coalesce(owner, '-')":                    {"-", "-", "-", "-", "o", "o", "-"},
			"coalesce(label, '-')":                    {"-", "-", "-", "-", "host 7", "l", "-"},
			"token":                                   {"1", "1", "1", "1", "42", "43", "44"},
			"holds":                                   {"0", "0", "0", "0", "2", "1", "0"},
			"coalesce(ended, 'not')":                  {"released", "released", "expired", "forced", "not", "not", "not"},
			"readers":                                 {"0", "0", "0", "0", "0", "0", "1"},
			"waiters":                                 {"0", "0", "0", "0", "0", "0", "1"},
			strings.ReplaceAll(text, "COLUMN", "held_since"):   {"-", "-", "-", "-", since, since, since},
			strings.ReplaceAll(text, "COLUMN", "l.expires_at"): {long, long, long, long, until, since, until},
			strings.ReplaceAll(text, "COLUMN", "kept_until"):   {"-", until, "-", until, "-", "-", "-"},
		} {
			if got := query(t, db, `SELECT `+column+` FROM sqllock_locks l ORDER BY name`); !slices.Equal(got, want) {
				t.Errorf("%s is %q, want %q", column, got, want)
			}
		}
	})
}

func TestUnusualSessionsOfMySQLMigrate(t *testing.T) {
	beNext(t)
	for _, engine := range testdb.Engines() {
		if engine == testdb.Postgres {
			continue
		}
		for _, session := range []string{
			"sql_safe_updates=1", "charset=latin1", "clientFoundRows=true", "interpolateParams=true",
			"sql_mode='ANSI,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,HIGH_NOT_PRECEDENCE,IGNORE_SPACE'",
		} {
			t.Run(engine+" "+session, func(t *testing.T) {
				d := testdb.New(t, engine)
				db := d.Open(t, session)
				m := target(engine, db, "", "")
				up(t, m)
				checkApplied(t, m)
				checkUsable(t, m)
				downTo(t, m, driver.FirstSchema)
				mustExec(t, d.Open(t), `UPDATE sqllock_migration SET is_applied = false WHERE version_id > 0`)
				down(t, m)
				if left := objects(t, engine, db); len(left) > 0 {
					t.Errorf("left %q", left)
				}
			})
		}
	}
}

// The next version has a function more. Both are bound to a schema that was renamed.
func TestFunctionsOfAllVersionsAreBound(t *testing.T) {
	beNext(t)
	for _, engine := range testdb.Engines() {
		if engine != testdb.Postgres {
			continue
		}
		db := testdb.New(t, engine).Open(t, "standard_conforming_strings=off")
		up(t, target(engine, db, "", "old"))
		mustExec(t, db, `ALTER SCHEMA old RENAME TO "new\1"`)
		mustExec(t, db, `SELECT "new\1".sqllock_bind_1('new'||chr(92)||'1', 'sqllock_')`)
		got := query(t, db, `SELECT count(*) || ' of ' || count(*) FILTER (WHERE strpos(prosrc, '"new'||chr(92)||'1"."sqllock_lock"') > 0 OR strpos(prosrc, '"new'||chr(92)||'1"."sqllock_t') > 0)
			FROM pg_proc WHERE proname LIKE 'sqllock_try_%' AND strpos(prosrc, '"old"') = 0`)
		if got[0] != "2 of 2" {
			t.Errorf("functions that name no old schema, and the new one: %s", got)
		}
	}
}

// Names of tables that differ by case only are two where the server says so. On
// MySQL their constraints would still have one name.
func TestPrefixesThatDifferByCaseAreToldApart(t *testing.T) {
	for _, engine := range testdb.Engines() {
		if engine == testdb.MySQL {
			continue
		}
		db := testdb.New(t, engine).Open(t)
		if engine != testdb.Postgres && query(t, db, `SELECT @@lower_case_table_names`)[0] != "0" {
			continue
		}
		lower, upper := target(engine, db, "app_", ""), target(engine, db, "APP_", "")
		up(t, lower)
		up(t, upper)
		checkUsable(t, upper)
		down(t, lower)
		checkUsable(t, upper)
		downAll(t, upper)
		downAll(t, lower)
		if left := objects(t, engine, db); len(left) > 0 {
			t.Errorf("%s: left %q", engine, left)
		}
	}
}
