package lockpg_test

import (
	"database/sql"
	"testing"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/difftest"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockpg"
)

// The sessions find a clock of the test before that of the server. Nor does the server end a
// transaction whose client is silent: a loaded machine may silence it for a second.
func TestGeneratedStepsDoWhatTheStateMachineSays(t *testing.T) {
	t.Parallel()
	const path = "search_path=fake,pg_catalog,public"
	for name, c := range map[string]struct {
		open  func(t *testing.T, d *testdb.Database) *sql.DB
		steps int
	}{
		"pgx": {func(t *testing.T, d *testdb.Database) *sql.DB { return d.Open(t, path) }, difftest.Steps()},
		// It runs the same statements, one after the other.
		"another driver": {func(t *testing.T, d *testdb.Database) *sql.DB { return hide(t, d.DSN(path)) }, difftest.Steps() / 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := shared(t)
			admin := database.Open(t)
			migrate(t, admin)
			mustExec(t, admin, `CREATE SCHEMA fake; CREATE TABLE fake.clock (now bigint); INSERT INTO fake.clock VALUES (0);
				CREATE FUNCTION fake.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS $$
				BEGIN RETURN (SELECT timestamptz 'epoch' + now * interval '1 microsecond' FROM fake.clock); END $$;
				CREATE FUNCTION fake.set_config(name text, value text, local boolean) RETURNS text LANGUAGE sql AS $$
				SELECT pg_catalog.set_config(name, CASE name WHEN 'idle_in_transaction_session_timeout' THEN '0' ELSE value END, local) $$;
				CREATE FUNCTION fake.statement_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT fake.clock_timestamp()'`)
			mustExec(t, admin, countQuickly)
			db := c.open(t, database)
			difftest.Run(t, difftest.Fixture{
				DB: db,
				Open: func(tb testing.TB, client driver.Client) driver.Store {
					s, err := lockpg.DB(db).OpenUnique(tb.Context(), client)
					if err != nil {
						tb.Fatal(err)
					}
					return s
				},
				SetClock: func(tb testing.TB, to int64) {
					if _, err := admin.ExecContext(tb.Context(), `UPDATE fake.clock SET now = $1`, to); err != nil {
						tb.Fatal(err)
					}
				},
				ID:        `replace(replace(coalesce(%s::text, ''), '-', ''), '\x', '')`,
				Text:      "coalesce(%s, '')",
				Parameter: "$1",
			}, c.steps)
			quick := get[int](t, admin, `SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM fake.quick`)
			t.Logf("%d names were handed over by one statement", quick)
			if quick < c.steps/200 {
				t.Errorf("%d names were handed over by one statement in %d steps", quick, c.steps)
			}
		})
	}
}

// countQuickly counts what hand_over_quickly hands over: it is the only statement that does so
// and deletes a claim.
const countQuickly = `CREATE SEQUENCE fake.quick;
	CREATE FUNCTION fake.note_quick() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF current_query() LIKE '%DELETE FROM%' THEN PERFORM nextval('fake.quick'); END IF;
		RETURN NULL;
	END $$;
	CREATE TRIGGER count AFTER UPDATE ON sqllock_lock FOR EACH ROW WHEN (OLD.acq <> NEW.acq) EXECUTE FUNCTION fake.note_quick()`
