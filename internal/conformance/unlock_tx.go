package conformance

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/netproxy"
)

var unlockTxPromises = []promise{
	{sentence: "UnlockInTx commits what was written and frees the name in one", test: testUnlockInTx, needs: needLeases},
	{sentence: "UnlockInTx whose function fails leaves the lease as it was, and nothing written", test: testUnlockInTxFails, needs: needLeases},
	{sentence: "UnlockTx frees the name with the commit, and not before", test: testUnlockTx, needs: needLeases},
	{sentence: "an UnlockTx that is rolled back leaves the lease held, and Unlock frees the name", test: testUnlockTxRolledBack, needs: needLeases},
	{sentence: "a lease whose UnlockTx was rolled back is renewed and re-entered as before", test: testUnlockTxStays, needs: needLeases},
	{sentence: "after the commit of an UnlockTx a renewal ends the lease as unlocked", test: testUnlockTxRenewal, needs: needLeases},
	{sentence: "an open UnlockTx ends no context", test: testUnlockTxOpen, needs: needLeases},
	{sentence: "Unlock frees the name, whatever became of an UnlockInTx whose commit had no reply", test: testUnlockInTxUnknown, needs: needNetwork | needLeases},
	{sentence: "Unlock while a transaction with an UnlockTx is open is ErrGuarded, and the name is free after it", test: testUnlockDuringUnlockTx, needs: needRowLocks},
	{sentence: "a lease that was re-entered does not end in a transaction", test: testUnlockTxReentered, needs: needLeases},
	{sentence: "a lease that is leaving is not re-entered", test: testUnlockTxNoReentry, needs: needLeases},
	{sentence: "a shared lease does not end in a transaction", test: testUnlockTxShared, needs: needLeases},
	{sentence: "a lease that a session keeps does not end in a transaction", test: testUnlockTxSession, needs: needSessions},
	{sentence: "those who wait are served in their order after an UnlockInTx", test: testUnlockInTxQueue, needs: needTable},
	{sentence: "those who wait are served after the commit of an UnlockTx, with an Unlock and without", test: testUnlockTxQueue, needs: needTable},
	{sentence: "a former holder ends nothing in a transaction and writes nothing", test: testUnlockTxFenced, needs: needTable},
	{sentence: "Close waits for a lease that is leaving", test: testUnlockTxClose, needs: needLeases},
	{sentence: "UnlockTx does not pass another transaction that guards the lease or ends it", test: testUnlockTxGuarded, needs: needRowLocks},
	{sentence: "MinHold, MaxHold and LockDelay mean for UnlockInTx what they mean for Unlock", test: testUnlockInTxOptions, needs: needTable},
	{sentence: "UnlockTx holds in every isolation level, and nobody guards what it has ended", test: testUnlockTxIsolation, needs: needTable | needRowLocks},
	{sentence: "those who end their terms in transactions exclude each other, and none of them fails", test: testUnlockTxStorm, needs: needTable},
	{sentence: "UnlockTx in a transaction of another database is refused", test: testUnlockTxForeign, needs: needLeases},
}

// unlockTx ends the term of a lease in a transaction.
func (e *env) unlockTx(lease *sqllock.Lease, tx *sql.Tx) {
	e.Helper()
	if err := lease.UnlockTx(e.ctx(), tx); err != nil {
		e.Fatalf("UnlockTx: %v", err)
	}
}

// readCommitted is the level of isolation of transactions that others fail with no
// serialization failure. SQLite has one level only.
func (e *env) readCommitted() sql.IsolationLevel {
	if e.h.Driver == "sqlite" {
		return sql.LevelDefault
	}
	return sql.LevelReadCommitted
}

func (e *env) txOptions() *sql.TxOptions { return &sql.TxOptions{Isolation: e.readCommitted()} }

// unlockInTx ends the term of a lease with what a transaction writes.
func (e *env) unlockInTx(lease *sqllock.Lease, book ledger, entry string) {
	e.Helper()
	err := lease.UnlockInTx(e.ctx(), e.txOptions(), func(_ context.Context, tx *sql.Tx) error {
		book.write(tx, entry)
		return nil
	})
	if err != nil {
		e.Fatalf("UnlockInTx: %v", err)
	}
}

// wantUnlocked checks that a lease has ended by an Unlock.
func (e *env) wantUnlocked(lease *sqllock.Lease) {
	e.Helper()
	e.wantError("the context", context.Cause(lease.Context()), sqllock.ErrUnlocked)
	if left := lease.Remaining(); left != 0 {
		e.Errorf("%v remain of a lease that is unlocked", left)
	}
}

func testUnlockInTx(e *env) {
	book := e.ledger()
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	e.unlockInTx(lease, book, "first")
	next := e.try(other, lease.Name())
	if next.Token() <= lease.Token() {
		e.Errorf("token %d follows token %d", next.Token(), lease.Token())
	}
	e.wantUnlocked(lease)
	e.unlock(lease) // such as that of a defer
	e.wantError("a second Unlock", lease.Unlock(e.ctx()), sqllock.ErrNotHeld)
	e.wantError("a second UnlockInTx", lease.UnlockInTx(e.ctx(), e.txOptions(), func(context.Context, *sql.Tx) error { return nil }), sqllock.ErrNotHeld)
	e.live(next)
	e.unlock(next)

	err := l.Do(e.ctx(), lease.Name(), func(ctx context.Context, lease *sqllock.Lease) error {
		e.unlockInTx(lease, book, "second")
		return nil
	})
	if err != nil {
		e.Errorf("Do: %v", err)
	}
	book.want("first;second;")
	e.unlock(e.try(other, lease.Name()))
}

func testUnlockInTxFails(e *env) {
	book := e.ledger()
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	failure := errors.New("a failure of the application")
	err := lease.UnlockInTx(e.ctx(), e.txOptions(), func(_ context.Context, tx *sql.Tx) error {
		book.write(tx, "before an error")
		return failure
	})
	e.wantError("UnlockInTx whose function fails", err, failure)
	func() {
		defer func() { _ = recover() }()
		_ = lease.UnlockInTx(e.ctx(), e.txOptions(), func(_ context.Context, tx *sql.Tx) error {
			book.write(tx, "before a panic")
			panic("of the application")
		})
	}()
	ctx, cancel := context.WithCancel(e.ctx())
	err = lease.UnlockInTx(ctx, e.txOptions(), func(_ context.Context, tx *sql.Tx) error {
		book.write(tx, "before the end of the context")
		cancel()
		return nil
	})
	e.wantError("UnlockInTx whose context ends", err, context.Canceled)
	e.live(lease)
	e.wantHeld(other, lease.Name())
	book.want("")
	e.unlockInTx(lease, book, "in the end")
	book.want("in the end;")
}

func testUnlockTx(e *env) {
	book := e.ledger()
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	tx := e.begin(e.readCommitted())
	book.write(tx, "first")
	e.unlockTx(lease, tx)
	e.live(lease)
	e.wantHeld(other, lease.Name())
	e.commit(tx)
	next := e.try(other, lease.Name())
	if next.Token() <= lease.Token() {
		e.Errorf("token %d follows token %d", next.Token(), lease.Token())
	}
	e.unlock(lease)
	e.wantUnlocked(lease)
	e.wantError("a second Unlock", lease.Unlock(e.ctx()), sqllock.ErrNotHeld)
	e.live(next)
	e.wantHeld(l, lease.Name())
	e.unlock(next)
	book.want("first;")
}

func testUnlockTxRolledBack(e *env) {
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	for range 2 {
		tx := e.begin(e.readCommitted())
		e.unlockTx(lease, tx)
		_ = tx.Rollback()
		e.live(lease)
		e.wantHeld(other, lease.Name())
	}
	tx := e.begin(e.readCommitted())
	e.guard(lease, tx)
	e.commit(tx)
	e.unlock(lease)
	e.unlock(e.try(other, lease.Name()))
}

func testUnlockTxStays(e *env) {
	ttl := e.ttl(2 * time.Second)
	l, other := e.locker(&Options{TTL: ttl}), e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	tx := e.begin(e.readCommitted())
	e.unlockTx(lease, tx)
	_ = tx.Rollback()
	for end := time.Now().Add(2 * ttl); time.Now().Before(end); time.Sleep(ttl / 20) {
		e.live(lease)
		e.wantHeld(other, lease.Name())
	}
	inner := e.lockWith(lease.Context(), l, lease.Name())
	if inner.Token() != lease.Token() {
		e.Errorf("a re-entry has token %d, want %d", inner.Token(), lease.Token())
	}
	e.unlock(inner)
	e.live(lease)
	e.expire(lease.Name()) // and it is lost as before
	receive(e, lease.Context().Done(), "the holder hears of its loss")
	e.wantLost("the context", context.Cause(lease.Context()))
	e.wantLost("Unlock", lease.Unlock(e.ctx()))
}

func testUnlockTxRenewal(e *env) {
	var c crashes
	l := e.locker(&Options{TTL: e.ttl(2 * time.Second), Hooks: c.hooks()})
	lease := e.lock(l, e.name("k"))
	tx := e.begin(e.readCommitted())
	e.unlockTx(lease, tx)
	e.commit(tx)
	receive(e, lease.Context().Done(), "a renewal has found that the term is over")
	e.wantUnlocked(lease)
	next := e.try(l, lease.Name())
	e.unlock(lease)
	e.wantError("a second Unlock", lease.Unlock(e.ctx()), sqllock.ErrNotHeld)
	e.live(next)
	e.unlock(next)
	if reported := c.of(lease.Name()); len(reported) > 0 {
		e.Errorf("reported as crashed: %+v", reported)
	}
}

func testUnlockTxOpen(e *env) {
	ttl := e.ttl(3 * time.Second)
	l, other := e.locker(&Options{TTL: ttl}), e.locker(&Options{TTL: long})
	for _, commits := range []bool{true, false} {
		lease := e.lock(l, e.name("k"))
		tx := e.begin(e.readCommitted())
		e.unlockTx(lease, tx)
		for end := time.Now().Add(ttl * 2 / 3); time.Now().Before(end); time.Sleep(ttl / 20) { // renewals wait for the row
			e.live(lease)
		}
		if commits {
			e.commit(tx)
			e.unlock(e.lock(other, lease.Name()))
		} else {
			_ = tx.Rollback()
			for end := time.Now().Add(ttl); time.Now().Before(end); time.Sleep(ttl / 20) {
				e.live(lease)
			}
		}
		e.unlock(lease)
		e.unlock(e.lock(other, lease.Name()))
	}
}

func testUnlockInTxUnknown(e *env) {
	isCommit := func(b []byte) bool {
		b = bytes.ToLower(b)
		return bytes.Contains(b, []byte("commit")) && !bytes.Contains(b, []byte("committed")) // a level of isolation
	}
	p, l := e.proxied(&Options{TTL: long})
	other := e.locker(&Options{TTL: long})
	for action, want := range map[netproxy.Action]string{netproxy.CutAfterReply: "written;", netproxy.Cut: ""} {
		book := e.ledger()
		e.warm(l)
		lease := e.lock(l, e.name("k"))
		err := lease.UnlockInTx(e.ctx(), e.txOptions(), func(_ context.Context, tx *sql.Tx) error {
			book.write(tx, "written")
			pieces(p, isCommit, 1, 1, func(int) netproxy.Action { return action })
			return nil
		})
		p.OnUp(nil)
		if err == nil {
			e.Error("UnlockInTx returned nil without a reply to the commit")
		}
		e.unlock(lease)
		e.wantUnlocked(lease)
		e.unlock(e.try(other, lease.Name()))
		book.want(want)
	}
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

func testUnlockInTxQueue(e *env) {
	book := e.ledger()
	o := &Options{TTL: long, RetryMin: 20 * time.Millisecond, RetryMax: time.Hour}
	a, b := e.locker(o), e.locker(o)
	name := e.name("k")
	lease := e.lock(a, name)
	var waiting []<-chan result
	for i, l := range []*sqllock.Locker{b, a, b, a} {
		waiting = append(waiting, e.waitBehind(l, name, i))
	}
	var took []time.Duration
	tokens := []int64{lease.Token()}
	for _, ch := range waiting {
		start := time.Now()
		e.unlockInTx(lease, book, "a")
		lease = e.granted(ch)
		took = append(took, time.Since(start))
		tokens = append(tokens, lease.Token())
	}
	e.unlock(lease)
	if !slices.IsSorted(tokens) {
		e.Errorf("the tokens are %v", tokens)
	}
	slices.Sort(took)
	if longest := took[len(took)-1]; longest > time.Second { // it would be that between two beats
		e.Errorf("those who wait were served after %v", took)
	}
	book.want("a;a;a;a;")
}

func testUnlockTxQueue(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	for _, unlocks := range []bool{true, false} {
		for what, l := range map[string]*sqllock.Locker{"the same Locker": a, "another Locker": b} {
			lease := e.lock(a, e.name("k"))
			waiting := e.waitBehind(l, lease.Name(), 0)
			tx := e.begin(e.readCommitted())
			e.unlockTx(lease, tx)
			silent(e, waiting, "Lock returned before the commit")
			e.commit(tx)
			start := time.Now()
			if unlocks {
				e.unlock(lease)
			}
			next := e.granted(waiting)
			if took := time.Since(start); took > 10*time.Second {
				e.Errorf("a waiter of %s was served after %v", what, took)
			}
			if !unlocks {
				e.unlock(lease)
			}
			e.live(next)
			e.unlock(next)
		}
	}
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

func testUnlockTxClose(e *env) {
	other := e.locker(&Options{TTL: long})
	for _, commits := range []bool{true, false} {
		l := e.looseLocker(e.handle(), &Options{TTL: long})
		lease := e.lock(l, e.name("k"))
		tx := e.begin(e.readCommitted())
		closed := closing(e.ctx(), l)
		receive(e, lease.Context().Done(), "the lease's context is done")
		e.unlockTx(lease, tx)
		silent(e, closed, "Close returned before the lease was unlocked")
		if commits {
			e.commit(tx)
		} else {
			_ = tx.Rollback()
		}
		e.unlock(lease)
		if err := receive(e, closed, "Close returns"); err != nil {
			e.Errorf("Close: %v", err)
		}
		e.unlock(e.try(other, lease.Name()))
	}
}

func testUnlockTxGuarded(e *env) {
	l := e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	for what, first := range map[string]func(*sqllock.Lease, *sql.Tx){"Guard": e.guard, "UnlockTx": e.unlockTx} {
		one, two := e.begin(e.readCommitted()), e.begin(e.readCommitted())
		first(lease, one)
		start := time.Now()
		e.wantError("UnlockTx after a "+what, lease.UnlockTx(e.ctx(), two), sqllock.ErrGuarded)
		if took := time.Since(start); took > 5*time.Second {
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

func testUnlockInTxOptions(e *env) {
	book := e.ledger()
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	minHold := e.ttl(2 * time.Second)
	requested := time.Now()
	lease := e.lock(l, e.name("MinHold"), sqllock.MinHold(minHold), sqllock.LockDelay(time.Hour))
	e.unlockInTx(lease, book, "a")
	if held := e.wantHeld(other, lease.Name()); held.Until.IsZero() || held.Owner != "" {
		e.Errorf("another is told of %+v", held)
	}
	next := e.lock(other, lease.Name())
	if took := time.Since(requested); took < minHold || took > time.Hour {
		e.Errorf("the next one got the name after %v, want %v", took, minHold)
	}
	e.unlock(next)

	lease = e.lock(l, e.name("MaxHold"), sqllock.MaxHold(long/2), sqllock.LockDelay(time.Hour))
	e.unlockInTx(lease, book, "b")
	e.unlock(e.try(other, lease.Name()))
	book.want("a;b;")
}

func testUnlockTxIsolation(e *env) {
	book := e.ledger()
	l, other := e.locker(&Options{TTL: sqllock.MaxTTL}), e.locker(&Options{TTL: time.Minute})
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		lease := e.lock(l, e.name("k"))
		late := e.beginAndRead(book, level)
		waiting := e.waitBehind(other, lease.Name(), 0)
		tx := e.beginAndRead(book, level) // it sees the claim, or does not
		e.unlockTx(lease, tx)
		e.commit(tx)
		if err := lease.Guard(e.ctx(), late); err == nil {
			e.Errorf("%s: Guard of a lease that another transaction has ended", level)
		}
		_ = late.Rollback()
		_ = lease.Unlock(e.ctx())
		e.unlock(e.granted(waiting))

		lease = e.lock(l, e.name("claimed since"))
		tx = e.beginAndRead(book, level)
		waiting = locking(e.ctx(), other, lease.Name())
		e.waitForQueue(lease.Name(), 1) // whom the transaction cannot see
		err := lease.UnlockTx(e.ctx(), tx)
		if err == nil {
			e.commit(tx)
		} else { // the row has changed since the snapshot
			e.wantNoVerdict(err)
			_ = tx.Rollback()
		}
		e.unlock(lease)
		e.unlock(e.granted(waiting))
	}
}

// wantNoVerdict checks that an error does not say that a lease is over.
func (e *env) wantNoVerdict(err error) {
	e.Helper()
	if errors.Is(err, sqllock.ErrLost) || errors.Is(err, sqllock.ErrFenced) || errors.Is(err, sqllock.ErrNotHeld) || errors.Is(err, sqllock.ErrGuarded) {
		e.Errorf("UnlockTx: %v", err)
	}
}

func testUnlockTxForeign(e *env) {
	elsewhere, _ := e.open(e.h.Fresh(e.T), poolSize)
	e.fresh()
	l := e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	tx, err := elsewhere.BeginTx(e.ctx(), nil)
	if err != nil {
		e.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	e.wantError("UnlockTx", lease.UnlockTx(e.ctx(), tx), sqllock.ErrInvalidOption)
	e.wantError("UnlockTx without a transaction", lease.UnlockTx(e.ctx(), nil), sqllock.ErrInvalidOption)
	e.live(lease)
	e.unlock(lease)
}

// testUnlockTxStorm has many end their terms in all ways. The counter that they write would
// lose an update if two of them held.
func testUnlockTxStorm(e *env) {
	book := e.ledger()
	name := e.name("k")
	lockers := []*sqllock.Locker{e.locker(&Options{TTL: e.ttl(2 * time.Second)}), e.locker(&Options{TTL: long})}
	rounds := 15
	if e.h.slow() {
		rounds = 3
	}
	var inside, written atomic.Int32
	done := make(chan error)
	const callers = 8
	for i := range callers {
		go func() {
			for n := range rounds {
				err := e.endSomehow(lockers[i%2], book, name, n%4, &inside, &written)
				if err != nil {
					done <- fmt.Errorf("round %d of caller %d: %w", n, i, err)
					return
				}
			}
			done <- nil
		}()
	}
	for range callers {
		if err := receive(e, done, "a caller is done"); err != nil {
			e.Error(err)
		}
	}
	e.wantFree(lockers[0], name, timeLimit)
	book.want(strings.Repeat("x;", int(written.Load())))
}

// endSomehow holds a name and ends the term in one of four ways.
func (e *env) endSomehow(l *sqllock.Locker, book ledger, name string, how int, inside, written *atomic.Int32) error {
	ctx := context.Background()
	lease, err := l.Lock(ctx, name)
	if err != nil {
		return err
	}
	work := func(_ context.Context, tx *sql.Tx) error {
		if n := inside.Add(1); n != 1 {
			e.Errorf("%d hold the name", n)
		}
		book.write(tx, "x")
		inside.Add(-1)
		return nil
	}
	if how == 0 {
		err := lease.UnlockInTx(ctx, e.txOptions(), work)
		if err == nil {
			written.Add(1)
		}
		return errors.Join(err, lease.Unlock(ctx))
	}
	tx, err := e.handle().BeginTx(ctx, e.txOptions())
	if err != nil {
		return err
	}
	if err = errors.Join(work(ctx, tx), lease.UnlockTx(ctx, tx)); err != nil {
		return errors.Join(err, tx.Rollback(), lease.Unlock(ctx))
	}
	if how == 1 {
		return errors.Join(tx.Rollback(), lease.Unlock(ctx))
	}
	written.Add(1)
	return errors.Join(tx.Commit(), lease.Unlock(ctx))
}
