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
			database := withTables(t)
			admin := database.Open(t)
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
					tb.Cleanup(func() { _ = s.Close() })
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
			for _, what := range quickly {
				n := get[int](t, admin, `SELECT n FROM fake.quick WHERE what = $1`, what)
				t.Logf("%s did %d of the requests", what, n)
				if n < c.steps/1000 {
					t.Errorf("%s did only %d of the requests of %d steps", what, n, c.steps)
				}
			}
		})
	}
}

// quickly are the statements in the place of visits that are counted.
var quickly = []string{"hand_over_quickly", "free_by_hand_over", "grant_to_queue", "queue_for_permits", "grant_permits", "free_claims", "hand_over_permits"}

// countQuickly counts what each of these statements does, which are known by what they change
// besides: hand_over_quickly deletes a claim as it changes the holder, or frees a name for which
// nobody waits; queue_quickly grants a name that is free; and the others change the row as they
// change a claim.
const countQuickly = `CREATE TABLE fake.quick (what text, n int);
	INSERT INTO fake.quick SELECT unnest('{hand_over_quickly,free_by_hand_over,grant_to_queue,queue_for_permits,grant_permits,free_claims,hand_over_permits}'::text[]), 0;
	CREATE FUNCTION fake.note_quick() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF current_query() LIKE TG_ARGV[1] THEN UPDATE fake.quick SET n = n + 1 WHERE what = TG_ARGV[0]; END IF;
		RETURN NULL;
	END $$;
	CREATE TRIGGER hand_over AFTER UPDATE ON sqllock_lock FOR EACH ROW WHEN (OLD.acq <> NEW.acq)
		EXECUTE FUNCTION fake.note_quick('hand_over_quickly', '%DELETE FROM%');
	CREATE TRIGGER freed AFTER UPDATE ON sqllock_lock FOR EACH ROW WHEN (OLD.acq IS NOT NULL AND NEW.acq IS NULL)
		EXECUTE FUNCTION fake.note_quick('free_by_hand_over', '%admitted AS%');
	CREATE TRIGGER entered AFTER UPDATE ON sqllock_lock FOR EACH ROW WHEN (OLD.acq IS NULL AND NEW.acq IS NOT NULL)
		EXECUTE FUNCTION fake.note_quick('grant_to_queue', '%entered AS%');
	CREATE TRIGGER queue AFTER INSERT ON sqllock_claim FOR EACH ROW WHEN (NEW.state = 0 AND NEW.kind = 2)
		EXECUTE FUNCTION fake.note_quick('queue_for_permits', '%UPDATE%');
	CREATE TRIGGER permit AFTER INSERT ON sqllock_claim FOR EACH ROW WHEN (NEW.state = 1)
		EXECUTE FUNCTION fake.note_quick('grant_permits', '%UPDATE%');
	CREATE TRIGGER ended AFTER DELETE ON sqllock_claim FOR EACH ROW WHEN (OLD.state = 1)
		EXECUTE FUNCTION fake.note_quick('free_claims', '%freed AS%');
	CREATE TRIGGER handed AFTER UPDATE ON sqllock_claim FOR EACH ROW WHEN (OLD.state <> NEW.state)
		EXECUTE FUNCTION fake.note_quick('hand_over_permits', '%')`
