package locktest_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/testlog"
	"github.com/sqllock/sqllock/locktest"
)

func mustLock(tb testing.TB, locks *sqllock.Locker, name string, opts ...sqllock.LockOption) *sqllock.Lease {
	tb.Helper()
	lease, err := locks.TryLock(tb.Context(), name, opts...)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return lease
}

func mustUnlock(tb testing.TB, leases ...interface{ Unlock(context.Context) error }) {
	tb.Helper()
	for _, lease := range leases {
		if err := lease.Unlock(tb.Context()); err != nil {
			tb.Errorf("%v", err)
		}
	}
}

// checkLost waits until a lease is over, and checks why.
func checkLost(t *testing.T, lease *sqllock.Lease, want sqllock.Reason) {
	t.Helper()
	<-lease.Context().Done()
	var lost *sqllock.LostError
	if cause := context.Cause(lease.Context()); !errors.As(cause, &lost) || lost.Reason != want {
		t.Errorf("the lease ended with %v, want a loss: %v", cause, want)
	}
}

func TestTheLockerCanDoWhatUniqueModeCan(t *testing.T) {
	t.Parallel()
	d := locktest.NewDatabase(t)
	locks := d.Locker(&sqllock.UniqueOptions{TTL: time.Minute, Label: "me"})
	ctx := t.Context()
	readers, err := locks.RLock(ctx, "read")
	if err != nil {
		t.Fatal(err)
	}
	all, err := locks.LockAll(ctx, []string{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	slots, err := locks.Semaphore("rooms", 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	permit, err := slots.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	held := mustLock(t, locks, "alone", sqllock.Value([]byte("v")))
	if info, err := d.Locker(nil).Inspect(ctx, "alone"); err != nil || info.Label != "me" || string(info.Value) != "v" {
		t.Errorf("%+v, %v", info, err)
	}
	ran, err := locks.Once(ctx, "job", "today", func(context.Context, *sqllock.Run) error { return nil })
	if err != nil || !ran {
		t.Errorf("%t, %v", ran, err)
	}
	if left := held.Remaining(); left < 50*time.Second {
		t.Errorf("%v are left of a minute", left)
	}
	mustUnlock(t, readers, all, permit, held)
}

func TestALeaseThatIsLeftHeldFailsTheTest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var left []*sqllock.Lease
		checkOnly(t, record(t, func(tb testing.TB) {
			d := locktest.NewDatabase(tb)
			d.Locker(nil)
			left = append(left, mustLock(tb, d.Locker(nil), "left"))
			mustUnlock(tb, mustLock(tb, d.Locker(nil), "given back"))
		}), "left held", `["left"]`)
		checkOnly(t, record(t, func(tb testing.TB) {
			lease, err := locktest.New(tb, nil).RLock(tb.Context(), "read")
			if err != nil {
				tb.Fatalf("%v", err)
			}
			left = append(left, lease)
		}), "left held", `["read"]`)
		checkOnly(t, record(t, func(tb testing.TB) {
			d := locktest.NewDatabase(tb)
			mustLock(tb, d.Locker(nil), "expired")
			d.Expire("expired")
			mustUnlock(tb, mustLock(tb, d.Locker(nil), "expired"))
		}), "left held", "not hold any more in the database")
		for _, lease := range left {
			if cause := context.Cause(lease.Context()); !errors.Is(cause, sqllock.ErrClosed) {
				t.Errorf("the lease ended with %v", cause)
			}
		}
	})
}

func TestAHolderMayUnlockWhenTheLockerIsClosed(t *testing.T) {
	t.Parallel()
	var work sync.WaitGroup
	errs := record(t, func(tb testing.TB) {
		lease := mustLock(tb, locktest.New(tb, nil), "a")
		work.Go(func() {
			<-lease.Context().Done()
			if err := lease.Unlock(context.Background()); err != nil {
				t.Error(err)
			}
		})
	})
	work.Wait()
	if len(errs) > 0 {
		t.Errorf("%q", errs)
	}
}

func TestATestMayEndWhileTheDatabaseIsDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		checkOnly(t, record(t, func(tb testing.TB) {
			d := locktest.NewDatabase(tb)
			mustLock(tb, d.Locker(&sqllock.UniqueOptions{TTL: time.Hour}), "left")
			d.Down()
		}), `["left"]`)
		if errs := record(t, func(tb testing.TB) {
			d := locktest.NewDatabase(tb)
			d.Locker(nil)
			d.Down()
		}); len(errs) > 0 {
			t.Errorf("%q", errs)
		}
	})
}

func TestOptionsThatAreOutOfBoundsFailTheTest(t *testing.T) {
	t.Parallel()
	checkOnly(t, record(t, func(tb testing.TB) {
		locktest.New(tb, &sqllock.UniqueOptions{TTL: time.Nanosecond})
		tb.Errorf("the test goes on")
	}), "invalid option: TTL 1ns")
}

func TestTheOutputHasTheWarningsUnlessThereIsALogger(t *testing.T) {
	t.Parallel()
	var own bytes.Buffer
	output := &written{TB: t}
	d := locktest.NewDatabase(output)
	for _, o := range []sqllock.UniqueOptions{{}, {Logger: slog.New(slog.NewTextHandler(&own, nil))}} {
		locks := d.Locker(&o)
		lease := mustLock(t, locks, "a")
		d.Lose("a")
		checkLost(t, lease, sqllock.LostRevoked)
		if err := locks.Close(t.Context()); err != nil { // then it has written all
			t.Error(err)
		}
	}
	if n := strings.Count(output.String(), "revoked by force"); n != 1 || strings.Contains(output.String(), "synchronous") {
		t.Errorf("the output is %q", output)
	}
	if !strings.Contains(own.String(), "revoked by force") {
		t.Errorf("the Logger has %q", &own)
	}
}

func TestParallelTestsDoNotSeeEachOther(t *testing.T) {
	t.Parallel()
	for range 16 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			d := locktest.NewDatabase(t)
			a, b := d.Locker(nil), d.Locker(nil)
			for range 10 {
				lease := mustLock(t, a, "same")
				if _, err := b.TryLock(t.Context(), "same"); !errors.Is(err, sqllock.ErrHeld) {
					t.Errorf("the other Locker gets %v", err)
				}
				mustUnlock(t, lease)
			}
		})
	}
}

func TestLockersOnOneDatabaseWaitForEachOther(t *testing.T) {
	t.Parallel()
	d := locktest.NewDatabase(t)
	if _, err := d.DB().ExecContext(t.Context(), `CREATE TABLE counter (n INTEGER NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	if _, err := d.DB().ExecContext(t.Context(), `INSERT INTO counter VALUES (0)`); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 3 {
		locks := d.Locker(nil)
		for range 5 {
			all.Go(func() {
				err := locks.Do(t.Context(), "counter", func(ctx context.Context, lease *sqllock.Lease) error {
					return lease.InTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
						_, err := tx.ExecContext(ctx, `UPDATE counter SET n = n + 1`)
						return err
					})
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	var n int
	if err := d.DB().QueryRowContext(t.Context(), `SELECT n FROM counter`).Scan(&n); err != nil || n != 15 {
		t.Errorf("%d, %v", n, err)
	}
}

// written is a test whose output is kept.
type written struct {
	testing.TB
	testlog.Text
}

func (w *written) Output() io.Writer { return w }
