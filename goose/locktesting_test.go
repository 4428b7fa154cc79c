package gooselock_test

import (
	"testing"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
	"github.com/pressly/goose/v3/lock/locktesting"

	"github.com/sqllock/sqllock/internal/testdb"
)

// begun returns p after it has made its version table, which goose does before it
// locks: on MySQL those who do so at once can get in each other's way. Within
// Locker.Do, of which goose's tests know nothing, they cannot.
func begun(t *testing.T, p *goose.Provider) *goose.Provider {
	t.Helper()
	if _, err := p.HasPending(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestGoosesOwnTestOfProvidersPasses(t *testing.T) {
	each(t, func(t *testing.T, mode string, d *testdb.Database) {
		for _, way := range ways {
			t.Run(way, func(t *testing.T) {
				t.Parallel()
				d := testdb.New(t, d.Engine())
				locktesting.TestProviderLocking(t, func(t *testing.T) *goose.Provider {
					db := d.Open(t)
					return begun(t, mustProvider(t, d.Engine(), db, way, newLocker(t, newLocks(t, mode, d.Engine(), db, longTTL)), time.Second))
				})
				checkRuns(t, d.Open(t), all...)
			})
		}
	})
}

func TestGoosesOwnTestOfLockersPasses(t *testing.T) {
	each(t, func(t *testing.T, mode string, d *testdb.Database) {
		db := d.Open(t)
		locktesting.TestConcurrentLocking(t, db, func(t *testing.T) lock.Locker {
			return newLocker(t, newLocks(t, mode, d.Engine(), db, longTTL))
		}, time.Second)
	})
}

func TestGoosesOwnTestPassesWithOneSharedLocker(t *testing.T) {
	onEach(t, func(t *testing.T, d *testdb.Database) {
		db := d.Open(t)
		l := newLocker(t, newLocks(t, unique, d.Engine(), db, longTTL))
		locktesting.TestProviderLocking(t, func(t *testing.T) *goose.Provider {
			return begun(t, mustProvider(t, d.Engine(), db, bySession, l, time.Second))
		})
		checkRuns(t, db, all...)
	})
}
