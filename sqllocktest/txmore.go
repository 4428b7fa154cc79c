package sqllocktest

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/sqllock/sqllock"
)

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
	if took := time.Since(start); took > patience/4 {
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
	db, _ := e.open(e.source(), conns)
	l := e.looseLocker(db, &Options{TTL: long})
	e.kill()
	db.SetMaxIdleConns(-1) // what is idle is dead
	db.SetMaxIdleConns(conns)
	var txs []*sql.Tx
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
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	locked, start := make(chan error, callers), make(chan struct{})
	for i := range callers {
		name := e.name("k")
		var tx *sql.Tx
		if i < len(txs) {
			tx = txs[i]
		}
		go func() {
			if tx != nil {
				<-start
			}
			locked <- lockedTx(ctx, db, l, tx, name)
		}()
	}
	e.eventually(patience, "all others wait for the pool", func() bool { return db.Stats().WaitCount >= callers-conns+1 })
	close(start)
	began := time.Now()
	for i := range callers {
		if err := receiveWithin(e, locked, patience, "a transaction gets its name"); err != nil {
			e.Fatal(err)
		}
		if took := time.Since(began); i == 0 && took > soon {
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

func testTxMinHold(e *env) {
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
		if err == nil || errors.Is(err, sqllock.ErrHeld) || errors.Is(err, context.DeadlineExceeded) || time.Since(start) > patience/2 {
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
