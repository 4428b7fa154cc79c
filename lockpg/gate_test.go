package lockpg_test

import (
	"testing"
	"time"
)

// A grant of the mode advisory takes the lock, looks what a former holder has
// written, and draws the token in one statement. What was written while the statement
// had begun but had not yet got the lock must be seen.
func TestTheGateSeesWhatWasCommittedAfterTheStatementBegan(t *testing.T) {
	db := migrated(t)
	gate := make(chan int64, 1)
	go func() {
		var got int64
		err := db.QueryRowContext(t.Context(), `WITH late AS MATERIALIZED (SELECT pg_sleep(1)) SELECT sqllock_gate('k') FROM late`).Scan(&got)
		if err != nil {
			t.Error(err)
		}
		gate <- got
	}()
	time.Sleep(300 * time.Millisecond)
	if _, err := db.ExecContext(t.Context(), `INSERT INTO sqllock_term (mode, name, not_before) VALUES (3, 'k', 9000000000000000)`); err != nil {
		t.Fatal(err)
	}
	if got := <-gate; got != 9000000000000000 {
		t.Errorf("the gate says %d", got)
	}
}
