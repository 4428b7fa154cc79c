package conformance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sqllock/sqllock"
)

var txPromises = []promise{
	{sentence: "LockTx is refused where locks outlive transactions", test: testTxUnsupported, needs: needNoTransactions},
	{sentence: "a transaction that has a name and a Lock of it exclude each other, and so do two transactions", test: testTxExcludes, needs: needTransactions},
	{sentence: "the lock of a transaction ends with its commit, and with its rollback", test: testTxEnds, needs: needTransactions},
	{sentence: "whoever gets a name after a transaction sees all that it has committed, and nothing of one that was rolled back", test: testTxAtomic, needs: needTransactions},
	{sentence: "tokens rise over leases and transactions, readers and rolled back ones included", test: testTxTokens, needs: needTransactions},
	{sentence: "RLockTx shares a name with all who share it, and with no others", test: testTxShared, needs: needTransactions},
	{sentence: "transactions that read, wait and write under LockTx lose no update", test: testTxCounter, needs: needTransactions},
	{sentence: "LockTx needs no connection besides that of the transaction", test: testTxPool, needs: needTransactions | needHandle},
	{sentence: "transactions that use up the pool go on after the connection that the Locker keeps has died", test: testTxKeptDies, needs: needTransactions | needSessions | needHandle},
	{sentence: "LockTx waits until a MinHold is over", test: testTxMinimumTerm, needs: needTransactions},
	{sentence: "Close leaves a transaction its lock", test: testTxClose, needs: needTransactions},
	{sentence: "LockTx in a finished transaction, in none or in one of another database is an error that locks nothing", test: testTxRefused, needs: needTransactions},
}

// txCalls are all ways to lock in a transaction.
var txCalls = map[string]func(*sqllock.Locker, context.Context, *sql.Tx, string) (int64, error){
	"LockTx":     (*sqllock.Locker).LockTx,
	"TryLockTx":  (*sqllock.Locker).TryLockTx,
	"RLockTx":    (*sqllock.Locker).RLockTx,
	"TryRLockTx": (*sqllock.Locker).TryRLockTx,
}

// inTx calls one of txCalls, which has to succeed.
func (e *env) inTx(call string, l *sqllock.Locker, tx *sql.Tx, name string) (token int64) {
	e.Helper()
	token, err := txCalls[call](l, e.ctx(), tx, name)
	if err != nil || token <= 0 {
		e.Fatalf("%s = %d, %v", call, token, err)
	}
	return token
}

// wantHeldTx checks that somebody else has a name.
func (e *env) wantHeldTx(call string, l *sqllock.Locker, tx *sql.Tx, name string) {
	e.Helper()
	token, err := txCalls[call](l, e.ctx(), tx, name)
	var held *sqllock.HeldError
	if !errors.As(err, &held) || held.Name != name || token != 0 {
		e.Fatalf("%s of a held name: want a *HeldError, got %d, %v", call, token, err)
	}
}

func (e *env) commit(tx *sql.Tx) {
	e.Helper()
	if err := tx.Commit(); err != nil {
		e.Fatalf("Commit: %v", err)
	}
}

func (e *env) rollback(tx *sql.Tx) {
	e.Helper()
	if err := tx.Rollback(); err != nil {
		e.Fatalf("Rollback: %v", err)
	}
}

func testTxUnsupported(e *env) {
	book := e.ledger()
	l := e.locker(&Options{TTL: long})
	name := e.name("k")
	tx := e.begin(sql.LevelDefault)
	for call, f := range txCalls {
		token, err := f(l, e.ctx(), tx, name)
		if token != 0 {
			e.Errorf("%s gave token %d", call, token)
		}
		e.wantError(call, err, sqllock.ErrUnsupported)
	}
	book.write(tx, "it goes on")
	e.commit(tx)
	book.want("it goes on;")
}

func testTxExcludes(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	one, two := e.begin(sql.LevelDefault), e.begin(sql.LevelDefault)
	e.inTx("LockTx", a, one, name)
	for _, l := range []*sqllock.Locker{a, b} {
		e.wantHeld(l, name)
		e.wantWriterOrMore(l, name)
		e.wantHeldTx("TryLockTx", l, two, name)
		e.wantHeldTx("TryRLockTx", l, two, name)
	}
	e.commit(one)
	e.inTx("TryLockTx", b, two, name) // in the transaction that was told
	e.wantHeld(a, name)
	e.commit(two)

	lease := e.lock(a, name)
	three := e.begin(sql.LevelDefault)
	for _, l := range []*sqllock.Locker{a, b} {
		e.wantHeldTx("TryLockTx", l, three, name)
		e.wantHeldTx("TryRLockTx", l, three, name)
	}
	e.live(lease)
	e.unlock(lease)
	e.inTx("TryLockTx", b, three, name)
	e.commit(three)
	e.unlock(e.try(a, name))
}

// wantWriterOrMore checks that a name cannot be shared. It may not be known why.
func (e *env) wantWriterOrMore(l *sqllock.Locker, name string) {
	e.Helper()
	lease, err := l.TryRLock(e.ctx(), name)
	e.oneOf(lease, err)
	if !errors.Is(err, sqllock.ErrHeld) {
		e.Fatalf("TryRLock of a name that somebody holds alone: %v, %v", lease, err)
	}
}

func testTxEnds(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long, RetryMax: 50 * time.Millisecond})
	for how, end := range map[string]func(*sql.Tx){"commit": e.commit, "rollback": e.rollback} {
		name := e.name(how)
		tx := e.begin(sql.LevelDefault)
		e.inTx("LockTx", a, tx, name)
		waiting := locking(e.ctx(), b, name)
		silent(e, waiting, "Lock returned while a transaction had the name")
		end(tx)
		e.unlock(e.granted(waiting))
		e.unlock(e.try(a, name))
	}
}

func testTxAtomic(e *env) {
	book := e.ledger()
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long, RetryMax: 20 * time.Millisecond})
	name := e.name("k")
	want := ""
	for i := range 6 {
		tx := e.begin(sql.LevelDefault)
		e.inTx("LockTx", a, tx, name)
		waiting := locking(e.ctx(), b, name)
		entry := fmt.Sprint("entry ", i)
		book.write(tx, entry)
		time.Sleep(20 * time.Millisecond)
		if i%2 == 0 {
			e.commit(tx)
			want += entry + ";"
		} else {
			e.rollback(tx)
		}
		lease := e.granted(waiting)
		book.want(want)
		e.unlock(lease)
	}
}

func testTxTokens(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	var last int64
	rises := func(what string, token int64) {
		e.Helper()
		if token <= last {
			e.Errorf("%s: token %d follows token %d", what, token, last)
		}
		last = token
	}
	lease := func(l *sqllock.Locker, what string, lock func(context.Context, string, ...sqllock.LockOption) (*sqllock.Lease, error)) {
		lease, err := lock(e.ctx(), name)
		e.oneOf(lease, err)
		if err != nil {
			e.Fatalf("%s: %v", what, err)
		}
		rises(what, lease.Token())
		e.unlock(lease)
	}
	for _, l := range []*sqllock.Locker{a, b, a} {
		for _, call := range []string{"LockTx", "RLockTx", "TryLockTx", "TryRLockTx", "LockTx"} {
			tx := e.begin(sql.LevelDefault)
			rises(call+" that is rolled back", e.inTx(call, l, tx, name))
			e.rollback(tx)
			tx = e.begin(sql.LevelDefault)
			rises(call, e.inTx(call, l, tx, name))
			e.commit(tx)
			lease(l, "Lock after "+call, l.Lock)
		}
		lease(l, "TryLock", l.TryLock)
		lease(l, "RLock", l.RLock)
	}
}

func testTxShared(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	before := e.lock(a, name)
	e.unlock(before)
	one, two, three := e.begin(sql.LevelDefault), e.begin(sql.LevelDefault), e.begin(sql.LevelDefault)
	top := e.inTx("RLockTx", a, one, name)
	top = max(top, e.inTx("TryRLockTx", b, two, name))
	reader := e.rlock(b, name)
	if top <= before.Token() {
		e.Errorf("token %d of a reader follows token %d", top, before.Token())
	}
	top = max(top, reader.Token())
	blocked := func(by string) {
		e.Helper()
		for _, l := range []*sqllock.Locker{a, b} {
			if lease, err := l.TryLock(e.ctx(), name); !errors.Is(err, sqllock.ErrHeld) {
				e.Fatalf("TryLock beside %s: %v, %v", by, lease, err)
			}
			e.wantHeldTx("TryLockTx", l, three, name)
		}
	}
	blocked("two transactions and a lease")
	e.commit(one)
	blocked("a transaction and a lease")
	e.unlock(reader)
	blocked("a transaction")
	e.rollback(two)
	if token := e.inTx("TryLockTx", a, three, name); token <= top {
		e.Errorf("token %d of a writer follows token %d", token, top)
	}
	four := e.begin(sql.LevelDefault)
	e.wantHeldTx("TryRLockTx", b, four, name)
	e.wantWriterOrMore(b, name)
	e.commit(three)
	e.inTx("TryRLockTx", b, four, name)
	e.commit(four)
}

// testTxCounter would lose updates if two transactions had the name at a time.
func testTxCounter(e *env) {
	const goroutines, times = 8, 5
	l, other := e.locker(&Options{TTL: long, RetryMax: 20 * time.Millisecond}), e.locker(&Options{TTL: long, RetryMax: 20 * time.Millisecond})
	c := e.counter()
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Go(func() {
			for range times {
				if err := c.add([]*sqllock.Locker{l, other}[i%2]); err != nil {
					e.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	var n int
	if err := e.handle().QueryRowContext(e.ctx(), `SELECT n FROM `+c.table).Scan(&n); err != nil || n != goroutines*times {
		e.Errorf("%d of %d additions are there, %v", n, goroutines*times, err)
	}
}

// counter is a number in a table of the application, and the name that protects it.
type counter struct {
	e           *env
	table, name string
}

func (e *env) counter() *counter {
	e.Helper()
	c := &counter{e, fmt.Sprintf("counter_%s_%d", run, serial.Add(1)), e.name("k")}
	for _, text := range []string{`CREATE TABLE ` + c.table + ` (n INTEGER)`, `INSERT INTO ` + c.table + ` VALUES (0)`} {
		if _, err := e.handle().ExecContext(e.ctx(), text); err != nil {
			e.Fatal(err)
		}
	}
	return c
}

// add reads the number under LockTx, waits a moment and writes the next one.
func (c *counter) add(l *sqllock.Locker) error {
	tx, err := c.e.handle().BeginTx(context.Background(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	ctx, cancel := context.WithTimeout(context.Background(), timeLimit)
	defer cancel()
	if _, err := l.LockTx(ctx, tx, c.name); err != nil {
		return err
	}
	var n int
	if err := tx.QueryRow(`SELECT n FROM ` + c.table).Scan(&n); err != nil {
		return err
	}
	time.Sleep(time.Millisecond)
	if _, err := tx.Exec(fmt.Sprintf(`UPDATE %s SET n = %d`, c.table, n+1)); err != nil {
		return err
	}
	return tx.Commit()
}

// testTxPool has transactions of the application use up the pool.
func testTxPool(e *env) {
	const conns = 3 // one is the Locker's
	db, _ := e.open(e.source(), conns)
	l, other := e.lockerOn(db, &Options{TTL: long}), e.locker(&Options{TTL: long})
	names := []string{e.used(l, "one"), e.used(l, "two")}
	var txs []*sql.Tx
	for range names {
		tx, err := db.BeginTx(e.ctx(), nil)
		if err != nil {
			e.Fatal(err)
		}
		txs = append(txs, tx)
		e.Cleanup(func() { _ = tx.Rollback() })
	}
	if n := db.Stats().InUse; n != conns {
		e.Fatalf("%d connections are in use", n)
	}
	start := time.Now()
	for i, tx := range txs {
		e.inTx("LockTx", l, tx, names[i])
		e.wantHeld(other, names[i])
	}
	e.wantHeldTx("TryLockTx", l, txs[0], names[1])
	if took := time.Since(start); took > timeLimit/4 {
		e.Errorf("it took %v", took)
	}
	for _, tx := range txs {
		e.commit(tx)
	}
}

// testTxKeptDies has transactions use up the pool, and many more wait for it, when the
// Locker finds that the connection that it keeps has died.
func testTxKeptDies(e *env) {
	e.fresh()
	const conns, callers, soon = 3, 100, 10 * time.Second
	db, l, txs := e.keptConnDies(conns)
	txs = append(txs, make([]*sql.Tx, callers-len(txs))...) // the others begin when they can
	ctx, cancel := context.WithTimeout(context.Background(), timeLimit)
	defer cancel()
	locked, start := make(chan error, callers), make(chan struct{})
	for i := range callers {
		name, tx := e.name("k"), txs[i]
		go func() {
			if tx != nil {
				<-start
			}
			locked <- lockedTx(ctx, db, l, tx, name)
		}()
	}
	e.eventually(timeLimit, "all others wait for the pool", func() bool { return db.Stats().WaitCount >= callers-conns+1 })
	close(start)
	began := time.Now()
	for i := range callers {
		if err := receiveWithin(e, locked, timeLimit, "a transaction gets its name"); err != nil {
			e.Fatal(err)
		}
		if took := time.Since(began); i == 0 && took > soon+slack() {
			e.Errorf("no transaction got a name for %v", took)
		}
	}
	if n := db.Stats().InUse; n != e.keeps(0) {
		e.Errorf("%d connections are in use", n)
	}
	if err := l.Close(e.ctx()); err != nil {
		e.Errorf("Close: %v", err)
	}
	if n := db.Stats().InUse; n != 0 {
		e.Errorf("%d connections are in use after Close", n)
	}
}

// keptConnDies ends the sessions of a Locker in a pool of conns connections. It returns
// as many transactions as use up the pool beside the connection that the Locker keeps.
func (e *env) keptConnDies(conns int) (db *sql.DB, l *sqllock.Locker, txs []*sql.Tx) {
	e.Helper()
	db, _ = e.open(e.source(), conns)
	l = e.looseLocker(db, &Options{TTL: long})
	e.kill()
	db.SetMaxIdleConns(-1) // what is idle is dead
	db.SetMaxIdleConns(conns)
	for range conns - 1 {
		tx, err := db.BeginTx(e.ctx(), nil)
		if err != nil {
			e.Fatal(err)
		}
		txs = append(txs, tx)
	}
	if n := db.Stats().InUse; n != conns {
		e.Fatalf("%d connections are in use", n)
	}
	return db, l, txs
}

// lockedTx locks a name in tx or, as often as the pool is exhausted, in a new
// transaction.
func lockedTx(ctx context.Context, db *sql.DB, l *sqllock.Locker, tx *sql.Tx, name string) (err error) {
	for {
		if tx == nil {
			if tx, err = db.BeginTx(ctx, nil); err != nil {
				return err
			}
		}
		if _, err = l.LockTx(ctx, tx, name); err == nil {
			return tx.Commit()
		}
		_ = tx.Rollback()
		if !errors.Is(err, sqllock.ErrPoolExhausted) {
			return err
		}
		tx = nil
	}
}

func testTxMinimumTerm(e *env) {
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	minHold := e.ttl(2 * time.Second)
	name := e.name("k")
	start := time.Now() // before the grant
	lease := e.lock(l, name, sqllock.MinHold(minHold))
	e.unlock(lease)
	tx := e.begin(sql.LevelDefault)
	e.wantHeldTx("TryLockTx", other, tx, name)
	e.rollback(tx)
	tx = e.begin(sql.LevelDefault)
	token := e.inTx("LockTx", other, tx, name)
	if took := time.Since(start); took < minHold {
		e.Errorf("a transaction got the name after %v, before %v were over", took, minHold)
	}
	if token <= lease.Token() {
		e.Errorf("token %d follows token %d", token, lease.Token())
	}
	e.commit(tx)
	e.unlock(e.try(l, name))
}

func testTxClose(e *env) {
	book := e.ledger()
	l, other := e.looseLocker(e.handle(), &Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	tx := e.begin(sql.LevelDefault)
	e.inTx("LockTx", l, tx, name)
	if err := l.Close(e.ctx()); err != nil {
		e.Errorf("Close: %v", err)
	}
	for call, f := range txCalls {
		_, err := f(l, e.ctx(), tx, e.name("k"))
		e.wantError(call+" of a closed Locker", err, sqllock.ErrClosed)
	}
	e.wantHeld(other, name)
	book.write(tx, "it goes on")
	e.commit(tx)
	book.want("it goes on;")
	e.unlock(e.try(other, name))
}

func testTxRefused(e *env) {
	l := e.locker(&Options{TTL: long})
	foreign, _ := e.open(e.h.Fresh(e.T), poolSize)
	there := e.lockerOn(foreign, &Options{TTL: long})
	finished := e.begin(sql.LevelDefault)
	e.commit(finished)
	for call, f := range txCalls {
		name := e.name(call)
		_, err := f(l, e.ctx(), nil, name)
		e.wantError(call+" in none", err, sqllock.ErrInvalidOption)
		start := time.Now()
		_, err = f(l, e.ctx(), finished, name)
		if err == nil || errors.Is(err, sqllock.ErrHeld) || errors.Is(err, context.DeadlineExceeded) || time.Since(start) > timeLimit/2 {
			e.Errorf("%s in a finished transaction: %v after %v", call, err, time.Since(start))
		}
		tx, err := foreign.BeginTx(e.ctx(), nil)
		if err != nil {
			e.Fatal(err)
		}
		token, err := f(l, e.ctx(), tx, name)
		if token != 0 {
			e.Errorf("%s in a transaction of another database gave token %d", call, token)
		}
		e.wantError(call+" in a transaction of another database", err, sqllock.ErrInvalidOption)
		e.unlock(e.try(l, name))
		e.unlock(e.try(there, name)) // while that transaction is open
		_ = tx.Rollback()

		tx = e.begin(sql.LevelDefault)
		_, err = f(l, e.ctx(), tx, "")
		e.wantError(call+" of no name", err, sqllock.ErrInvalidName)
		e.inTx(call, l, tx, name) // what was refused has not hurt it
		e.commit(tx)
	}
}
