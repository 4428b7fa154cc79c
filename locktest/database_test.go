package locktest_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/locktest"
)

func TestLoseEndsALeaseAtOnce(t *testing.T) {
	t.Parallel()
	d := locktest.NewDatabase(t)
	other, locks := d.Locker(nil), d.Locker(nil)
	lease := mustLock(t, locks, "a")
	d.Lose("a")
	if lease.Context().Err() == nil || lease.Remaining() != 0 {
		t.Error("the holder does not know")
	}
	checkLost(t, lease, sqllock.LostRevoked)
	next := mustLock(t, other, "a")
	if next.Token() <= lease.Token() {
		t.Errorf("token %d follows %d", next.Token(), lease.Token())
	}
	if err := lease.Unlock(t.Context()); !errors.Is(err, sqllock.ErrLost) {
		t.Errorf("Unlock: %v", err)
	}
	mustUnlock(t, next)
}

func TestReadersOfOtherLockersLearnOfALossWhenTheyRenew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := locktest.NewDatabase(t)
		var readers []*sqllock.Lease
		for range 2 {
			lease, err := d.Locker(nil).RLock(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			readers = append(readers, lease)
		}
		began := time.Now()
		d.Lose("a")
		for _, lease := range readers {
			checkLost(t, lease, sqllock.LostRevoked)
			_ = lease.Unlock(t.Context())
		}
		if took := time.Since(began); took > sqllock.DefaultTTL/3+time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestAnExpiredHolderTrustsItsLeaseAndIsFenced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := locktest.NewDatabase(t)
		lease := mustLock(t, d.Locker(nil), "a")
		d.Expire("a")
		if err := lease.Context().Err(); err != nil {
			t.Errorf("the holder knows: %v", err)
		}
		next := mustLock(t, d.Locker(nil), "a")
		late := lease.InTx(t.Context(), nil, func(context.Context, *sql.Tx) error {
			t.Error("the late write runs")
			return nil
		})
		if !errors.Is(late, sqllock.ErrFenced) {
			t.Errorf("the late write: %v", late)
		}
		checkLost(t, lease, sqllock.LostTaken)
		_ = lease.Unlock(t.Context())
		mustUnlock(t, next)
	})
}

func TestAnExpiredReaderMakesRoom(t *testing.T) {
	t.Parallel()
	d := locktest.NewDatabase(t)
	reader, err := d.Locker(nil).RLock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	d.Expire("a")
	mustUnlock(t, mustLock(t, d.Locker(nil), "a"))
	_ = reader.Unlock(t.Context())
}

func TestANameThatNobodyHoldsCannotBeLost(t *testing.T) {
	t.Parallel()
	checkOnly(t, record(t, func(tb testing.TB) { locktest.NewDatabase(tb).Lose("a") }), `Lose("a")`, "not held")
	checkOnly(t, record(t, func(tb testing.TB) { locktest.NewDatabase(tb).Expire("a") }), `Expire("a")`, "not held")
	checkOnly(t, record(t, func(tb testing.TB) {
		d := locktest.NewDatabase(tb)
		mustUnlock(tb, mustLock(tb, d.Locker(nil), "a"))
		d.Expire("a")
	}), `Expire("a")`, "not held")
}

func TestEachStatementFailsWhileTheDatabaseIsDown(t *testing.T) {
	t.Parallel()
	d := locktest.NewDatabase(t)
	locks, db, ctx := d.Locker(nil), d.DB(), t.Context()
	if _, err := db.ExecContext(ctx, `CREATE TABLE t (n INTEGER)`); err != nil {
		t.Fatal(err)
	}
	prepared, err := db.PrepareContext(ctx, `INSERT INTO t VALUES (?)`)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = prepared.Close() }()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO t VALUES (1)`); err != nil {
		t.Fatal(err)
	}
	d.Down()
	for what, call := range map[string]func() error{
		"Commit":  tx.Commit,
		"Ping":    func() error { return db.PingContext(ctx) },
		"Begin":   func() error { _, err := db.BeginTx(ctx, nil); return err },
		"Exec":    func() error { _, err := db.ExecContext(ctx, `INSERT INTO t VALUES (2)`); return err },
		"Query":   func() error { return db.QueryRowContext(ctx, `SELECT n FROM t`).Scan(new(int)) },
		"Prepare": func() error { _, err := db.PrepareContext(ctx, `SELECT n FROM t`); return err },
		"Stmt":    func() error { _, err := prepared.ExecContext(ctx, 3); return err },
		"query":   func() error { return prepared.QueryRowContext(ctx, 4).Scan(new(int)) },
		"TryLock": func() error { _, err := locks.TryLock(ctx, "a"); return err },
	} {
		if err := call(); !errors.Is(err, locktest.ErrDown) {
			t.Errorf("%s: %v", what, err)
		}
	}
	d.Up()
	var n int
	if err := db.QueryRowContext(ctx, `SELECT count(*) FROM t`).Scan(&n); err != nil || n != 0 {
		t.Errorf("%d rows, %v", n, err)
	}
	if _, err := prepared.ExecContext(ctx, 5); err != nil {
		t.Error(err)
	}
	mustUnlock(t, mustLock(t, locks, "a"))
}

func TestALeaseIsLostIfTheDatabaseStaysDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := locktest.NewDatabase(t)
		lease := mustLock(t, d.Locker(nil), "a")
		d.Down()
		time.Sleep(20 * time.Second)
		d.Up()
		time.Sleep(time.Minute)
		if err := lease.Context().Err(); err != nil {
			t.Errorf("after 20 s: %v", context.Cause(lease.Context()))
		}
		d.Down()
		began := time.Now()
		checkLost(t, lease, sqllock.LostUnreachable)
		if took := time.Since(began); took < 19*time.Second || took > 30*time.Second {
			t.Errorf("it was lost after %v", took)
		}
		d.Up()
		_ = lease.Unlock(t.Context())
	})
}

func TestLockWaitsUntilTheDatabaseIsUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := locktest.NewDatabase(t)
		locks := d.Locker(nil)
		d.Down()
		time.AfterFunc(time.Minute, d.Up)
		began := time.Now()
		lease, err := locks.Lock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < time.Minute || took > time.Minute+5*time.Second {
			t.Errorf("it waited for %v", took)
		}
		mustUnlock(t, lease)
	})
}

func TestAdvanceSetsBothClocksForward(t *testing.T) {
	t.Parallel()
	d := locktest.NewDatabase(t)
	locks, other := d.Locker(nil), d.Locker(nil)
	kept := mustLock(t, locks, "kept")
	d.Advance(15 * time.Second) // of a TTL of 30 s
	if left := kept.Remaining(); left > 15*time.Second && left < 29*time.Second {
		t.Errorf("%v are left, and it was not renewed", left)
	}
	for deadline := time.Now().Add(10 * time.Second); kept.Remaining() < 28*time.Second; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it was not renewed")
		}
	}
	mustUnlock(t, mustLock(t, locks, "short", sqllock.MinHold(time.Hour)))
	if _, err := other.TryLock(t.Context(), "short"); !errors.Is(err, sqllock.ErrHeld) {
		t.Errorf("before the hour is over: %v", err)
	}
	d.Advance(time.Hour)
	mustUnlock(t, mustLock(t, other, "short"))
	mustUnlock(t, mustLock(t, other, "kept"))
	checkLost(t, kept, sqllock.LostDeadline)
	_ = kept.Unlock(t.Context())
}

func TestTimeDoesNotGoBack(t *testing.T) {
	t.Parallel()
	checkOnly(t, record(t, func(tb testing.TB) {
		locktest.NewDatabase(tb).Advance(-time.Second)
	}), "Advance(-1s)", "must not be negative")
}

func TestInABubbleTimePassesAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := locktest.NewDatabase(t)
		lease := mustLock(t, d.Locker(nil), "a")
		time.Sleep(time.Hour)
		if left := lease.Remaining(); left < sqllock.DefaultTTL/2 {
			t.Errorf("after an hour %v are left: %v", left, context.Cause(lease.Context()))
		}
		time.AfterFunc(time.Minute, func() { mustUnlock(t, lease) })
		began := time.Now()
		next, err := d.Locker(nil).Lock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < time.Minute || took > time.Minute+time.Second {
			t.Errorf("the next holder waited for %v", took)
		}
		if at := time.UnixMicro(next.Token()); at.Before(began) || at.After(time.Now()) {
			t.Errorf("the token is of %v", at)
		}
		mustUnlock(t, next)
	})
}

func TestOthersReadWhileATransactionWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := locktest.NewDatabase(t)
		lease := mustLock(t, d.Locker(nil), "a")
		err := lease.InTx(t.Context(), nil, func(ctx context.Context, _ *sql.Tx) error {
			time.Sleep(12 * time.Second) // and renewals wait
			_, err := d.Locker(nil).Inspect(ctx, "a")
			return err
		})
		if err != nil {
			t.Error(err)
		}
		mustUnlock(t, lease)
	})
}

func TestTheViewTellsTheTime(t *testing.T) {
	t.Parallel()
	d := locktest.NewDatabase(t)
	lease := mustLock(t, d.Locker(nil), "a")
	var text string
	err := d.DB().QueryRowContext(t.Context(), `SELECT sql FROM sqlite_schema WHERE type = 'view'`).Scan(&text)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text, `julianday('now')`) {
		t.Errorf("the view has a fixed time: %s", text)
	}
	mustUnlock(t, lease)
}
