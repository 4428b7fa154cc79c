package sqllock_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
)

// endSession returns the statement by which a server ends the session of a transaction.
func endSession(t *testing.T, e *engine, tx *sql.Tx) (kill string) {
	t.Helper()
	query, end := `SELECT CONNECTION_ID()`, `KILL %d`
	if e.name == testdb.Postgres {
		query, end = `SELECT pg_backend_pid()`, `SELECT pg_terminate_backend(%d)`
	}
	var id int64
	if err := tx.QueryRow(query).Scan(&id); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(end, id)
}

func mustBegin(t *testing.T, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(context.WithoutCancel(t.Context()), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// txLockers are Lockers that lock in transactions of a database.
func txLockers(t *testing.T, e *engine, db *sql.DB, test func(t *testing.T, l *sqllock.Locker)) {
	modes := map[string]func() (*sqllock.Locker, error){
		"for update": func() (*sqllock.Locker, error) {
			return sqllock.NewForUpdate(t.Context(), e.open(db).(driver.ForUpdateDatabase), nil)
		},
	}
	if e.name == testdb.Postgres {
		modes["advisory"] = func() (*sqllock.Locker, error) {
			return sqllock.NewAdvisory(t.Context(), e.open(db).(driver.AdvisoryDatabase), nil)
		}
	}
	for mode, open := range modes {
		t.Run(mode, func(t *testing.T) {
			l, err := open()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { closeSoon(l) })
			test(t, l)
		})
	}
}

func TestATransactionThatEndedBeforeItsTokenWasDrawnGetsNone(t *testing.T) {
	onEachServer(t, func(t *testing.T, e *engine, d *testdb.Database) {
		db := d.Open(t)
		txLockers(t, e, db, func(t *testing.T, l *sqllock.Locker) {
			for _, shared := range []bool{false, true} {
				name := fmt.Sprintf("%s shared %v", t.Name(), shared)
				dead, next := mustBegin(t, db), mustBegin(t, db)
				kill := endSession(t, e, dead)
				var token int64
				late, err := l.LockTxBy(t.Context(), name, shared, true, func(ctx context.Context, s driver.TxStore, req driver.TxRequest) (driver.TxStatus, error) {
					status, err := s.TryTx(ctx, dead, req)
					if err == nil && status == driver.TxTaken && token == 0 {
						mustExec(t, db, kill) // and somebody else gets the lock before the token is drawn
						token, err = l.LockTx(ctx, next, name)
					}
					return status, err
				})
				if err == nil || late != 0 {
					t.Errorf("a transaction that is over got token %d, %v; the holder has %d", late, err, token)
				}
				if token == 0 {
					t.Error("nobody was the next holder")
				}
				_ = next.Rollback()
			}
		})
	})
}
