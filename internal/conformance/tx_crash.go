package conformance

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/sqllock/sqllock"
)

var txCrashPromises = []promise{
	{sentence: "a process that is killed in its transaction frees the name, and its token is given out no more", test: testTxKilled, needs: needTransactions},
	{sentence: "a crash of the server takes no token back", test: testTokensServerCrash, needs: needServer},
}

// lockTx makes the child begin a transaction, lock in it and leave it open.
func (c *child) lockTx(name string) answer {
	tx, err := c.db.BeginTx(context.Background(), nil)
	if err != nil {
		return failure(err)
	}
	token, err := c.locks.LockTx(context.Background(), tx, name)
	if err != nil {
		return failure(err)
	}
	return answer{Token: token}
}

func testTxKilled(e *env) {
	l := e.locker(&Options{TTL: long, RetryMax: 50 * time.Millisecond})
	name := e.name("k")
	var last int64
	for i := range 3 {
		p := e.start(long, fmt.Sprint("child ", i))
		a := p.do(order{Do: "locktx", Name: name})
		if a.Err != "" || a.Token <= last {
			e.Fatalf("LockTx in a child after token %d: %+v", last, a)
		}
		last = a.Token
		e.wantHeld(l, name)
		if err := p.cmd.Process.Kill(); err != nil {
			e.Fatal(err)
		}
		killed := time.Now()
		if i == 1 { // the next one is another child
			e.eventually(timeLimit, "the name is free", func() bool {
				tx := e.begin(sql.LevelDefault)
				defer func() { _ = tx.Rollback() }()
				token, err := l.TryLockTx(e.ctx(), tx, name)
				if err == nil && token <= last {
					e.Errorf("token %d follows token %d", token, last)
				}
				last = max(last, token)
				return err == nil
			})
			continue
		}
		lease := e.lock(l, name)
		if took := time.Since(killed); took > timeLimit/2 { // the TTL is long: the server has seen the connection close
			e.Errorf("the name was free %v after the kill", took)
		}
		if lease.Token() <= last {
			e.Errorf("token %d follows token %d", lease.Token(), last)
		}
		last = lease.Token()
		e.unlock(lease)
	}
}

// testTokensServerCrash kills the server right after a token was handed out, in
// every way in which one is.
func testTokensServerCrash(e *env) {
	dsn, stop, start := e.h.Server.Start(e.T)
	e.dsn = dsn
	name := e.name("k")
	var last int64
	rises := func(what string, token int64) {
		e.Helper()
		if token <= last {
			e.Errorf("%s: token %d follows token %d", what, token, last)
		}
		last = max(last, token)
	}
	for what, f := range e.waitingCalls(name) {
		db, _ := e.open(dsn, poolSize)
		l := e.looseLocker(db, &Options{TTL: e.ttl(2 * time.Second)})
		rises(what+" before a crash", f(l, db))
		stop()
		e.abandon(l)
		_ = db.Close()
		start()
		db, _ = e.open(dsn, poolSize)
		l = e.looseLocker(db, &Options{TTL: e.ttl(2 * time.Second), RetryMax: 50 * time.Millisecond})
		for range 3 { // more than one number may have been lost
			lease := e.lock(l, name)
			rises("after a crash with "+what, lease.Token())
			e.unlock(lease)
		}
		if err := l.Close(e.ctx()); err != nil {
			e.Errorf("Close: %v", err)
		}
		_ = db.Close()
	}
}

// waitingCalls are the calls that wait for a name, and return its token.
func (e *env) waitingCalls(name string) map[string]func(l *sqllock.Locker, db *sql.DB) (token int64) {
	calls := map[string]func(l *sqllock.Locker, db *sql.DB) int64{
		"Lock":  func(l *sqllock.Locker, _ *sql.DB) int64 { return e.lock(l, name).Token() },
		"RLock": func(l *sqllock.Locker, _ *sql.DB) int64 { return e.rlock(l, name).Token() },
	}
	for call := range txCalls {
		if !e.h.Transactions || strings.HasPrefix(call, "Try") {
			continue
		}
		calls[call] = func(l *sqllock.Locker, db *sql.DB) int64 {
			tx, err := db.BeginTx(context.Background(), nil)
			if err != nil {
				e.Fatal(err)
			}
			e.Cleanup(func() { _ = tx.Rollback() })
			return e.inTx(call, l, tx, name)
		}
	}
	return calls
}
