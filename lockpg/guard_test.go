package lockpg_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/lockpg"
)

// pooled returns a pool on a database of its own, and a Locker on it.
func pooled(t *testing.T) (*pgxpool.Pool, *sqllock.Locker) {
	t.Helper()
	d := withTables(t)
	pool, err := pgxpool.New(t.Context(), d.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	locks := newLocker(t, lockpg.Pool(pool))
	if _, err := pool.Exec(t.Context(), `CREATE TABLE ledger (entry text)`); err != nil {
		t.Fatal(err)
	}
	return pool, locks
}

// newLocker returns a Locker that is closed when the test ends.
func newLocker(t *testing.T, db driver.UniqueDatabase) *sqllock.Locker {
	t.Helper()
	locks, err := sqllock.NewUnique(t.Context(), db, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := locks.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return locks
}

func lock(t *testing.T, locks *sqllock.Locker, name string) *sqllock.Lease {
	t.Helper()
	lease, err := locks.Lock(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func TestAGuardInATransactionOfPgxKeepsTheNameUntilItEnds(t *testing.T) {
	t.Parallel()
	pool, locks := pooled(t)
	lease := lock(t, locks, "a")
	err := lockpg.InTx(t.Context(), pool, lease, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
		if err := lease.Unlock(ctx); !errors.Is(err, sqllock.ErrGuarded) {
			t.Errorf("Unlock inside = %v, want ErrGuarded", err)
		}
		ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		if _, err := locks.ForceUnlock(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("ForceUnlock inside = %v", err)
		}
		_, err := tx.Exec(t.Context(), `INSERT INTO ledger VALUES ('guarded')`)
		return err
	})
	if err != nil {
		t.Errorf("InTx = %v", err)
	}
	next := lock(t, locks, "a") // soon after the transaction
	if err := next.Unlock(t.Context()); err != nil {
		t.Errorf("Unlock of the next lease = %v", err)
	}
	var n int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM ledger`).Scan(&n); err != nil || n != 1 {
		t.Errorf("%d entries, %v", n, err)
	}
}

func TestAFormerHolderCommitsNothingThroughPgx(t *testing.T) {
	t.Parallel()
	pool, locks := pooled(t)
	lease := lock(t, locks, "a")
	if _, err := pool.Exec(t.Context(), `UPDATE sqllock_lock SET expires_at = 1`); err != nil {
		t.Fatal(err)
	}
	other, err := sqllock.NewUnique(t.Context(), lockpg.Pool(pool), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close(context.Background()) }()
	next := lock(t, other, "a")
	err = lockpg.InTx(t.Context(), pool, lease, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO ledger VALUES ('late')`)
		return err
	})
	if !errors.Is(err, sqllock.ErrFenced) {
		t.Errorf("InTx of the former holder = %v, want ErrFenced", err)
	}
	var n int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM ledger`).Scan(&n); err != nil || n != 0 {
		t.Errorf("%d entries, %v", n, err)
	}
	if err := lease.Unlock(t.Context()); !errors.Is(err, sqllock.ErrLost) {
		t.Errorf("Unlock of the former holder = %v", err)
	}
	if err := next.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestALeaseOfAnotherKindOfDatabaseIsRefusedInATransactionOfPgx(t *testing.T) {
	t.Parallel()
	pool, locks := pooled(t)
	lease := lock(t, locks, "a")
	defer func() { _ = lease.Unlock(context.Background()) }()
	if err := lockpg.Guard(t.Context(), nil, lease); !errors.Is(err, sqllock.ErrInvalidOption) {
		t.Errorf("Guard without a transaction = %v", err)
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if err := lockpg.Guard(t.Context(), tx, foreignLease{}); !errors.Is(err, sqllock.ErrInvalidOption) {
		t.Errorf("Guard of a lease in SQLite = %v", err)
	}
}

// foreignLease is a lease whose store is not of Postgres.
type foreignLease struct{}

func (foreignLease) GuardBy(ctx context.Context, f driver.GuardFunc) error {
	status, err := f(ctx, nil, driver.GuardRequest{})
	if err == nil && status == driver.Foreign {
		err = driver.ErrInvalidOption
	}
	return err
}

// ForceUnlock waits for a guard, on whatever connection it gets, but not on the one
// that renewals need.
func TestAForceUnlockThatWaitsForAGuardStarvesNoRenewal(t *testing.T) {
	t.Parallel()
	d := withTables(t)
	db := d.Open(t)
	db.SetMaxOpenConns(2)
	locks, err := sqllock.NewUnique(t.Context(), lockpg.DB(db), &sqllock.UniqueOptions{TTL: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locks.Close(context.Background()) }()
	guarded, beside := lock(t, locks, "guarded"), lock(t, locks, "beside")
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := guarded.Guard(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 14*time.Second) // which is longer than the TTL
	defer cancel()
	forced := make(chan error, 1)
	go func() {
		_, err := locks.ForceUnlock(ctx, "guarded")
		forced <- err
	}()
	if err := <-forced; err == nil {
		t.Error("ForceUnlock went past the guard")
	}
	for _, lease := range []*sqllock.Lease{guarded, beside} {
		if lease.Context().Err() != nil {
			t.Errorf("%q is lost: %v", lease.Name(), context.Cause(lease.Context()))
		}
	}
	_ = tx.Rollback()
	for _, lease := range []*sqllock.Lease{guarded, beside} {
		if err := lease.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock of %q: %v", lease.Name(), err)
		}
	}
}

func TestInTxTellsOfALossThatEndedItsContext(t *testing.T) {
	pool, locks := pooled(t)
	lost := func(err error) {
		t.Helper()
		if l := new(sqllock.LostError); !errors.As(err, &l) || l.Reason != sqllock.LostMaxHold {
			t.Errorf("InTx = %v, want a LostError", err)
		}
	}
	limited := func() *sqllock.Lease {
		t.Helper()
		lease, err := locks.Lock(t.Context(), "a", sqllock.MaxHold(500*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = lease.Unlock(context.Background()) })
		return lease
	}
	lease := limited()
	bound, cancel := lease.Bind(t.Context())
	defer cancel()
	lost(lockpg.InTx(bound, pool, lease, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `SELECT pg_sleep(60)`)
		return err
	}))
	_ = lease.Unlock(t.Context())
	lost(limited().InTx(t.Context(), nil, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `SELECT pg_sleep(60)`)
		return err
	}))
}

func TestATransactionOfPgxEndsATerm(t *testing.T) {
	t.Parallel()
	pool, locks := pooled(t)
	entries := func(want int) {
		t.Helper()
		var n int
		if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM ledger`).Scan(&n); err != nil || n != want {
			t.Errorf("%d entries, %v; want %d", n, err, want)
		}
	}
	write := func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO ledger VALUES ('ended')`)
		return err
	}
	lease := lock(t, locks, "a")
	failure := errors.New("a failure of the application")
	err := lockpg.UnlockInTx(t.Context(), pool, lease, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
		return errors.Join(write(ctx, tx), failure)
	})
	if !errors.Is(err, failure) || lease.Context().Err() != nil {
		t.Errorf("UnlockInTx whose function fails = %v, and the lease ended because of %v", err, context.Cause(lease.Context()))
	}
	entries(0)
	if err := lockpg.UnlockInTx(t.Context(), pool, lease, pgx.TxOptions{}, write); err != nil {
		t.Errorf("UnlockInTx = %v", err)
	}
	entries(1)
	next, err := locks.TryLock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Errorf("Unlock after UnlockInTx = %v", err)
	}

	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if err := errors.Join(write(t.Context(), tx), lockpg.UnlockTx(t.Context(), tx, next)); err != nil {
		t.Fatal(err)
	}
	if _, err := locks.TryLock(t.Context(), "a"); !errors.Is(err, sqllock.ErrHeld) {
		t.Errorf("TryLock before the commit = %v", err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	entries(2)
	if err := next.Unlock(t.Context()); err != nil {
		t.Errorf("Unlock after UnlockTx = %v", err)
	}
	last, err := locks.TryLock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := last.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestLeasesOfSeveralNamesAreGuardedInTransactionsOfPgx(t *testing.T) {
	t.Parallel()
	pool, locks := pooled(t)
	leases, err := locks.LockAll(t.Context(), []string{"b", "a", `c"\{}`})
	if err != nil {
		t.Fatal(err)
	}
	write := func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO ledger VALUES ('guarded')`)
		return err
	}
	if err := lockpg.InTx(t.Context(), pool, leases, pgx.TxOptions{}, write); err != nil {
		t.Errorf("InTx = %v", err)
	}
	if _, err := locks.ForceUnlock(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if err := lockpg.InTx(t.Context(), pool, leases, pgx.TxOptions{}, write); !errors.Is(err, sqllock.ErrFenced) && !errors.Is(err, sqllock.ErrLost) {
		t.Errorf("InTx after one lease is over = %v", err)
	}
	if err := leases.Unlock(t.Context()); !errors.Is(err, sqllock.ErrLost) {
		t.Errorf("Unlock = %v", err)
	}
	var n int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM ledger`).Scan(&n); err != nil || n != 1 {
		t.Errorf("%d entries, %v", n, err)
	}
}
