package conformance

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
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
	{sentence: "Close waits for a lease that is leaving", test: testUnlockTxClose, needs: needLeases},
	{sentence: "MinHold, MaxHold and LockDelay mean for UnlockInTx what they mean for Unlock", test: testUnlockInTxOptions, needs: needTable},
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
	if e.locksFile() {
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
