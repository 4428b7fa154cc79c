package lockpg_test

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/lockpg"
)

// Postgres keeps several lockers of a row apart. Then it does not tell a transaction with an old
// snapshot that the row was locked against guards and changed.
func TestAGuardWithAnOldSnapshotNoticesATermThatEndedBesideAnotherGuard(t *testing.T) {
	t.Parallel()
	for _, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable, sql.LevelReadCommitted} {
		t.Run(level.String(), func(t *testing.T) {
			db := migrated(t)
			locks, others := newLocker(t, lockpg.DB(db)), newLocker(t, lockpg.DB(db))
			begin := func(level sql.IsolationLevel) *sql.Tx {
				tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = tx.Rollback() })
				return tx
			}
			lease := lock(t, locks, "a")
			late := begin(level)
			var n int
			if err := late.QueryRow(`SELECT count(*) FROM sqllock_lock`).Scan(&n); err != nil {
				t.Fatal(err)
			}
			mustExec(t, db, `UPDATE sqllock_lock SET expires_at = expires_at + 1`) // as a renewal does
			ends, guards := begin(sql.LevelDefault), begin(sql.LevelDefault)
			if err := errors.Join(lease.Guard(t.Context(), ends), lease.Guard(t.Context(), guards), guards.Commit(),
				lease.UnlockTx(t.Context(), ends), ends.Commit()); err != nil {
				t.Fatal(err)
			}
			next, err := others.TryLock(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			if err := lease.Guard(t.Context(), late); !errors.Is(err, sqllock.ErrFenced) {
				t.Errorf("Guard of a former holder = %v", err)
			}
			if err := errors.Join(next.Unlock(t.Context()), lease.Unlock(t.Context())); err != nil {
				t.Error(err)
			}
		})
	}
}

// Whoever ends a term in a transaction may undo that.
func TestAGuardHoldsAfterATransactionThatEndedTheTermWasRolledBack(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	locks := newLocker(t, lockpg.DB(db))
	lease := lock(t, locks, "a")
	ends, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(lease.UnlockTx(t.Context(), ends), ends.Rollback()); err != nil {
		t.Fatal(err)
	}
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(lease.Guard(t.Context(), tx), tx.Commit()); err != nil {
		t.Error(err)
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}
