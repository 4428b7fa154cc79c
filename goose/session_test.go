package gooselock_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/testdb"
)

// newConn returns a connection as goose has one.
func newConn(t *testing.T, db *sql.DB) *sql.Conn {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// serverLocks counts the locks that the server keeps for conn.
func serverLocks(t *testing.T, engine string, conn *sql.Conn) (n int) {
	t.Helper()
	query := `SELECT coalesce(is_used_lock(concat('sqllock goose ', left(sha2(concat(database(), ' ', ` +
		`sha2('sqllock goose migrations', 256)), 256), 32))) = connection_id(), 0)`
	if engine == testdb.Postgres {
		query = `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()`
	}
	if err := conn.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestTheSessionIsLockedUntilTheUnlockAndNothingIsLeftOfIt(t *testing.T) {
	onEach(t, func(t *testing.T, d *testdb.Database) {
		db := d.Open(t)
		l := newLocker(t, newLocks(t, unique, d.Engine(), db, longTTL))
		conn := newConn(t, db)
		if err := l.SessionLock(t.Context(), conn); err != nil {
			t.Fatal(err)
		}
		if n := serverLocks(t, d.Engine(), conn); n != 1 {
			t.Errorf("the session has %d locks", n)
		}
		if err := l.SessionUnlock(t.Context(), conn); err != nil {
			t.Error(err)
		}
		if n := serverLocks(t, d.Engine(), conn); n != 0 {
			t.Errorf("the session has %d locks still", n)
		}
	})
}

func TestUnlockReportsASessionWithoutItsLock(t *testing.T) {
	onEach(t, func(t *testing.T, d *testdb.Database) {
		db := d.Open(t)
		locks := newLocks(t, unique, d.Engine(), db, longTTL)
		l := newLocker(t, locks)
		conn := newConn(t, db)
		if err := l.SessionLock(t.Context(), conn); err != nil {
			t.Fatal(err)
		}
		all := `DO release_lock(concat('sqllock goose ', left(sha2(concat(database(), ' ', sha2('sqllock goose migrations', 256)), 256), 32)))`
		if d.Engine() == testdb.Postgres {
			all = `SELECT pg_advisory_unlock_all()`
		}
		if _, err := conn.ExecContext(t.Context(), all); err != nil {
			t.Fatal(err)
		}
		if err := l.SessionUnlock(t.Context(), conn); err == nil || !strings.Contains(err.Error(), "had lost its lock") {
			t.Errorf("the unlock says %v", err)
		}
		checkFree(t, locks)
	})
}

func TestUnlockReportsAnEndedSessionAndReleasesTheName(t *testing.T) {
	onEach(t, func(t *testing.T, d *testdb.Database) {
		db := d.Open(t)
		locks := newLocks(t, unique, d.Engine(), db, longTTL)
		l := newLocker(t, locks)
		conn := newConn(t, db)
		if err := l.SessionLock(t.Context(), conn); err != nil {
			t.Fatal(err)
		}
		id, end := `SELECT connection_id()`, `KILL ?`
		if d.Engine() == testdb.Postgres {
			id, end = `SELECT pg_backend_pid()`, `SELECT pg_terminate_backend($1)`
		}
		var session int64
		if err := conn.QueryRowContext(t.Context(), id).Scan(&session); err != nil {
			t.Fatal(err)
		}
		if _, err := db.ExecContext(t.Context(), end, session); err != nil {
			t.Fatal(err)
		}
		if err := l.SessionUnlock(t.Context(), conn); err == nil {
			t.Error("the unlock says nothing")
		}
		checkFree(t, locks)
	})
}

// checkFree checks that the name can be had at once.
func checkFree(t *testing.T, locks *sqllock.Locker) {
	t.Helper()
	lease, err := locks.TryLock(t.Context(), lockName)
	if err != nil {
		t.Error(err)
		return
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestTheMigratedDatabaseMayDifferFromTheDatabaseOfTheLock(t *testing.T) {
	onEach(t, func(t *testing.T, d *testdb.Database) {
		l := newLocker(t, newLocks(t, unique, d.Engine(), d.Open(t), longTTL))
		for _, engine := range testdb.All() {
			conn := newConn(t, testdb.New(t, engine).Open(t))
			if err := errors.Join(l.SessionLock(t.Context(), conn), l.SessionUnlock(t.Context(), conn)); err != nil {
				t.Errorf("%s: %v", engine, err)
			}
		}
	})
}
