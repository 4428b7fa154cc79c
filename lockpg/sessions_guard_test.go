package lockpg_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
)

var levels = []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}

func guardOf(s driver.Session, r driver.AcquireRequest, res driver.AcquireResult) driver.GuardRequest {
	return driver.GuardRequest{Name: r.Name, Acq: r.Acq, Version: res.Version, Session: s.ID()}
}

func begin(t *testing.T, db *sql.DB, level sql.IsolationLevel) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func (c *client) guard(t *testing.T, tx *sql.Tx, req driver.GuardRequest) driver.GuardStatus {
	t.Helper()
	status, err := c.Guard(t.Context(), tx, req)
	if err != nil {
		t.Fatalf("Guard: %v", err)
	}
	return status
}

func kill(t *testing.T, c *client, s driver.Session, name string) {
	t.Helper()
	pid := backendOf(t, c.db, name)
	mustExec(t, c.db, `SELECT pg_terminate_backend($1)`, pid)
	<-s.Gone()
	ends(t, c.db, pid)
}

// ends waits until a process of the server has ended, and so has let go of its locks.
func ends(t *testing.T, db *sql.DB, pid int) {
	t.Helper()
	eventually(t, "the process of the server has ended", 20*time.Second, func() bool {
		return get[int](t, db, `SELECT count(*) FROM pg_stat_activity WHERE pid = $1`, pid) == 0
	})
}

func TestAGuardKeepsEverybodyFromTheNameOfASession(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, d *testdb.Database, m sessionMode) {
		for _, level := range levels {
			a, b := m.client(t, d), m.client(t, d)
			r := noted("k " + level.String())
			s, res := a.take(t, r)
			tx := begin(t, a.db, level)
			if status := a.guard(t, tx, guardOf(s, r, res)); status != driver.Guarded {
				t.Fatalf("%s: %v", level, status)
			}
			if status := ping(t, s, r, res); status != driver.Renewed {
				t.Errorf("%s: a guard keeps the lease from being renewed: %v", level, status)
			}
			release := releaseOf(r, res)
			release.Guarded = true
			if _, err := s.Release(t.Context(), []driver.ReleaseRequest{release}); a.Classify(err) != driver.Again {
				t.Errorf("%s: Release while a transaction guards the lease: %v", level, err)
			}
			b.denied(t, ask(r.Name))
			b.denied(t, askShared(r.Name))
			kill(t, a, s, r.Name)
			for range 3 {
				b.denied(t, ask(r.Name))
				b.denied(t, askShared(r.Name))
				if other, err := b.Draw(t.Context(), ask(r.Name)); err != nil || other.Granted {
					t.Errorf("%s: Draw: %+v, %v", level, other, err)
				}
			}
			if swept, err := b.Sweep(t.Context(), driver.SweepRequest{Limit: 100, Retention: time.Hour}); err != nil || len(swept.Crashed) > 0 && m.name == forUpdate.name {
				t.Errorf("%s: Sweep: %+v, %v", level, swept, err)
			}
			if _, err := tx.ExecContext(t.Context(), `CREATE TABLE IF NOT EXISTS ledger (n int)`); err != nil {
				t.Errorf("%s: %v", level, err)
			}
			if err := tx.Commit(); err != nil {
				t.Errorf("%s: %v", level, err)
			}
			_, next := b.gets(t, ask(r.Name), 20*time.Second)
			if next.Version <= res.Version {
				t.Errorf("%s: token %d follows %d", level, next.Version, res.Version)
			}
			late := begin(t, a.db, level)
			if status := a.guard(t, late, guardOf(s, r, res)); status != driver.Fenced {
				t.Errorf("%s: a Guard of the former holder: %v", level, status)
			}
			_ = late.Rollback()
		}
	})
}

// A guard whose transaction sees the table as it was before must not pass.
func TestAGuardIsFencedInATransactionThatIsOlderThanTheNextHolder(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, d *testdb.Database, m sessionMode) {
		for _, level := range levels {
			a, b := m.client(t, d), m.client(t, d)
			r := noted("k " + level.String())
			s, res := a.take(t, r)
			tx := begin(t, a.db, level)
			if _, err := tx.ExecContext(t.Context(), `SELECT count(*) FROM sqllock_term`); err != nil {
				t.Fatal(err)
			}
			kill(t, a, s, r.Name)
			b.gets(t, ask(r.Name), 20*time.Second)
			status, err := a.Guard(t.Context(), tx, guardOf(s, r, res))
			if err == nil && status == driver.Guarded {
				t.Errorf("%s: the former holder has guarded its lease", level)
			}
			_ = tx.Rollback()
		}
	})
}

func TestAGuardedLeaseIsReleasedWhenNoTransactionGuardsIt(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, d *testdb.Database, m sessionMode) {
		a, b := m.client(t, d), m.client(t, d)
		for _, lost := range []bool{false, true} {
			r := noted("k")
			s, res := a.take(t, r)
			tx := begin(t, a.db, sql.LevelDefault)
			a.guard(t, tx, guardOf(s, r, res))
			req := releaseOf(r, res)
			req.Guarded, req.Lost = true, lost
			if _, err := s.Release(t.Context(), []driver.ReleaseRequest{req}); a.Classify(err) != driver.Again {
				t.Errorf("lost %v: Release while a transaction guards the lease: %v", lost, err)
			}
			if status := ping(t, s, r, res); status != driver.Renewed {
				t.Errorf("lost %v: after that the lease is not held: %v", lost, status)
			}
			_ = tx.Rollback()
			if freed, err := s.Release(t.Context(), []driver.ReleaseRequest{req}); err != nil || !freed[0] {
				t.Errorf("lost %v: %v, %v", lost, freed, err)
			}
			next := ask("k")
			s2, res2 := b.gets(t, next, 20*time.Second)
			if crashed := res2.Crashed.Acq == r.Acq; crashed != lost {
				t.Errorf("lost %v: the next: %+v", lost, res2)
			}
			letGo(t, s2, next, res2)
		}
	})
}

func TestAGuardKnowsTransactionsOfAnotherDatabase(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, d *testdb.Database, m sessionMode) {
		foreign := shared(t).Open(t)
		migrate(t, foreign)
		a := m.client(t, d)
		r := noted("k")
		s, res := a.take(t, r)
		tx := begin(t, foreign, sql.LevelDefault)
		if status := a.guard(t, tx, guardOf(s, r, res)); status != driver.Foreign {
			t.Errorf("Guard: %v", status)
		}
		for _, shared := range []bool{false, true} {
			if status, err := a.TryTx(t.Context(), tx, driver.TxRequest{Name: "free", Shared: shared}); err != nil || status != driver.TxForeign {
				t.Errorf("TryTx: %v, %v", status, err)
			}
		}
		if n := get[int](t, foreign, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`); n != 0 {
			t.Errorf("%d locks were taken", n)
		}
	})
}

func TestATransactionHasALockUntilItEnds(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, d *testdb.Database, m sessionMode) {
		a, b := m.client(t, d), m.client(t, d)
		mustExec(t, a.db, `CREATE TABLE ledger (n int)`)
		var last int64
		for _, level := range levels {
			name := "k " + level.String()
			r := noted(name)
			s, res := a.take(t, r)
			tx := begin(t, a.db, level)
			if _, err := tx.ExecContext(t.Context(), `INSERT INTO ledger VALUES (1)`); err != nil {
				t.Fatal(err)
			}
			for _, shared := range []bool{false, true} {
				if status := tryTx(t, b, tx, name, shared); status != driver.TxHeld {
					t.Errorf("%s: of a name that is held: %v", level, status)
				}
			}
			if _, err := tx.ExecContext(t.Context(), `INSERT INTO ledger VALUES (2)`); err != nil {
				t.Errorf("%s: afterwards: %v", level, err)
			}
			letGo(t, s, r, res)
			if status := tryTx(t, b, tx, name, false); status != driver.TxTaken {
				t.Fatalf("%s: of a name that is free: %v", level, status)
			}
			drawn, err := b.Draw(t.Context(), ask(name))
			if err != nil || !drawn.Granted || drawn.Version <= res.Version || drawn.Version <= last {
				t.Errorf("%s: Draw: %+v, %v after %d", level, drawn, err, res.Version)
			}
			last = drawn.Version
			a.denied(t, ask(name))
			a.denied(t, askShared(name))
			other := begin(t, a.db, level)
			if status := tryTx(t, a, other, name, true); status != driver.TxHeld {
				t.Errorf("%s: in another transaction: %v", level, status)
			}
			_ = other.Rollback()
			if err := tx.Commit(); err != nil {
				t.Errorf("%s: %v", level, err)
			}
			next := ask(name)
			s, res = a.take(t, next)
			if res.Version <= drawn.Version || res.Crashed != (driver.Holder{}) {
				t.Errorf("%s: the next: %+v after %d", level, res, drawn.Version)
			}
			letGo(t, s, next, res)
		}
		one, two := begin(t, a.db, sql.LevelDefault), begin(t, b.db, sql.LevelDefault)
		for _, tx := range []*sql.Tx{one, two} {
			if status := tryTx(t, a, tx, "shared", true); status != driver.TxTaken {
				t.Errorf("to share: %v", status)
			}
		}
		if status := tryTx(t, a, one, "shared", false); status != driver.TxHeld {
			t.Errorf("alone, beside another who shares it: %v", status)
		}
		_ = two.Rollback()
	})
}

func tryTx(t *testing.T, c *client, tx *sql.Tx, name string, shared bool) driver.TxStatus {
	t.Helper()
	req := driver.TxRequest{Name: name, Shared: shared}
	if err := c.PrepareTx(context.Background(), req); err != nil {
		t.Fatalf("PrepareTx: %v", err)
	}
	status, err := c.TryTx(t.Context(), tx, req)
	if err != nil {
		t.Fatalf("TryTx: %v", err)
	}
	return status
}

func TestATransactionOlderThanThePinIsTooOldAndGoesOn(t *testing.T) {
	t.Parallel()
	d := withTables(t)
	c := forUpdate.client(t, d)
	for _, level := range levels[1:] {
		tx := begin(t, c.db, level)
		if _, err := tx.ExecContext(t.Context(), `SELECT count(*) FROM sqllock_meta`); err != nil {
			t.Fatal(err)
		}
		if status := tryTx(t, c, tx, "new "+level.String(), false); status != driver.TxTooOld {
			t.Errorf("%s: %v", level, status)
		}
		if _, err := tx.ExecContext(t.Context(), `SELECT count(*) FROM sqllock_meta`); err != nil {
			t.Errorf("%s: afterwards: %v", level, err)
		}
	}
}

func TestATransactionWaitsForTheDelayOfAHolderThatCrashed(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, d *testdb.Database, m sessionMode) {
		a, b := m.client(t, d), m.client(t, d)
		r := ask("k")
		r.Delay = time.Second
		s, _ := a.take(t, r)
		kill(t, a, s, "k")
		began := time.Now()
		tx := begin(t, b.db, sql.LevelDefault)
		if status := tryTx(t, b, tx, "k", false); status != driver.TxTaken {
			t.Fatal(status)
		}
		told := 0
		eventually(t, "a token is drawn", 20*time.Second, func() bool {
			res, err := b.Draw(t.Context(), ask("k"))
			if err != nil {
				t.Fatal(err)
			}
			if res.Crashed.Acq == r.Acq {
				told++
			}
			return res.Granted
		})
		if took := time.Since(began); took < r.Delay-50*time.Millisecond || told != 1 {
			t.Errorf("drawn after %v, told %d times", took, told)
		}
	})
}

// A server that ends a session of the mode advisory lets its locks go one after the
// other: the name may be free, and have its next holder, while the session has others.
func TestAGuardIsRefusedByASessionThatLivesWithoutTheLockOfTheName(t *testing.T) {
	d := withTables(t)
	a, b := advisory.client(t, d), advisory.client(t, d)
	kept := ask("kept")
	s, res := a.take(t, kept)
	for _, gone := range []driver.AcquireRequest{ask("gone"), askShared("gone too")} {
		b.take(t, gone) // the next holder, who has found no guard
		tx := begin(t, a.db, sql.LevelReadCommitted)
		req := guardOf(s, kept, res)
		req.Name = gone.Name
		if status := a.guard(t, tx, req); status != driver.Fenced {
			t.Errorf("%q: %v by a session that does not have it", gone.Name, status)
		}
		_ = tx.Rollback()
	}
	tx := begin(t, a.db, sql.LevelReadCommitted)
	if status := a.guard(t, tx, guardOf(s, kept, res)); status != driver.Guarded {
		t.Errorf("%q: %v by the session that has it", kept.Name, status)
	}
}
