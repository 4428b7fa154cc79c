package migratelock_test

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/source/iofs"

	"github.com/sqllock/sqllock"
	migratelock "github.com/sqllock/sqllock/golangmigrate"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/migrations"
)

//go:embed testdata
var files embed.FS

func TestMain(m *testing.M) {
	if os.Getenv(envDSN) != "" {
		if err := replica(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	testdb.Main(m)
}

// lockName is the name that all tests lock.
const lockName = "deploy"

// testTimeout is more than anything takes.
const testTimeout = time.Minute

// openLocks makes the tables and a Locker on Postgres, in a schema of their own: Drop drops all
// tables of the current one.
func openLocks(ctx context.Context, db *sql.DB) (*sqllock.Locker, error) {
	d := lockpg.DB(db, lockpg.Schema("locks"))
	if err := migrations.Up(ctx, d); err != nil {
		return nil, err
	}
	return sqllock.NewUnique(ctx, d, nil)
}

// newMigrate returns golang-migrate on Postgres with a Driver of ours. The inner one may be wrapped.
func newMigrate(db *sql.DB, locks *sqllock.Locker, wrap func(database.Driver) database.Driver, opts ...sqllock.LockOption) (*migrate.Migrate, error) {
	inner, err := pgx.WithInstance(db, &pgx.Config{})
	if err != nil {
		return nil, err
	}
	if wrap == nil {
		wrap = func(d database.Driver) database.Driver { return d }
	}
	d, err := migratelock.New(wrap(inner), locks, lockName, opts...)
	if err != nil {
		return nil, err
	}
	source, err := iofs.New(files, "testdata")
	if err != nil {
		return nil, err
	}
	return migrate.NewWithInstance("iofs", source, "pgx5", d)
}

// closeMigrate closes both sides.
func closeMigrate(t *testing.T, m *migrate.Migrate) {
	t.Helper()
	if err := errors.Join(m.Close()); err != nil {
		t.Error(err)
	}
}

// postgresLocks returns a Locker that is closed at the end of the test.
func postgresLocks(t *testing.T, d *testdb.Database) *sqllock.Locker {
	t.Helper()
	locks, err := openLocks(t.Context(), d.Open(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		if err := locks.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return locks
}
