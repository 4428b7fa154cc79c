package cronlock_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
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
	return sqllock.NewUnique(ctx, d, &sqllock.UniqueOptions{RetryMax: 50 * time.Millisecond})
}

// times are the scheduled times that have run.
type times struct {
	mu   sync.Mutex
	runs map[time.Time]int
}

func (r *times) add(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.runs == nil {
		r.runs = make(map[time.Time]int)
	}
	r.runs[at.UTC()]++
}

// sorted returns the times, and fails the test if one has run twice.
func (r *times) sorted(t *testing.T) (all []time.Time) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for at, n := range r.runs {
		if n != 1 {
			t.Errorf("%v ran %d times", at, n)
		}
		all = append(all, at)
	}
	slices.SortFunc(all, time.Time.Compare)
	return all
}
