//go:build unix

package migratelock_test

import (
	"syscall"
	"testing"

	"github.com/sqllock/sqllock/internal/process"
	"github.com/sqllock/sqllock/internal/testdb"
)

// begin starts a process, and returns when it is where it waits with the lock.
func begin(t *testing.T, d *testdb.Database, where string) *process.Process {
	t.Helper()
	p := start(t, d, where)
	p.Tell(where)
	return p
}

func TestAProcessThatIsKilledBeforeItMigratesFreesTheLock(t *testing.T) {
	t.Parallel()
	d := testdb.New(t, testdb.Postgres)
	first := begin(t, d, beforeAll)
	second := start(t, d, "")
	first.Signal(syscall.SIGKILL)
	second.Tell("migrated")
	checkMigrated(t, d)
}

// The migration is left dirty, as golang-migrate leaves it with any lock.
func TestAProcessThatIsKilledInAMigrationFreesTheLock(t *testing.T) {
	t.Parallel()
	d := testdb.New(t, testdb.Postgres)
	first := begin(t, d, inTheMid)
	second := start(t, d, "")
	first.Signal(syscall.SIGKILL)
	second.Tell("dirty 1")
	second.Tell("migrated")
	checkMigrated(t, d)
}

func TestAProcessThatWasPausedBeginsNoMigrationWithoutTheLock(t *testing.T) {
	t.Parallel()
	d := testdb.New(t, testdb.Postgres)
	first := begin(t, d, beforeAll)
	first.Signal(syscall.SIGSTOP)
	second := start(t, d, "")
	second.Tell("migrated")
	first.Signal(syscall.SIGCONT)
	first.Tell("lost")
	checkMigrated(t, d)
}
