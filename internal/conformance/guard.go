package conformance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/sqllock/sqllock"
)

var guardPromises = []promise{
	{sentence: "InTx commits what was written under the lease, and nothing after an error or a panic", test: testInTx},
	{sentence: "a former holder writes nothing with Guard, and would without it", test: testGuardFenced},
	{sentence: "a Guard after a ForceUnlock is fenced, and the lease is lost because it was revoked", test: testGuardRevoked},
	{sentence: "a Guard after a reaper has cleaned up is fenced", test: testGuardReaped},
	{sentence: "after Guard nobody becomes holder before the transaction ends: no waiter, no reaper, no force", test: testGuardPins, needs: needTable},
	{sentence: "a transaction that guards a lease does not keep it from being renewed", test: testGuardRenewal, needs: needRowLocks},
	{sentence: "a transaction that guards a lease does not keep its session from being renewed", test: testGuardRenewal, needs: needSessions},
	{sentence: "Unlock of a lease that a transaction guards is ErrGuarded, and the name is free soon after the transaction", test: testUnlockGuarded},
	{sentence: "Close waits until the name of a lease that was unlocked while it was guarded is free", test: testCloseGuarded},
	{sentence: "Close with a context that has ended does not wait for a transaction that guards", test: testCloseGuardedInTime},
	{sentence: "what a guarding transaction locks is passed by no request that comes late", test: testGuardLatePacket, needs: needNetwork},
	{sentence: "Do that leaves a guarding transaction open frees the name after it", test: testDoGuarded},
	{sentence: "Guard holds in every isolation level, after a renewal and after a new holder", test: testGuardIsolation, needs: needTable | needRowLocks},
	{sentence: "Guard holds in every isolation level, after a renewal and after the end of the session", test: testGuardSessionIsolation, needs: needSessions | needNetwork},
	{sentence: "a Guard outlives the session of its lease: nobody becomes holder before the transaction ends", test: testGuardOutlivesSession, needs: needSessions | needNetwork},
	{sentence: "a holder that is paused between its last look and its write is fenced by Guard, and would not be without it", test: testGuardPause, needs: needSignals | needSilenceEnds},
	{sentence: "a transaction of another database is refused", test: testGuardForeign},
	{sentence: "Guard of what is over is an error", test: testGuardOver},
}

// ledger is a table of the application: it has what was committed.
type ledger struct {
	e     *env
	table string
}

func (e *env) ledger() ledger {
	e.Helper()
	l := ledger{e, fmt.Sprintf("ledger_%s_%d", run, serial.Add(1))}
	if _, err := e.handle().ExecContext(e.ctx(), `CREATE TABLE `+l.table+` (entry VARCHAR(50))`); err != nil {
		e.Fatal(err)
	}
	return l
}

func (l ledger) write(tx *sql.Tx, entry string) {
	l.e.Helper()
	if _, err := tx.Exec(`INSERT INTO ` + l.table + ` VALUES ('` + entry + `')`); err != nil {
		l.e.Errorf("write %q: %v", entry, err)
	}
}

func (l ledger) want(entries string) {
	l.e.Helper()
	rows, err := l.e.handle().QueryContext(l.e.ctx(), `SELECT entry FROM `+l.table+` ORDER BY entry`)
	if err != nil {
		l.e.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	got := ""
	for rows.Next() {
		var entry string
		if err := rows.Scan(&entry); err != nil {
			l.e.Fatal(err)
		}
		got += entry + ";"
	}
	if got != entries || rows.Err() != nil {
		l.e.Errorf("the ledger has %q, want %q: %v", got, entries, rows.Err())
	}
}

func (e *env) begin(level sql.IsolationLevel) *sql.Tx {
	e.Helper()
	tx, err := e.handle().BeginTx(context.Background(), &sql.TxOptions{Isolation: level})
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// beginElsewhere begins a transaction of another database than that of the Lockers.
func (e *env) beginElsewhere() *sql.Tx {
	e.Helper()
	elsewhere, _ := e.open(e.h.Fresh(e.T), poolSize)
	e.fresh()
	tx, err := elsewhere.BeginTx(context.Background(), nil)
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func (e *env) guard(lease *sqllock.Lease, tx *sql.Tx) {
	e.Helper()
	if err := lease.Guard(e.ctx(), tx); err != nil {
		e.Fatalf("Guard: %v", err)
	}
}

func testInTx(e *env) {
	book := e.ledger()
	l := e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	failure := errors.New("a failure of the application")
	err := lease.InTx(e.ctx(), nil, func(_ context.Context, tx *sql.Tx) error {
		book.write(tx, "committed")
		return nil
	})
	if err != nil {
		e.Errorf("InTx: %v", err)
	}
	err = lease.InTx(e.ctx(), nil, func(_ context.Context, tx *sql.Tx) error {
		book.write(tx, "before an error")
		return failure
	})
	e.wantError("InTx whose function fails", err, failure)
	func() {
		defer func() { _ = recover() }()
		_ = lease.InTx(e.ctx(), nil, func(_ context.Context, tx *sql.Tx) error {
			book.write(tx, "before a panic")
			panic("of the application")
		})
	}()
	e.unlock(lease)
	err = lease.InTx(e.ctx(), nil, func(context.Context, *sql.Tx) error {
		e.Error("the function ran without the lease")
		return nil
	})
	e.wantError("InTx of an unlocked lease", err, sqllock.ErrNotHeld)
	book.want("committed;")
}

// succeeded gives the name of a lease of a test that is losable to another Locker.
// Its holder does not know, unless it has felt the end of its session.
func (e *env) succeeded(lease *sqllock.Lease, other *sqllock.Locker) *sqllock.Lease {
	e.Helper()
	e.over(lease)
	next := e.lock(other, lease.Name())
	if !e.inSessions() {
		e.live(lease)
	}
	return next
}

func testGuardFenced(e *env) {
	e.losable()
	book := e.ledger()
	l, other := e.locker(&Options{TTL: sqllock.MaxTTL}), e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	next := e.succeeded(lease, other)

	tx := e.begin(sql.LevelDefault) // the negative control
	book.write(tx, "unguarded")
	if err := tx.Commit(); err != nil {
		e.Errorf("Commit: %v", err)
	}

	tx = e.begin(sql.LevelDefault)
	e.refusedGuard("Guard of the former holder", lease.Guard(e.ctx(), tx))
	_ = tx.Rollback()
	if e.inSessions() { // its end may be noticed by the Guard, and reported a moment later
		receive(e, lease.Context().Done(), "the former holder hears of it")
	}
	e.wantLost("the context of the former holder", context.Cause(lease.Context()))
	err := lease.InTx(e.ctx(), nil, func(_ context.Context, tx *sql.Tx) error {
		book.write(tx, "guarded")
		return nil
	})
	e.wantError("InTx of the former holder", err, sqllock.ErrLost)
	_ = lease.Unlock(e.ctx())
	book.want("unguarded;")
	e.live(next)
	e.unlock(next)
}

func testGuardRevoked(e *env) {
	l, operator := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"), noted)
	if _, err := operator.ForceUnlock(e.ctx(), lease.Name()); err != nil {
		e.Fatalf("ForceUnlock: %v", err)
	}
	e.refusedGuard("Guard", lease.Guard(e.ctx(), e.begin(sql.LevelDefault)))
	if lost := e.wantLost("Unlock", lease.Unlock(e.ctx())); lost.Reason != sqllock.LostRevoked {
		e.Errorf("the reason is: %s", lost.Reason)
	}
}

func testGuardReaped(e *env) {
	e.fresh()
	l, other := e.locker(&Options{TTL: sqllock.MaxTTL}), e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"), noted)
	e.over(lease)
	e.eventually(timeLimit, "the crash is reported", func() bool { // a session may take a while to end
		rep, err := other.Reaper().Reap(e.ctx())
		if err != nil {
			e.Fatalf("Reap = %+v, %v", rep, err)
		}
		return len(rep.Crashed) == 1
	})
	tx := e.begin(sql.LevelDefault)
	e.refusedGuard("Guard", lease.Guard(e.ctx(), tx))
	_ = tx.Rollback()
	e.wantLost("Unlock", lease.Unlock(e.ctx()))
	next := e.lock(other, lease.Name())
	if next.Token() <= lease.Token() {
		e.Errorf("token %d follows token %d", next.Token(), lease.Token())
	}
	e.unlock(next)
}

func testGuardPins(e *env) {
	e.fresh()
	book := e.ledger()
	l, other := e.locker(&Options{TTL: sqllock.MaxTTL}), e.locker(&Options{TTL: long, RetryMax: 20 * time.Millisecond})
	lease := e.lock(l, e.name("k"))
	e.expire(lease.Name()) // it is anybody's now
	tx := e.begin(sql.LevelDefault)
	e.guard(lease, tx)

	waiting := locking(e.ctx(), other, lease.Name())
	forced := make(chan error, 1)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	go func() {
		_, err := other.ForceUnlock(ctx, lease.Name())
		forced <- err
	}()
	reaped := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		defer cancel()
		_, err := other.Reaper().Reap(ctx)
		reaped <- err
	}()
	time.Sleep(300 * time.Millisecond)
	silent(e, waiting, "Lock returned past a guard")
	if err := receive(e, forced, "ForceUnlock gives up"); !errors.Is(err, context.DeadlineExceeded) {
		e.Errorf("ForceUnlock past a guard: %v", err)
	}
	if err := receive(e, reaped, "Reap gives up"); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		e.Errorf("Reap: %v", err)
	}
	e.succeededAfter(tx, book, lease, waiting)
}

// succeededAfter has a transaction write that guards a lease which was lost, and then
// commit: until then nobody gets the name.
func (e *env) succeededAfter(tx *sql.Tx, book ledger, lease *sqllock.Lease, waiting <-chan result) {
	e.Helper()
	silent(e, waiting, "Lock returned past a guard")
	book.write(tx, "guarded")
	if err := tx.Commit(); err != nil {
		e.Errorf("Commit: %v", err)
	}
	next := e.granted(waiting)
	if next.Token() <= lease.Token() {
		e.Errorf("token %d follows token %d", next.Token(), lease.Token())
	}
	e.wantLost("Unlock of the former holder", lease.Unlock(e.ctx()))
	book.want("guarded;")
	e.unlock(next)
}

func testGuardRenewal(e *env) {
	ttl := e.ttl(2 * time.Second)
	l := e.locker(&Options{TTL: ttl})
	lease, beside := e.lock(l, e.name("k")), e.lock(l, e.name("beside"))
	tx := e.begin(sql.LevelDefault)
	e.guard(lease, tx)
	for end := time.Now().Add(2 * ttl); time.Now().Before(end); time.Sleep(ttl / 20) {
		e.live(lease)
		e.live(beside)
	}
	if err := tx.Commit(); err != nil {
		e.Errorf("Commit: %v", err)
	}
	e.unlock(lease)
	e.unlock(beside)
}

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
		h.token = h.lock(h.name).Token
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
