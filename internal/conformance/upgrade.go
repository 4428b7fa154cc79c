package conformance

import (
	"context"
	"database/sql"
	"time"

	"github.com/sqllock/sqllock"
)

var upgradePromises = []promise{
	{sentence: "RLock with a reader's context re-enters: same token, no statement", test: testSharedReentry},
	{sentence: "RLock under an exclusive lease re-enters that", test: testSharedUnderExclusive},
	{sentence: "a reader re-enters past a writer that waits", test: testReentryPastWriter},
	{sentence: "a reader cannot lock its name exclusively: ErrUpgrade at once, and the reader reads on", test: testUpgrade},
	{sentence: "a reader that has unlocked can have the name alone", test: testNoUpgrade},
	{sentence: "MinHold and Value do not apply to readers, and are refused before any SQL", test: testSharedOptions},
	{sentence: "Guard of a reader is refused, and the transaction goes on", test: testSharedGuard},
}

func testSharedReentry(e *env) {
	db, recorder := e.open(e.source(), poolSize)
	l, other := e.lockerOn(db, &Options{TTL: long}), e.locker(&Options{TTL: long})
	ctx := sqllock.WithOwner(e.ctx(), "job-7")
	outer := e.rlockWith(ctx, l, e.name("k"))
	before := recorder.statements.Load()
	var inner []*sqllock.Lease
	for _, ctx := range []context.Context{outer.Context(), ctx} {
		inner = append(inner, e.rlockWith(ctx, l, outer.Name()))
		lease, err := l.TryRLock(ctx, outer.Name())
		e.oneOf(lease, err)
		if err != nil {
			e.Fatalf("TryRLock: %v", err)
		}
		inner = append(inner, lease)
	}
	if n := recorder.statements.Load() - before; n != 0 {
		e.Errorf("re-entering sent %d statements", n)
	}
	for _, lease := range append(inner, outer) {
		if lease.Token() != outer.Token() || lease.Owner() != "job-7" || !lease.Shared() {
			e.Errorf("token %d of %q, shared %v, in token %d", lease.Token(), lease.Owner(), lease.Shared(), outer.Token())
		}
		e.live(lease)
		e.wantHeld(other, outer.Name())
		e.unlock(lease)
	}
	e.unlock(e.try(other, outer.Name()))
}

func testSharedUnderExclusive(e *env) {
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	ctx := sqllock.WithOwner(e.ctx(), "job-7")
	outer := e.lockWith(ctx, l, e.name("k"))
	for how, ctx := range map[string]context.Context{"by context": outer.Context(), "by owner": ctx} {
		for call, f := range map[string]func(context.Context, string, ...sqllock.LockOption) (*sqllock.Lease, error){
			"RLock": l.RLock, "TryRLock": l.TryRLock,
		} {
			inner, err := f(ctx, outer.Name())
			e.oneOf(inner, err)
			if err != nil {
				e.Fatalf("%s %s: %v", call, how, err)
			}
			if inner.Token() != outer.Token() || inner.Shared() {
				e.Errorf("%s %s: token %d, shared %v, in token %d", call, how, inner.Token(), inner.Shared(), outer.Token())
			}
			e.wantWriter(other, outer.Name())
			e.unlock(inner)
			e.wantWriter(other, outer.Name())
		}
	}
	e.live(outer)
	e.unlock(outer)
	e.unlock(e.tryShared(other, outer.Name()))
}

func testReentryPastWriter(e *env) {
	l := e.locker(&Options{TTL: long, RetryMax: 50 * time.Millisecond})
	ctx := sqllock.WithOwner(e.ctx(), "job-7")
	outer := e.rlockWith(ctx, l, e.name("k"))
	writing := locking(e.ctx(), l, outer.Name())
	silent(e, writing, "a writer got in beside a reader")
	for _, ctx := range []context.Context{outer.Context(), ctx} { // else they would wait for each other
		e.unlock(e.rlockWith(ctx, l, outer.Name()))
	}
	e.unlock(outer)
	e.unlock(e.granted(writing))
}

func testUpgrade(e *env) {
	db, recorder := e.open(e.source(), poolSize)
	l, other := e.lockerOn(db, &Options{TTL: long}), e.locker(&Options{TTL: long})
	ctx := sqllock.WithOwner(e.ctx(), "job-7")
	mine := e.rlockWith(ctx, l, e.name("k"))
	theirs := e.rlock(other, mine.Name())
	before := recorder.statements.Load()
	for how, ctx := range map[string]context.Context{"by context": sqllock.WithOwner(mine.Context(), "another"), "by owner": ctx} {
		for _, call := range exclusiveCalls {
			e.wantError(call+" "+how, calls[call](ctx, l, mine.Name()), sqllock.ErrUpgrade)
		}
	}
	if n := recorder.statements.Load() - before; n != 0 {
		e.Errorf("%d statements were sent", n)
	}
	e.live(mine)
	e.unlock(theirs) // nor if nobody else is in the way
	e.wantError("Lock of the only reader", calls["Lock"](ctx, l, mine.Name()), sqllock.ErrUpgrade)
	e.wantHeldWith(sqllock.WithoutOwner(mine.Context()), l, mine.Name()) // another owner then, and it waits
	e.live(mine)
	e.unlock(mine)
}

func testNoUpgrade(e *env) {
	l := e.locker(&Options{TTL: long})
	owner := sqllock.WithOwner(e.ctx(), "job-7")
	outer := e.rlockWith(owner, l, e.name("k"))
	inner := e.rlockWith(outer.Context(), l, outer.Name())
	e.unlock(outer)
	e.wantError("Lock while one lease is left", calls["Lock"](owner, l, inner.Name()), sqllock.ErrUpgrade)
	ctx := inner.Context()
	e.unlock(inner)
	writer := e.lockWith(sqllock.WithOwner(context.WithoutCancel(ctx), "job-7"), l, outer.Name())
	if writer.Shared() || writer.Token() <= outer.Token() {
		e.Errorf("shared %v, token %d after %d", writer.Shared(), writer.Token(), outer.Token())
	}
	e.unlock(writer)
}

func testSharedOptions(e *env) {
	l, _, recorder := e.unused()
	before := recorder.statements.Load()
	options := map[string]sqllock.LockOption{"MinHold": sqllock.MinHold(time.Second), "Value": sqllock.Value([]byte("v"))}
	if e.inSessions() {
		options["LockDelay"] = sqllock.LockDelay(time.Second)
	}
	for what, opt := range options {
		for _, call := range []string{"RLock", "TryRLock"} {
			e.wantError(call+" with "+what, calls[call](e.ctx(), l, "k", opt), sqllock.ErrInvalidOption)
		}
	}
	if n := recorder.statements.Load() - before; n != 0 {
		e.Errorf("%d statements were sent", n)
	}
}

func testSharedGuard(e *env) {
	book := e.ledger()
	l := e.locker(&Options{TTL: long})
	reader := e.rlock(l, e.name("k"))
	tx := e.begin(sql.LevelDefault)
	e.wantError("Guard", reader.Guard(e.ctx(), tx), sqllock.ErrUnsupported)
	book.write(tx, "without a guard")
	if err := tx.Commit(); err != nil {
		e.Errorf("Commit: %v", err)
	}
	err := reader.InTx(e.ctx(), nil, func(context.Context, *sql.Tx) error {
		e.Error("the function ran")
		return nil
	})
	e.wantError("InTx", err, sqllock.ErrUnsupported)
	e.live(reader)
	e.unlock(reader)
	book.want("without a guard;")
}
