package lockpg_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/lockpg"
)

// changed is what a Locker sets for a session that it keeps.
const changed = `SELECT concat_ws(' ', current_setting('plan_cache_mode'), current_setting('enable_seqscan'),
	current_setting('enable_bitmapscan'), current_setting('enable_nestloop'), current_setting('jit'))`

// worked returns a store on the one connection of a pool, which changed its settings.
func worked(t *testing.T, db *sql.DB) driver.Store {
	t.Helper()
	db.SetMaxOpenConns(1)
	store, err := lockpg.Reserve(t.Context(), open(t, db))
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		v := grant(t, store, request("k", 1, time.Minute))[0].Version
		let(t, store, releasing("k", 1, v))
	}
	return store
}

func TestASessionThatIsKeptGivesItsSettingsBack(t *testing.T) {
	t.Parallel()
	database := withTables(t)
	const own = "force_custom_plan on off on on"
	db := database.Open(t, "plan_cache_mode=force_custom_plan", "enable_bitmapscan=off", "jit=on")
	store := worked(t, db)
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if got := get[string](t, db, changed); got != own {
		t.Errorf("the application gets a session with the settings %q, it had %q", got, own)
	}
	if n := get[int](t, db, `SELECT count(*)::int FROM pg_prepared_statements WHERE statement LIKE '%force_generic_plan%'`); n < 2 {
		t.Errorf("%d statements have changed settings: the session's were not changed", n)
	}
}

// setConfig stands before the function of the server.
const setConfig = `CREATE OR REPLACE FUNCTION fake.set_config(name text, value text, local boolean) RETURNS text LANGUAGE plpgsql AS $$
	BEGIN RETURN %s; END $$`

func TestASessionThatDoesNotGetItsSettingsBackEnds(t *testing.T) {
	t.Parallel()
	database := withTables(t)
	admin := database.Open(t)
	mustExec(t, admin, `CREATE SCHEMA fake`)
	mustExec(t, admin, fmt.Sprintf(setConfig, `pg_catalog.set_config(name, value, local)`))
	db := database.Open(t, "search_path=fake,pg_catalog,public")
	store := worked(t, db)
	mustExec(t, admin, fmt.Sprintf(setConfig, `1 / 0`))
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if got, want := get[string](t, db, changed), get[string](t, admin, changed); got != want {
		t.Errorf("the application gets a session with the settings %q, want %q", got, want)
	}
}

// Through a pooler another process serves the session, and may serve others later.
func TestASessionThatAnotherProcessServesKeepsItsSettings(t *testing.T) {
	t.Parallel()
	database := withTables(t)
	admin := database.Open(t)
	mustExec(t, admin, `CREATE SCHEMA fake; CREATE FUNCTION fake.pg_backend_pid() RETURNS integer LANGUAGE sql AS 'SELECT 1'`)
	db := database.Open(t, "search_path=fake,pg_catalog,public")
	store := worked(t, db)
	settings := lockpg.Changed(store)
	if err := store.Close(); err != nil || len(settings) > 0 {
		t.Errorf("%v were changed; %v", settings, err)
	}
}
