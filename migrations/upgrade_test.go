package migrations_test

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
)

// firstVersion is the oldest migration. Libraries that know no other can work
// with all tables until now.
const firstVersion = 20261121000001

// older makes a database as the library left it that knew the first migration
// only, with rows in it.
func older(t *testing.T, engine string, db *sql.DB, m database) {
	t.Helper()
	h := &halfway{engine: engine, db: db, m: m, files: steps(t, m)}
	h.below(t, 1)
	mustExec(t, db, fmt.Sprintf(`INSERT INTO sqllock_lock (name, acq, owner, version, holds, acquired_at, expires_at, not_before) VALUES
		('free', NULL, NULL, 7, 0, 1, 2, 3), ('held', %s, 'o', 8, 2, 1, 9000000000000000, 0)`, literal(engine, driver.ID{15: 9})))
}

// literal is an id in SQL.
func literal(engine string, id driver.ID) string {
	if engine == testdb.Postgres {
		return "'" + id.String() + "'"
	}
	return "x'" + id.String() + "'"
}

// rows are the rows of the lock table, but for what the first migration does not
// have.
func rows(t *testing.T, engine string, db *sql.DB) []string {
	t.Helper()
	list := []string{"name", "coalesce(owner, '-')", "version", "holds", "acquired_at", "expires_at", "not_before", "acq IS NULL"}
	if engine == testdb.SQLite || engine == testdb.Postgres {
		return query(t, db, `SELECT `+strings.Join(list, ` || ' ' || `)+` FROM sqllock_lock ORDER BY name`)
	}
	return query(t, db, `SELECT concat_ws(' ', `+strings.Join(list, `, `)+`) FROM sqllock_lock ORDER BY name`)
}

func TestRowsSurviveEachMigrationUpAndDown(t *testing.T) {
	each(t, func(t *testing.T, d *testdb.Database) {
		db := d.Open(t)
		m := target(d.Engine(), db, "", "")
		older(t, d.Engine(), db, m)
		wantRows, wantColumns := rows(t, d.Engine(), db), columns(t, d.Engine(), db)
		if len(wantRows) != 2 {
			t.Fatalf("%q", wantRows)
		}
		for range 2 {
			up(t, m)
			checkApplied(t, m)
			checkUsable(t, m)
			mustExec(t, db, `DELETE FROM sqllock_lock WHERE name = 'k'`)
			if got := rows(t, d.Engine(), db); !slices.Equal(got, wantRows) {
				t.Errorf("Up made %q of %q", got, wantRows)
			}
			if got := query(t, db, `SELECT count(*) FROM sqllock_lock WHERE value IS NULL AND ended = 0 AND revoked = 0`)[0]; got != "2" {
				t.Errorf("%s of 2 rows have the defaults", got)
			}
			if got := query(t, db, `SELECT swept_at FROM sqllock_meta`)[0]; got != "0" {
				t.Errorf("swept at %s", got)
			}
			downTo(t, m, firstVersion)
			if got := rows(t, d.Engine(), db); !slices.Equal(got, wantRows) {
				t.Errorf("Down made %q of %q", got, wantRows)
			}
			if got := columns(t, d.Engine(), db); !slices.Equal(got, wantColumns) {
				t.Errorf("Down left %q, want %q", got, wantColumns)
			}
			if got := query(t, db, `SELECT schema_version FROM sqllock_meta`)[0]; got != fmt.Sprint(firstVersion) {
				t.Errorf("Down left version %s", got)
			}
		}
	})
}

func TestTheViewTellsHowTermsEnded(t *testing.T) {
	each(t, func(t *testing.T, d *testdb.Database) {
		db := d.Open(t)
		up(t, target(d.Engine(), db, "", ""))
		for ended, name := range []string{"a", "b", "c", "d"} { // 2040-01-01 00:00:00
			mustExec(t, db, fmt.Sprintf(`INSERT INTO sqllock_lock (name, version, ended, not_before) VALUES ('%s', 1, %d, %d)`,
				name, ended, 2208988800_000000*int64(ended%2)))
		}
		mustExec(t, db, `INSERT INTO sqllock_lock (name, acq, version, ended) VALUES ('e', `+literal(d.Engine(), driver.ID{1})+`, 1, 3)`)
		got := query(t, db, `SELECT coalesce(ended, 'not') FROM sqllock_locks ORDER BY name`)
		if want := []string{"released", "released", "expired", "forced", "not"}; !slices.Equal(got, want) {
			t.Errorf("ended %q, want %q", got, want)
		}
		year := map[string]string{
			testdb.SQLite:   `strftime('%Y', kept_until)`,
			testdb.Postgres: `extract(year FROM kept_until AT TIME ZONE 'UTC')::text`,
		}[d.Engine()]
		if year == "" {
			year = `CAST(year(kept_until) AS char)`
		}
		got = query(t, db, `SELECT coalesce(`+year+`, '-') FROM sqllock_locks ORDER BY name`)
		if want := []string{"-", "2040", "-", "2040", "-"}; !slices.Equal(got, want) {
			t.Errorf("kept until %q, want %q", got, want)
		}
	})
}

func TestUnusualSessionsOfMySQLMigrate(t *testing.T) {
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
				downTo(t, m, firstVersion)
				mustExec(t, d.Open(t), `UPDATE sqllock_migration SET is_applied = false WHERE version_id > 0`)
				down(t, m)
				if left := objects(t, engine, db); len(left) > 0 {
					t.Errorf("left %q", left)
				}
			})
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
