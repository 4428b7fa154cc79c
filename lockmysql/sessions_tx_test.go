package lockmysql_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// begin begins a transaction that is rolled back when the test ends.
func begin(t *testing.T, db *sql.DB, level sql.IsolationLevel) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func TestLocksInTransactionsAreForTheModeForUpdate(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		c := advisory.client(t, f)
		tx := begin(t, f.Open(t), sql.LevelDefault)
		_, err := c.TryTx(t.Context(), tx, driver.TxRequest{Name: "k"})
		wants(t, err, driver.ErrUnsupported, "for-update mode")
		wants(t, c.PrepareTx(t.Context(), driver.TxRequest{Name: "k"}), driver.ErrUnsupported, "for-update mode")
		_, err = c.Draw(t.Context(), request("k"))
		wants(t, err, driver.ErrUnsupported, "for-update mode")
		if c.Classify(err) != driver.Refused {
			t.Errorf("classified as %v", c.Classify(err))
		}
	})
}

// tryTx prepares and tries.
func (c *client) tryTx(t *testing.T, tx *sql.Tx, name string, shared bool) driver.TxStatus {
	t.Helper()
	req := driver.TxRequest{Name: name, Shared: shared}
	if err := c.PrepareTx(t.Context(), req); err != nil {
		t.Fatalf("PrepareTx: %v", err)
	}
	status, err := c.TryTx(t.Context(), tx, req)
	if err != nil {
		t.Fatalf("TryTx: %v", err)
	}
	return status
}

func TestATransactionHasTheLockUntilItEnds(t *testing.T) {
	eachServer(t, func(t *testing.T, f *fixture) {
		db := f.Open(t)
		exec(t, db, "CREATE TABLE work (v INT)")
		for _, level := range levels[1:] {
			t.Run(level.String(), func(t *testing.T) {
				c := forUpdate.client(t, f)
				name := "k " + level.String()
				tx := begin(t, db, level)
				if status := c.tryTx(t, tx, name, false); status != driver.TxTaken {
					t.Fatalf("%v", status)
				}
				if status := c.tryTx(t, tx, name, false); status != driver.TxTaken {
					t.Errorf("again: %v", status)
				}
				drawn, err := c.Draw(t.Context(), request(name))
				if err != nil || !drawn.Granted {
					t.Fatalf("Draw: %+v, %v", drawn, err)
				}
				for _, shared := range []bool{false, true} {
					r := request(name)
					r.Shared = shared
					if got := c.wantDenied(t, r); got.Holder != (driver.Holder{}) {
						t.Errorf("told %+v", got)
					}
				}
				if err := tx.Rollback(); err != nil {
					t.Error(err)
				}
				r := request(name)
				s, res := c.lock(t, r)
				if res.Version <= drawn.Version || res.Crashed != (driver.Holder{}) {
					t.Errorf("after the rollback: %+v, the transaction had %d", res, drawn.Version)
				}

				// A lock that is held costs the transaction nothing, nor others.
				busy := begin(t, db, level)
				exec(t, busy, "INSERT INTO work VALUES (1)")
				for range 3 {
					if status := c.tryTx(t, busy, name, false); status != driver.TxHeld {
						t.Errorf("a lock that is held: %v", status)
					}
					if status := c.tryTx(t, busy, name, true); status != driver.TxHeld {
						t.Errorf("a lock that is held, to share: %v", status)
					}
				}
				for _, near := range []string{name + "!", "j " + level.String(), name[:1], "zz" + level.String()} {
					giveBack(t, first(c.lock(t, request(near)))) // which the transaction, still open, would keep from it
				}
				unlock(t, s, r, res)
				if status := c.tryTx(t, busy, name, false); status != driver.TxTaken {
					t.Errorf("when it is free: %v", status)
				}
				if err := busy.Commit(); err != nil {
					t.Error(err)
				}
				var done int
				if err := db.QueryRow("SELECT COUNT(*) FROM work").Scan(&done); err != nil || done == 0 {
					t.Errorf("the transaction was undone: %d, %v", done, err)
				}
				exec(t, db, "DELETE FROM work")
			})
		}
	})
}

func first(s driver.Session, _ driver.AcquireResult) driver.Session { return s }

func TestTransactionsShareALock(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		c, db := forUpdate.client(t, f), f.Open(t)
		one, other, writer := begin(t, db, sql.LevelRepeatableRead), begin(t, db, sql.LevelReadCommitted), begin(t, db, sql.LevelSerializable)
		if status := c.tryTx(t, one, "k", true); status != driver.TxTaken {
			t.Errorf("%v", status)
		}
		if status := c.tryTx(t, other, "k", true); status != driver.TxTaken {
			t.Errorf("%v", status)
		}
		if status := c.tryTx(t, writer, "k", false); status != driver.TxHeld {
			t.Errorf("%v", status)
		}
		s, _ := c.lock(t, sharedRequest("k"))
		giveBack(t, s)
		_, _ = one.Rollback(), other.Rollback()
		eventually(t, "the writer has it", 5*time.Second, func() bool { return c.tryTx(t, writer, "k", false) == driver.TxTaken })
		c.wantDenied(t, sharedRequest("k"))
	})
}

// In REPEATABLE READ a transaction sees what was so when it first read without a
// lock. That must not be before it has the lock that it asked for.
func TestATransactionSeesWhatTheFormerHolderHasDone(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		c, db := forUpdate.client(t, f), f.Open(t)
		exec(t, db, "CREATE TABLE work (v INT)")
		exec(t, db, "INSERT INTO work VALUES (1)")
		r := request("k")
		s, res := c.lock(t, r)
		tx := begin(t, db, sql.LevelRepeatableRead)
		if status := c.tryTx(t, tx, "k", false); status != driver.TxHeld {
			t.Fatalf("%v", status)
		}
		exec(t, db, "UPDATE work SET v = 2")
		unlock(t, s, r, res)
		if status := c.tryTx(t, tx, "k", false); status != driver.TxTaken {
			t.Fatalf("%v", status)
		}
		var v int
		if err := tx.QueryRow("SELECT v FROM work").Scan(&v); err != nil || v != 2 {
			t.Errorf("sees %d, %v", v, err)
		}
	})
}

func TestATransactionWhosePinIsGoneIsTooOld(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		c, db := forUpdate.client(t, f), f.Open(t)
		req := driver.TxRequest{Name: "k"}
		if err := c.PrepareTx(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		exec(t, db, "DELETE FROM `sqllock_pin` WHERE name = 'k'")
		tx := begin(t, db, sql.LevelDefault)
		if status, err := c.TryTx(t.Context(), tx, req); err != nil || status != driver.TxTooOld {
			t.Errorf("%v, %v", status, err)
		}
		_ = tx.Rollback()
		if status := c.tryTx(t, begin(t, db, sql.LevelDefault), "k", false); status != driver.TxTaken {
			t.Errorf("a new one: %v", status)
		}
	})
}

func TestADrawRespectsDelaysAndGuards(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		c := forUpdate.client(t, f)
		dead := request("k")
		dead.Delay = 300 * time.Millisecond
		c.dies(t, dead)
		res, err := c.Draw(t.Context(), request("k"))
		if err != nil || res.Granted || res.Crashed.Acq != dead.Acq || res.Holder.Until <= res.Now {
			t.Errorf("%+v, %v", res, err)
		}
		eventually(t, "drawn after the delay", 5*time.Second, func() bool {
			res, err := c.Draw(t.Context(), request("k"))
			if err != nil || res.Crashed != (driver.Holder{}) {
				t.Errorf("%+v, %v", res, err)
			}
			return res.Granted
		})

		r := request("guarded")
		s, got := c.lock(t, r)
		tx := begin(t, f.Open(t), sql.LevelReadCommitted)
		if status, err := c.Guard(t.Context(), tx, guardRequest(s, r, got)); err != nil || status != driver.Guarded {
			t.Fatalf("%v, %v", status, err)
		}
		giveBack(t, s)
		if res, err := c.Draw(t.Context(), request("guarded")); err != nil || res.Granted {
			t.Errorf("behind a guard: %+v, %v", res, err)
		}
	})
}
