package conformance

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/sqllock/sqllock"
)

// leasesGuardPromises are about transactions that guard several leases: each database locks several
// rows in its own way.
var leasesGuardPromises = []promise{
	{sentence: "InTx of several leases commits what was written under all of them, and nothing after one is over", test: testLeasesInTx, needs: needTable | needLeases},
	{sentence: "after Guard of several leases nobody becomes holder of any of the names before the transaction ends", test: testLeasesGuardPins, needs: needTable | needLeases},
	{sentence: "a Guard of several leases is refused if one is over, shared, or of another database", test: testLeasesGuardRefused, needs: needTable | needLeases},
}

func testLeasesInTx(e *env) {
	book := e.ledger()
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	names := e.names(3)
	leases := e.lockAll(a, names)
	write := func(entry string) func(context.Context, *sql.Tx) error {
		return func(_ context.Context, tx *sql.Tx) error {
			book.write(tx, entry)
			return nil
		}
	}
	if err := leases.InTx(e.ctx(), nil, write("1")); err != nil {
		e.Fatalf("InTx: %v", err)
	}
	mine := errors.New("mine")
	err := leases.InTx(e.ctx(), nil, func(ctx context.Context, tx *sql.Tx) error {
		book.write(tx, "2")
		if ctx.Value(mine) != nil || ctx.Err() != nil {
			e.Errorf("the context of fn: %v", ctx.Err())
		}
		return mine
	})
	e.wantError("InTx whose function fails", err, mine)
	book.want("1;")
	e.unlockAll(leases)
	e.wantError("InTx after Unlock", leases.InTx(e.ctx(), nil, write("3")), sqllock.ErrNotHeld)

	for i := range names { // whichever is over
		leases := e.lockAll(a, names)
		e.expire(names[i])
		e.unlock(e.lock(b, names[i]))
		err := leases.InTx(e.ctx(), nil, write("4"))
		if !errors.Is(err, sqllock.ErrFenced) || !strings.Contains(err.Error(), names[i]) {
			e.Errorf("InTx after name %d is over: %v", i, err)
		}
		e.wantLost("the cause", context.Cause(leases.Context()))
		e.wantLost("Unlock", leases.Unlock(e.ctx()))
	}
	book.want("1;")
	for _, name := range names {
		e.unlock(e.try(b, name))
	}
}

func testLeasesGuardPins(e *env) {
	e.fresh()
	l, other := e.locker(&Options{TTL: sqllock.MaxTTL}), e.locker(&Options{TTL: long, RetryMax: 20 * time.Millisecond})
	names := e.names(3)
	leases := e.lockAll(l, names)
	for _, name := range names {
		e.expire(name) // it is anybody's now
	}
	tx := e.begin(sql.LevelDefault)
	if err := leases.Guard(e.ctx(), tx); err != nil {
		e.Fatalf("Guard: %v", err)
	}
	var waiting []<-chan result
	for _, name := range names {
		waiting = append(waiting, locking(e.ctx(), other, name))
	}
	time.Sleep(300 * time.Millisecond)
	for _, ch := range waiting {
		silent(e, ch, "Lock returned past a guard")
	}
	if err := tx.Commit(); err != nil {
		e.Errorf("Commit: %v", err)
	}
	for i, ch := range waiting {
		next := e.granted(ch)
		if next.Token() <= leases.Token(names[i]) {
			e.Errorf("token %d follows token %d", next.Token(), leases.Token(names[i]))
		}
		e.unlock(next)
	}
	e.wantLost("Unlock", leases.Unlock(e.ctx()))

	leases = e.lockAll(l, names) // and Unlock waits for the transaction
	tx = e.begin(sql.LevelDefault)
	if err := leases.Guard(e.ctx(), tx); err != nil {
		e.Fatalf("Guard: %v", err)
	}
	e.wantError("Unlock", leases.Unlock(e.ctx()), sqllock.ErrGuarded)
	_ = tx.Rollback()
	for _, name := range names {
		e.unlock(e.lock(other, name))
	}
}

func testLeasesGuardRefused(e *env) {
	l, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	names := e.names(3)
	guard := func(leases *sqllock.Leases, db *sql.DB) error {
		tx, err := db.BeginTx(e.ctx(), nil)
		if err != nil {
			e.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		return leases.Guard(e.ctx(), tx)
	}
	shared, err := l.RLockAll(e.ctx(), names)
	if err != nil {
		e.Fatal(err)
	}
	e.wantError("Guard of shared leases", guard(shared, e.handle()), sqllock.ErrUnsupported)
	e.unlockAll(shared)

	leases := e.lockAll(l, names)
	other, _ := e.open(e.h.Fresh(e.T), 2)
	e.wantError("Guard in another database", guard(leases, other), sqllock.ErrInvalidOption)
	if err := guard(leases, e.handle()); err != nil {
		e.Errorf("Guard: %v", err)
	}
	e.expire(names[1])
	e.unlock(e.lock(b, names[1]))
	e.wantError("Guard of a lease that is over", guard(leases, e.handle()), sqllock.ErrFenced)
	e.wantLost("Guard of a lease that is known to be over", guard(leases, e.handle()))
	e.wantLost("Unlock", leases.Unlock(e.ctx()))
}
