package k8slock_test

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/testdb"
	k8slock "github.com/sqllock/sqllock/k8s"
)

// behind are statements by which somebody changes the record of the leader, who does not know it.
var behind = map[string]string{
	"the record is deleted": `DELETE FROM sqllock_record`,
	"another leader is put there": `UPDATE sqllock_record SET version = version + 1, token = token + 1,
		record = '{"holderIdentity":"c","leaseDurationSeconds":4,"acquireTime":null,"renewTime":null,"leaderTransitions":1}'`,
	"a leader is put there that is older": `UPDATE sqllock_record SET version = 1, token = 1,
		record = '{"holderIdentity":"c","leaseDurationSeconds":4,"acquireTime":null,"renewTime":null,"leaderTransitions":1}'`,
}

func TestALeaderStopsWhenSomebodyChangesItsRecord(t *testing.T) {
	for what, statement := range behind {
		t.Run(what, func(t *testing.T) {
			onEach(t, testdb.All(), func(t *testing.T, d *testdb.Database, db *sql.DB) {
				l, other := newLock(t, d, db, "a"), newLock(t, d, db, "b")
				mustExec(t, db, `CREATE TABLE journal (id BIGINT PRIMARY KEY, token BIGINT NOT NULL)`)
				leader := electFor(t, l, 2*leaseDuration, retryPeriod)
				token := leader.token(t)
				next := electFor(t, other, 2*leaseDuration, retryPeriod)
				eventually(t, "the other sees the leader", func() bool { return next.GetLeader() == "a" })
				version := versionOf(t, db)
				mustExec(t, db, statement)
				if err := write(t.Context(), db, l, token); !errors.Is(err, sqllock.ErrFenced) {
					t.Errorf("the former leader writes: %v", err)
				}
				higher := next.token(t)
				select {
				case <-leader.done:
				default:
					t.Error("two believe that they lead")
				}
				if now := versionOf(t, db); higher <= token || now <= version || l.Token() != token {
					t.Errorf("token %d after %d, version %d after %d, and the former leader's is %d", higher, token, now, version, l.Token())
				}
				checkWrites(t, db, other, higher, l, token)
			})
		})
	}
}

// checkWrites checks that the leader can write, and the former leader cannot.
func checkWrites(t *testing.T, db *sql.DB, leader *k8slock.Lock, token int64, former *k8slock.Lock, old int64) {
	t.Helper()
	if err := write(t.Context(), db, leader, token); err != nil {
		t.Errorf("the leader writes: %v", err)
	}
	if err := write(t.Context(), db, former, old); !errors.Is(err, sqllock.ErrFenced) {
		t.Errorf("the former leader writes: %v", err)
	}
}

func versionOf(t *testing.T, db *sql.DB) (version int64) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), `SELECT version FROM sqllock_record`).Scan(&version); err != nil {
		t.Fatal(err)
	}
	return version
}

// A candidate that is alone leads again, with another token, once it has stopped to lead.
func TestTheOnlyCandidateStopsAndLeadsAgainWhenItsRecordIsDeleted(t *testing.T) {
	onEach(t, testdb.All(), func(t *testing.T, d *testdb.Database, db *sql.DB) {
		l := newLock(t, d, db, "a")
		first := elect(t, l, retryPeriod)
		token := first.token(t)
		mustExec(t, db, `DELETE FROM sqllock_record`)
		select {
		case <-first.done:
		case <-time.After(testTimeout):
			t.Fatal("it goes on to lead")
		}
		if higher := elect(t, l, retryPeriod).token(t); higher <= token {
			t.Errorf("token %d after %d", higher, token)
		}
	})
}

// Before a record is deleted, or changed, the transactions end that guard the term.
func TestAGuardKeepsARecordFromBeingDeleted(t *testing.T) {
	onEach(t, testdb.Engines(), func(t *testing.T, d *testdb.Database, db *sql.DB) {
		l := newLock(t, d, db, "a")
		if err := l.Create(t.Context(), record("a")); err != nil {
			t.Fatal(err)
		}
		token := l.Token()
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if err := l.Guard(t.Context(), tx, token); err != nil {
			t.Fatal(err)
		}
		deleted := make(chan error, 1)
		go func() { _, err := db.ExecContext(t.Context(), `DELETE FROM sqllock_record`); deleted <- err }()
		select {
		case err := <-deleted:
			t.Fatalf("the record was deleted while a transaction guards the term: %v", err)
		case <-time.After(3 * retryPeriod):
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := <-deleted; err != nil {
			t.Error(err)
		}
	})
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(testTimeout); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}
