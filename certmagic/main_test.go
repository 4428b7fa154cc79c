package certmagiclock_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/sqllock/sqllock"
	certmagiclock "github.com/sqllock/sqllock/certmagic"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockmysql"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
)

func TestMain(m *testing.M) {
	if os.Getenv(envEngine) != "" {
		if err := replica(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	testdb.Main(m)
}

// testTimeout is more than anything takes.
const testTimeout = time.Minute

// database is one as unique mode needs it.
type database interface {
	driver.UniqueDatabase
	driver.Migratable
}

func target(engine string, db *sql.DB) database {
	switch engine {
	case testdb.Postgres:
		return lockpg.DB(db)
	case testdb.SQLite:
		return locksqlite.DB(db)
	}
	return lockmysql.DB(db)
}

// openLocks makes the tables and a Locker.
func openLocks(ctx context.Context, engine string, db *sql.DB) (*sqllock.Locker, error) {
	d := target(engine, db)
	if err := migrations.Up(ctx, d); err != nil {
		return nil, err
	}
	return sqllock.NewUnique(ctx, d, nil)
}

// newStorage returns a Storage whose certificates are in a directory.
func newStorage(t *testing.T, locks *sqllock.Locker, dir string) *certmagiclock.Storage {
	t.Helper()
	s, err := certmagiclock.New(&certmagic.FileStorage{Path: dir}, locks, "tls/")
	if err != nil {
		t.Fatal(err)
	}
	return s
}
