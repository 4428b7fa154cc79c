package doctor

import (
	"context"
	"database/sql"
	"testing"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockmysql"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
)

// testDatabase is a database whose modes are not tried. The library may need newer tables.
type testDatabase struct {
	driver.Migratable
	handle *sql.DB
	newer  int64
}

func (d testDatabase) Conn(ctx context.Context) (*sql.Conn, error) { return d.handle.Conn(ctx) }
func (testDatabase) File() string                                  { return "file" }
func (testDatabase) Modes() []string                               { return Modes }
func (testDatabase) TryMode(context.Context, string) error         { return nil }

func (d testDatabase) Migration() (driver.Migration, error) {
	m, err := d.Migratable.Migration()
	m.Version += d.newer
	return m, err
}

func openTestDatabase(t *testing.T, engine string) testDatabase {
	t.Helper()
	d := testDatabase{handle: testdb.New(t, engine).Open(t)}
	switch engine {
	case testdb.Postgres:
		d.Migratable = lockpg.DB(d.handle)
	case testdb.SQLite:
		d.Migratable = locksqlite.DB(d.handle)
	default:
		d.Migratable = lockmysql.DB(d.handle)
	}
	return d
}

// wantBad checks what is bad, and whether migrations are what is missing.
func (d testDatabase) wantBad(t *testing.T, when string, some, migrateUp bool) {
	t.Helper()
	n := 0
	err := Check(t.Context(), d, func(f Finding) {
		if f.Grade == Bad {
			n++
		}
		if f.MigrateUp != (f.Grade == Bad && migrateUp) {
			t.Errorf("%s: MigrateUp is %v of %+v", when, f.MigrateUp, f)
		}
	})
	if err != nil || n > 0 != some {
		t.Errorf("%s: %d findings are bad, %v", when, n, err)
	}
}

func TestFindingsTellThatMigrationsWereNotApplied(t *testing.T) {
	t.Parallel()
	for _, engine := range testdb.All() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			d := openTestDatabase(t, engine)
			d.wantBad(t, "without tables", true, true)
			if err := migrations.Up(t.Context(), d.Migratable); err != nil {
				t.Fatal(err)
			}
			d.wantBad(t, "with tables", false, false)
			newer := d
			newer.newer = 1
			newer.wantBad(t, "with older tables", true, true)
			for _, statement := range []string{"UPDATE sqllock_meta SET schema_version = 1, compatible_from = 1", "UPDATE sqllock_meta SET compatible_from = 99990101000000"} {
				if _, err := d.handle.ExecContext(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
				d.wantBad(t, statement, true, false)
			}
		})
	}
}
