package lockpg_test

import (
	"context"
	"database/sql"
	"flag"
	"slices"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/migrations"
)

// classify tells what an error means.
var classify = new(lockpg.Database).Classify

func TestMain(m *testing.M) {
	testdb.Expect("lockpg", testdb.Postgres)
	testdb.Expect("lockpg on a server of its own", testdb.Postgres)
	testdb.Expect(behindPooler, testdb.Postgres)
	// Main says that the rest was not covered, and fails if it is required.
	switch {
	case !slices.Contains(testdb.Engines(), testdb.Postgres):
		_ = flag.Set("test.run", "BeforeAnySQL$")
	case !slices.Contains(testdb.Startable(), testdb.Postgres):
		_ = flag.Set("test.skip", "OnAServerOfItsOwn$|ThroughPgbouncer$")
	case testdb.PoolerReason() != "":
		_ = flag.Set("test.skip", "ThroughPgbouncer$")
	}
	testdb.LeaveOut("OnAServerOfItsOwn$|ThroughPgbouncer$|^Test(ASweepTakesInProportion|ASilentClientIsFreed" +
		"|ASilentNetworkIsNoticed|AnIndexIsBuiltConcurrently|AGuardKeepsEverybodyFromTheNameOfASession)")
	testdb.Main(m)
}

// behindPooler is what the tests cover that need pgbouncer.
const behindPooler = "lockpg behind pgbouncer on a server of its own"

// shared is an empty database on a server that all tests share.
func shared(t *testing.T) *testdb.Database {
	t.Helper()
	testdb.Cover("lockpg", testdb.Postgres)
	return testdb.New(t, testdb.Postgres)
}

// dedicated is a server that nobody else uses.
func dedicated(t *testing.T, args ...string) *testdb.Server {
	t.Helper()
	testdb.Cover("lockpg on a server of its own", testdb.Postgres)
	return testdb.StartServer(t, testdb.Postgres, args...)
}

// foreign is a dedicated server that is not taken for any other.
func foreign(t *testing.T) *testdb.Server {
	t.Helper()
	testdb.Cover("lockpg on a server of its own", testdb.Postgres)
	return testdb.StartForeign(t, testdb.Postgres)
}

// withTables is a database with tables on the shared server. The library takes all of them for
// one: a copy has the id of what was copied. Another one is shared and then migrated.
func withTables(t *testing.T) *testdb.Database {
	t.Helper()
	testdb.Cover("lockpg", testdb.Postgres)
	return testdb.NewMigrated(t, testdb.Postgres, func(db *sql.DB) error {
		return migrations.Up(context.Background(), lockpg.DB(db))
	})
}

func migrated(t *testing.T) *sql.DB {
	t.Helper()
	return withTables(t).Open(t)
}

func migrate(t *testing.T, db *sql.DB) {
	t.Helper()
	if err := migrations.Up(t.Context(), lockpg.DB(db)); err != nil {
		t.Fatal(err)
	}
}
