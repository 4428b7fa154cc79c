package conformance

import (
	"context"
	"database/sql"
	"time"

	"github.com/sqllock/sqllock"
)

var unlockTxRefusedPromises = []promise{
	{sentence: "Unlock while a transaction with an UnlockTx is open is ErrGuarded, and the name is free after it", test: testUnlockDuringUnlockTx, needs: needRowLocks},
	{sentence: "a lease that was re-entered does not end in a transaction", test: testUnlockTxReentered, needs: needLeases},
	{sentence: "a lease that is leaving is not re-entered", test: testUnlockTxNoReentry, needs: needLeases},
	{sentence: "a shared lease does not end in a transaction", test: testUnlockTxShared, needs: needLeases},
	{sentence: "a lease that a session keeps does not end in a transaction", test: testUnlockTxSession, needs: needSessions},
	{sentence: "a former holder ends nothing in a transaction and writes nothing", test: testUnlockTxFenced, needs: needTable},
	{sentence: "UnlockTx does not pass another transaction that guards the lease or ends it", test: testUnlockTxGuarded, needs: needRowLocks},
	{sentence: "UnlockTx in a transaction of another database is refused", test: testUnlockTxForeign, needs: needLeases},
}

func testUnlockDuringUnlockTx(e *env) {
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long, RetryMax: 20 * time.Millisecond})
	for _, commits := range []bool{true, false} {
		lease := e.lock(l, e.name("k"))
		tx := e.begin(e.readCommitted())
		e.unlockTx(lease, tx)
		e.wantError("Unlock while the transaction is open", lease.Unlock(e.ctx()), sqllock.ErrGuarded)
		e.wantUnlocked(lease)
		waiting := locking(e.ctx(), other, lease.Name())
		silent(e, waiting, "Lock returned before the transaction had ended")
		if commits {
			e.commit(tx)
		} else {
			_ = tx.Rollback()
		}
		e.unlock(e.granted(waiting))
	}
}

func testUnlockTxReentered(e *env) {
	book := e.ledger()
	l := e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	inner := e.lockWith(lease.Context(), l, lease.Name())
	tx := e.begin(e.readCommitted())
	e.wantError("UnlockTx", lease.UnlockTx(e.ctx(), tx), sqllock.ErrInvalidOption)
	_ = tx.Rollback()
	err := inner.UnlockInTx(e.ctx(), e.txOptions(), func(context.Context, *sql.Tx) error {
		e.Error("the function ran although the lease was re-entered")
		return nil
	})
	e.wantError("UnlockInTx", err, sqllock.ErrInvalidOption)
	e.unlock(inner)
	err = lease.UnlockInTx(e.ctx(), e.txOptions(), func(ctx context.Context, tx *sql.Tx) error {
		book.write(tx, "under a re-entry")
		inner = e.lockWith(ctx, l, lease.Name())
		return nil
	})
	e.wantError("UnlockInTx whose function re-enters", err, sqllock.ErrInvalidOption)
	e.live(lease)
	e.unlock(inner)
	e.unlockInTx(lease, book, "alone")
	book.want("alone;")
}

func testUnlockTxNoReentry(e *env) {
	l := e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	tx := e.begin(e.readCommitted())
	e.unlockTx(lease, tx)
	e.wantHeldWith(lease.Context(), l, lease.Name())
	e.commit(tx)
	next := e.lockWith(lease.Context(), l, lease.Name())
	if next.Token() <= lease.Token() {
		e.Errorf("token %d follows token %d", next.Token(), lease.Token())
	}
	e.wantUnlocked(lease)
	e.unlock(lease)
	e.live(next)
	e.unlock(next)
}

func testUnlockTxShared(e *env) {
	l := e.locker(&Options{TTL: long})
	reader, err := l.RLock(e.ctx(), e.name("k"))
	if err != nil {
		e.Fatal(err)
	}
	e.wantUnsupported(reader)
}

func testUnlockTxSession(e *env) {
	e.wantUnsupported(e.lock(e.locker(&Options{TTL: long}), e.name("k")))
}

// wantUnsupported checks that a lease cannot end in a transaction, and unlocks it.
func (e *env) wantUnsupported(lease *sqllock.Lease) {
	e.Helper()
	tx := e.begin(e.readCommitted())
	e.wantError("UnlockTx", lease.UnlockTx(e.ctx(), tx), sqllock.ErrUnsupported)
	_ = tx.Rollback()
	err := lease.UnlockInTx(e.ctx(), e.txOptions(), func(context.Context, *sql.Tx) error {
		e.Error("the function ran")
		return nil
	})
	e.wantError("UnlockInTx", err, sqllock.ErrUnsupported)
	e.live(lease)
	e.unlock(lease)
}

func testUnlockTxFenced(e *env) {
	book := e.ledger()
	l, other := e.locker(&Options{TTL: sqllock.MaxTTL}), e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	next := e.succeeded(lease, other)
	tx := e.begin(e.readCommitted())
	book.write(tx, "of the former holder")
	e.wantError("UnlockTx of the former holder", lease.UnlockTx(e.ctx(), tx), sqllock.ErrFenced)
	_ = tx.Rollback()
	e.wantLost("the context of the former holder", context.Cause(lease.Context()))
	err := lease.UnlockInTx(e.ctx(), e.txOptions(), func(context.Context, *sql.Tx) error { return nil })
	e.wantError("UnlockInTx of the former holder", err, sqllock.ErrLost)
	_ = lease.Unlock(e.ctx())
	e.live(next)
	e.unlock(next)

	lease = e.lock(l, e.name("between")) // lost between the guard and the end
	err = lease.UnlockInTx(e.ctx(), e.txOptions(), func(_ context.Context, tx *sql.Tx) error {
		book.write(tx, "of the former holder")
		_, err := tx.Exec(`UPDATE sqllock_lock SET version = version + 1 WHERE name = '` + lease.Name() + `'`)
		return err
	})
	if err == nil {
		e.Error("UnlockInTx ended a term that was not the current one")
	}
	_ = lease.Unlock(e.ctx())
	book.want("")
}

func testUnlockTxGuarded(e *env) {
	l := e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	for what, first := range map[string]func(*sqllock.Lease, *sql.Tx){"Guard": e.guard, "UnlockTx": e.unlockTx} {
		one, two := e.begin(e.readCommitted()), e.begin(e.readCommitted())
		first(lease, one)
		start := time.Now()
		e.wantError("UnlockTx after a "+what, lease.UnlockTx(e.ctx(), two), sqllock.ErrGuarded)
		if took := time.Since(start); took > 5*time.Second+slack() {
			e.Errorf("UnlockTx after a %s waited for %v", what, took)
		}
		_ = two.Rollback()
		_ = one.Rollback()
		e.live(lease)
	}
	tx := e.begin(e.readCommitted())
	e.guard(lease, tx)
	e.unlockTx(lease, tx)
	e.commit(tx)
	e.unlock(lease)
}

func testUnlockTxForeign(e *env) {
	tx := e.beginElsewhere()
	lease := e.lock(e.locker(&Options{TTL: long}), e.name("k"))
	e.wantError("UnlockTx", lease.UnlockTx(e.ctx(), tx), sqllock.ErrInvalidOption)
	e.wantError("UnlockTx without a transaction", lease.UnlockTx(e.ctx(), nil), sqllock.ErrInvalidOption)
	e.live(lease)
	e.unlock(lease)
}
