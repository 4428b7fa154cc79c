package lockpg_test

import (
	"database/sql"
	"testing"
)

// A grant of the mode advisory takes the lock, looks what a former holder has
// written, and draws the token in one statement. What was written while the statement
// had begun but had not yet got the lock must be seen.
func TestTheGateSeesWhatWasCommittedAfterTheStatementBegan(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	type answer struct{ gate, token int64 }
	latch := connOf(t, db) // keeps the statement waiting
	if _, err := latch.ExecContext(t.Context(), `SELECT pg_advisory_lock(30)`); err != nil {
		t.Fatal(err)
	}
	answers := make(chan answer, 1)
	go func() {
		var got answer
		err := db.QueryRowContext(t.Context(), `WITH late AS MATERIALIZED (SELECT pg_advisory_xact_lock(30))
			SELECT coalesce(f.gates[1], 0), f.tokens[1] FROM late, LATERAL sqllock_try_1('{1}', '{2}', '{f}', '{k}', '{t}', 3) f`).
			Scan(&got.gate, &got.token)
		if err != nil {
			t.Error(err)
		}
		answers <- got
	}()
	waitsForLock(t, db)
	mustExec(t, db, `INSERT INTO sqllock_term (mode, name, not_before) VALUES (3, 'k', 9000000000000000)`)
	if _, err := latch.ExecContext(t.Context(), `SELECT pg_advisory_unlock(30)`); err != nil {
		t.Fatal(err)
	}
	if got := <-answers; got.gate != 9000000000000000 || got.token != -2 {
		t.Errorf("got %+v", got)
	}
}

// What somebody guards is not granted, and the lock of it is let go.
func TestALockThatIsGuardedIsLetGo(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	guard, session := connOf(t, db), connOf(t, db)
	if _, err := guard.ExecContext(t.Context(), `SELECT pg_advisory_lock_shared(20)`); err != nil {
		t.Fatal(err)
	}
	tokens := getOn[string](t, session, `SELECT tokens::text FROM sqllock_try_1('{10, 11, 12}', '{20, 20, 22}', '{f, t, f}', '{a, b, c}', '{t, t, f}', 3)`)
	if tokens != "{-1,-1,-2}" {
		t.Errorf("tokens: %s", tokens)
	}
	held := getOn[string](t, session, `SELECT string_agg(objid::text, ',' ORDER BY objid) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()`)
	if held != "12" {
		t.Errorf("the session has the locks %s", held)
	}
}

func connOf(t *testing.T, db *sql.DB) *sql.Conn {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
