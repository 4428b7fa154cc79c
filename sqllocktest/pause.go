package sqllocktest

import (
	"context"
	"errors"
	"time"

	"github.com/sqllock/sqllock"
)

// write does what a holder does, and stops this process between its last look at
// the lease and its write, until the parent lets it go on.
func (c *child) write(lease *sqllock.Lease, o order) answer {
	ctx := context.Background()
	tx, err := c.db.BeginTx(ctx, nil)
	if err != nil {
		return failure(err)
	}
	defer func() { _ = tx.Rollback() }()
	time.Sleep(time.Millisecond) // the processor is ours for some time from now on
	before := time.Now()
	if err := lease.Context().Err(); err != nil {
		return failure(err)
	}
	pauseSelf()
	for time.Since(before) < o.Gap { // where a pause does not begin at once
	}
	if o.Guard {
		if err := lease.Guard(ctx, tx); err != nil {
			a := failure(err)
			a.Lost = a.Lost || errors.Is(err, sqllock.ErrFenced)
			return a
		}
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO `+o.Table+` VALUES ('`+o.What+`')`); err != nil {
		return failure(err)
	}
	return failure(tx.Commit())
}

// testGuardPause has two holders do the same, one with a Guard and one without.
func testGuardPause(e *env) {
	book := e.ledger()
	ttl := e.ttl(2 * time.Second)
	l := e.locker(&Options{TTL: long})
	type holder struct {
		*process
		name  string
		token int64
	}
	holders := make(map[string]holder)
	for _, what := range []string{"guarded", "unguarded"} {
		h := holder{process: e.start(ttl, what), name: e.name(what)}
		h.token = h.hold(h.name).Token
		h.send(order{Do: "write", Name: h.name, What: what, Table: book.table, Guard: what == "guarded", Gap: ttl / 2})
		holders[what] = h
	}
	for what, h := range holders {
		next := e.lock(l, h.name) // so the holder has stopped
		if next.Token() <= h.token {
			e.Errorf("token %d follows token %d", next.Token(), h.token)
		}
		h.resume()
		a := h.read()
		if what == "guarded" && !a.Lost {
			e.Errorf("the holder that was paused wrote under a Guard: %+v", a)
		}
		if what == "unguarded" && a.Err != "" {
			e.Errorf("the holder that was paused could not write without a Guard either: %s", a.Err)
		}
		e.live(next)
		e.unlock(next)
	}
	book.want("unguarded;")
}
