package conformance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock"
)

var unlockTxContentionPromises = []promise{
	{sentence: "those who wait are served in their order after an UnlockInTx", test: testUnlockInTxQueue, needs: needTable},
	{sentence: "those who wait are served after the commit of an UnlockTx, with an Unlock and without", test: testUnlockTxQueue, needs: needTable},
	{sentence: "UnlockTx holds in every isolation level, and nobody guards what it has ended", test: testUnlockTxIsolation, needs: needTable | needRowLocks},
	{sentence: "those who end their terms in transactions exclude each other, and none of them fails", test: testUnlockTxStorm, needs: needTable},
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
	if longest := took[len(took)-1]; longest > time.Second+slack() { // it would be that between two beats; the promise of the hook HandedOver needs no clock
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
	const callers, ways = 8, 4
	enough := time.Now().Add(timeLimit / 3) // on a machine that is slow, where each way was taken once
	for i := range callers {
		go func() {
			for n := range rounds {
				if n >= ways && time.Now().After(enough) {
					break
				}
				err := e.endSomehow(lockers[i%2], book, name, n%ways, &inside, &written)
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
