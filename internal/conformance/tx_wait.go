package conformance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/netproxy"
)

var txWaitPromises = []promise{
	{sentence: "TryLockTx of a held name leaves the transaction able to write and commit, in every isolation level", test: testTryTxGoesOn, needs: needTransactions},
	{sentence: "LockTx waits without harm to the transaction, in every isolation level", test: testTxWaits, needs: needTransactions},
	{sentence: "a context that ends while LockTx waits leaves the transaction usable", test: testTxGivesUp, needs: needTransactions},
	{sentence: "a context that ends while LockTx hears from the database leaves the transaction usable", test: testTxSlow, needs: needTransactions | needNetwork},
	{sentence: "a LockTx that ctx ended before it began locks nothing", test: testTxCancelled, needs: needTransactions},
	{sentence: "LockTx of a name that was locked since the snapshot works in every isolation level", test: testTxSnapshot, needs: needTransactions},
	{sentence: "a transaction older than the name is ErrTooOld at worst, and goes on", test: testTxTooOld, needs: needTransactions},
	{sentence: "a transaction may lock many names, and one of them twice", test: testTxMany, needs: needTransactions},
}

// levels are the isolation levels in which a transaction may lock.
var levels = []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}

// txResult is what LockTx returned.
type txResult struct {
	token int64
	err   error
}

// txLocking calls LockTx on a goroutine of its own. Nobody else may use the
// transaction meanwhile.
func txLocking(ctx context.Context, l *sqllock.Locker, tx *sql.Tx, name string) <-chan txResult {
	ch := make(chan txResult, 1)
	go func() {
		token, err := l.LockTx(ctx, tx, name)
		ch <- txResult{token, err}
	}()
	return ch
}

func testTryTxGoesOn(e *env) {
	book := e.ledger()
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	want := ""
	for i, level := range levels {
		name, free := e.name("k"), e.used(l, "free")
		lease := e.lock(other, name)
		tx := e.begin(level)
		book.write(tx, fmt.Sprint(i, " before"))
		for call := range txCalls {
			if call == "TryLockTx" || call == "TryRLockTx" {
				e.wantHeldTx(call, l, tx, name)
				e.wantHeldTx(call, other, tx, name)
			}
		}
		book.write(tx, fmt.Sprint(i, " between"))
		e.inTx("TryLockTx", l, tx, free)
		e.commit(tx)
		want += fmt.Sprint(i, " before;", i, " between;")
		e.live(lease)
		e.unlock(lease)
	}
	book.want(want)
}

// used returns a name that was locked before.
func (e *env) used(l *sqllock.Locker, s string) string {
	e.Helper()
	lease := e.lock(l, e.name(s))
	e.unlock(lease)
	return lease.Name()
}

func testTxWaits(e *env) {
	book := e.ledger()
	l, other := e.locker(&Options{TTL: long, RetryMax: 50 * time.Millisecond}), e.locker(&Options{TTL: long})
	want := ""
	for i, level := range levels {
		name := e.used(l, "k")
		lease := e.rlock(other, name)
		tx := e.begin(level)
		book.write(tx, fmt.Sprint(i, " before"))
		waiting := txLocking(e.ctx(), l, tx, name)
		silent(e, waiting, "LockTx returned while the name was held")
		last := e.rlock(other, name) // after LockTx was called, and before it has the name
		e.unlock(lease)
		silent(e, waiting, "LockTx returned while the name was held")
		e.unlock(last)
		r := receive(e, waiting, "LockTx returns")
		if r.err != nil || r.token <= last.Token() {
			e.Fatalf("at %s: LockTx after token %d = %d, %v", level, last.Token(), r.token, r.err)
		}
		e.wantHeld(other, name)
		book.write(tx, fmt.Sprint(i, " later"))
		e.commit(tx)
		want += fmt.Sprint(i, " before;", i, " later;")
		e.unlock(e.try(other, name))
	}
	book.want(want)
}

func testTxGivesUp(e *env) {
	book := e.ledger()
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	lease := e.lock(other, name)
	tx := e.begin(sql.LevelDefault)
	book.write(tx, "1")
	for _, call := range []string{"LockTx", "RLockTx"} {
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		start := time.Now()
		_, err := txCalls[call](l, ctx, tx, name)
		cancel()
		e.wantError(call, err, context.DeadlineExceeded)
		if took := time.Since(start); took > 2*time.Second+slack() {
			e.Errorf("%s gave up after %v", call, took)
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	waiting := txLocking(ctx, l, tx, name)
	silent(e, waiting, "LockTx returned while the name was held")
	why := errors.New("no more need")
	cancel(why)
	err := receive(e, waiting, "LockTx returns").err
	e.wantError("LockTx", err, context.Canceled)
	e.wantError("LockTx", err, why)
	book.write(tx, "2")
	e.unlock(lease)
	e.unlock(e.try(other, name)) // nothing of what gave up has it
	e.inTx("LockTx", l, tx, name)
	book.write(tx, "3")
	e.commit(tx)
	book.want("1;2;3;")
}

// testTxSlow has the context end in the middle of a statement, whichever that is.
func testTxSlow(e *env) {
	const trip = 100 * time.Millisecond
	book := e.ledger()
	l, other := e.locker(&Options{TTL: long, RetryMin: time.Millisecond, RetryMax: time.Millisecond}), e.locker(&Options{TTL: long})
	name := e.used(other, "k")
	n := e.h.Network
	p := netproxy.New(e.T, n.Address(e.source()))
	db, _ := e.open(n.Via(e.source(), p.Addr()), 1)
	tx, err := db.BeginTx(context.Background(), nil)
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { _ = tx.Rollback() })
	lease := e.lock(other, name)
	book.write(tx, "1")
	p.Latency(trip / 2)
	for i := range 4 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*trip+trip/2)
		_, err := l.LockTx(ctx, tx, name)
		cancel()
		e.wantError("LockTx", err, context.DeadlineExceeded)
	}
	p.Latency(0)
	book.write(tx, "2")
	e.unlock(lease)
	e.inTx("LockTx", l, tx, name)
	e.commit(tx)
	book.want("1;2;")
}

func testTxCancelled(e *env) {
	book := e.ledger()
	l := e.locker(&Options{TTL: long})
	name := e.used(l, "k")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	tx := e.begin(sql.LevelDefault)
	for call, f := range txCalls {
		_, err := f(l, ctx, tx, name)
		e.wantError(call, err, context.Canceled)
		e.unlock(e.try(l, name))
	}
	book.write(tx, "it goes on")
	e.commit(tx)
	book.want("it goes on;")
}

// look takes the transaction's snapshot.
func (l ledger) look(tx *sql.Tx) {
	l.e.Helper()
	var n int
	if err := tx.QueryRow(`SELECT count(*) FROM ` + l.table).Scan(&n); err != nil {
		l.e.Fatalf("look: %v", err)
	}
}

func testTxSnapshot(e *env) {
	book := e.ledger()
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	for _, level := range levels {
		for _, call := range []string{"LockTx", "RLockTx"} {
			name := e.used(l, "k")
			tx := e.begin(level)
			book.look(tx)
			e.unlock(e.lock(other, name)) // terms that the snapshot does not see
			e.unlock(e.rlock(l, name))
			since := e.begin(level)
			e.inTx("LockTx", l, since, name)
			e.commit(since)
			last := e.lock(other, name)
			e.unlock(last)
			if token := e.inTx(call, l, tx, name); token <= last.Token() {
				e.Errorf("%s at %s: token %d follows token %d", call, level, token, last.Token())
			}
			e.commit(tx)
		}
	}
}

func testTxTooOld(e *env) {
	book := e.ledger()
	l := e.locker(&Options{TTL: long})
	want := ""
	for i, level := range levels {
		name := e.name("k")
		tx := e.begin(level)
		book.look(tx)
		_, err := l.LockTx(e.ctx(), tx, name)
		allowed := e.h.Sessions.Alone && level != sql.LevelReadCommitted
		if err != nil && !(allowed && errors.Is(err, sqllock.ErrTooOld)) {
			e.Errorf("at %s: %v", level, err)
		}
		book.write(tx, fmt.Sprint(i))
		want += fmt.Sprint(i, ";")
		e.commit(tx)
		tx = e.begin(level)
		e.inTx("LockTx", l, tx, name)
		e.commit(tx)
	}
	book.want(want)
}

func testTxMany(e *env) {
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	var names []string
	for range 5 {
		names = append(names, e.used(l, "k"))
	}
	tx := e.begin(sql.LevelDefault)
	tokens := make(map[string]int64)
	for _, name := range append(names, names[0]) {
		token := e.inTx("LockTx", l, tx, name)
		if token <= tokens[name] {
			e.Errorf("token %d of a name that the transaction has with token %d", token, tokens[name])
		}
		tokens[name] = token
	}
	for _, name := range names {
		e.wantHeld(other, name)
	}
	e.rollback(tx)
	for _, name := range names {
		e.unlock(e.try(other, name))
	}
}
