package sqllocktest

import (
	"database/sql"
	"time"
)

// testGuardOutlivesSession breaks the connections of the holder, and of nobody
// else, while a transaction guards its lease.
func testGuardOutlivesSession(e *env) {
	book := e.ledger()
	p, l := e.proxied(&Options{TTL: long})
	other := e.locker(&Options{TTL: long, RetryMax: 20 * time.Millisecond})
	lease := e.lock(l, e.name("k"))
	tx := e.begin(sql.LevelDefault)
	e.guard(lease, tx)
	p.Reset()
	waiting := locking(e.ctx(), other, lease.Name())
	receive(e, lease.Context().Done(), "the holder hears of the end of its session")
	time.Sleep(500 * time.Millisecond)
	e.succeededAfter(tx, book, lease, waiting)
}

// testGuardSessionIsolation has a transaction read before something happens to the
// lease that it guards afterwards.
func testGuardSessionIsolation(e *env) {
	book := e.ledger()
	ttl := e.ttl(2 * time.Second)
	p, l := e.proxied(&Options{TTL: ttl})
	other := e.locker(&Options{TTL: long})
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		begin := func() *sql.Tx {
			e.Helper()
			tx := e.begin(level)
			var n int
			if err := tx.QueryRow(`SELECT count(*) FROM ` + book.table).Scan(&n); err != nil {
				e.Fatal(err)
			}
			return tx
		}
		lease := e.lock(l, e.name("renewed"))
		tx := begin()
		time.Sleep(ttl)
		if err := lease.Guard(e.ctx(), tx); err != nil {
			e.Errorf("%s: Guard after a renewal: %v", level, err)
		}
		_ = tx.Rollback()

		tx = begin()
		p.Reset()
		next := e.lock(other, lease.Name())
		if err := lease.Guard(e.ctx(), tx); err == nil {
			e.Errorf("%s: after a new holder Guard let the former one write", level)
		}
		_ = tx.Rollback()
		_ = lease.Unlock(e.ctx())
		e.live(next)
		e.unlock(next)

		lease = e.lock(l, e.name("unlocked and locked again")) // by Unlocks of guarded leases
		tx = begin()
		e.unlockedIsFenced(tx, lease, other, level)
	}
}
