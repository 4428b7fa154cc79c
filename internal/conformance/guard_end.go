package conformance

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/sqllock/sqllock"
)

// longTimeout has options for an answer that has to come, as ErrGuarded or ErrHeld. On SQLite, where
// whoever writes locks the whole database, a busy machine may use up the default time before that.
func longTimeout(ttl time.Duration) *Options { return &Options{TTL: ttl, StatementTimeout: long / 3} }

func testUnlockGuarded(e *env) {
	ttl := e.ttl(2 * time.Second)
	var c crashes
	l, other := e.locker(longTimeout(ttl)), e.locker(&Options{TTL: long, RetryMax: 20 * time.Millisecond, Hooks: c.hooks()})
	lease := e.lock(l, e.name("k"))
	tx := e.begin(sql.LevelDefault)
	e.guard(lease, tx)
	e.wantError("Unlock while a transaction guards", lease.Unlock(e.ctx()), sqllock.ErrGuarded)
	e.wantError("a second Unlock", lease.Unlock(e.ctx()), sqllock.ErrNotHeld)
	e.wantError("the context", context.Cause(lease.Context()), sqllock.ErrUnlocked)
	waiting := locking(e.ctx(), other, lease.Name())
	time.Sleep(ttl + ttl/4)
	silent(e, waiting, "Lock returned past a guard")
	if err := tx.Commit(); err != nil {
		e.Errorf("Commit: %v", err)
	}
	e.unlock(e.granted(waiting))
	if reported := c.of(lease.Name()); len(reported) > 0 && !e.locksFile() { // where a transaction that guards keeps renewals out
		e.Errorf("a holder who has unlocked is reported as crashed: %+v", reported)
	}

	lease = e.lock(e.locker(&Options{TTL: time.Hour}), e.name("for long")) // which expires for nobody
	tx = e.begin(sql.LevelDefault)
	e.guard(lease, tx)
	e.wantError("Unlock while a transaction guards", lease.Unlock(e.ctx()), sqllock.ErrGuarded)
	time.Sleep(time.Second)
	_ = tx.Rollback()
	e.wantFree(other, lease.Name(), 5*time.Second)

	lease = e.lock(l, e.name("rolled back"))
	tx = e.begin(sql.LevelDefault)
	e.guard(lease, tx)
	_ = tx.Rollback()
	e.unlock(lease)
	e.unlock(e.try(other, lease.Name()))
}

func testCloseGuarded(e *env) {
	l, other := e.looseLocker(e.handle(), &Options{TTL: time.Hour}), e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	tx := e.begin(sql.LevelDefault)
	e.guard(lease, tx)
	e.wantError("Unlock while a transaction guards", lease.Unlock(e.ctx()), sqllock.ErrGuarded)
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	closed := make(chan error, 1)
	go func() { closed <- l.Close(e.ctx()) }()
	select {
	case err := <-closed:
		e.Errorf("Close returned %v while the name is not free", err)
	case <-ctx.Done():
	}
	_ = tx.Rollback()
	if err := receive(e, closed, "Close returns"); err != nil {
		e.Errorf("Close: %v", err)
	}
	e.unlock(e.try(other, lease.Name()))
}

func testCloseGuardedInTime(e *env) {
	ttl := e.ttl(2 * time.Second)
	l, other := e.looseLocker(e.handle(), &Options{TTL: ttl, StatementTimeout: 2 * time.Second}), e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	tx := e.begin(sql.LevelDefault)
	e.guard(lease, tx)
	if lease.Unlock(e.ctx()) == nil { // on a busy machine the statement may time out, which another promise is about
		e.Errorf("Unlock did not wait for a transaction that guards")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 0)
	defer cancel()
	closed := make(chan error, 1)
	go func() { closed <- l.Close(ctx) }()
	e.wantError("Close while a transaction guards", receive(e, closed, "Close returns"), context.DeadlineExceeded)
	if err := tx.Rollback(); err != nil {
		e.Errorf("Rollback: %v", err)
	}
	e.wantFree(other, lease.Name(), ttl+2*time.Second)
}

func testDoGuarded(e *env) {
	l, other := e.locker(longTimeout(e.ttl(2*time.Second))), e.locker(&Options{TTL: long})
	name := e.name("k")
	tx := e.begin(sql.LevelDefault)
	err := l.Do(e.ctx(), name, func(ctx context.Context, lease *sqllock.Lease) error { return lease.Guard(ctx, tx) })
	e.wantError("Do", err, sqllock.ErrGuarded)
	waiting := locking(e.ctx(), other, name)
	time.Sleep(e.ttl(2*time.Second) + 300*time.Millisecond)
	silent(e, waiting, "Lock returned past a guard")
	_ = tx.Rollback()
	e.unlock(e.granted(waiting))
}

// testGuardIsolation has a transaction read before something happens to the lease
// that it guards afterwards.
func testGuardIsolation(e *env) {
	book := e.ledger()
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		renewing, notRenewing := e.locker(&Options{TTL: e.ttl(2 * time.Second)}), e.locker(&Options{TTL: sqllock.MaxTTL})
		other := e.locker(&Options{TTL: time.Minute})

		lease := e.lock(renewing, e.name("renewed"))
		e.guardAfterRenewal(e.beginAndRead(book, level), lease, level)
		for what, reap := range map[string]bool{"a reaper and a new holder": true, "a new holder": false} {
			lease = e.lock(notRenewing, e.name("taken over"))
			tx := e.beginAndRead(book, level)
			e.expire(lease.Name())
			if reap {
				if _, err := other.Reaper().Reap(e.ctx()); err != nil {
					e.Errorf("Reap: %v", err)
				}
			}
			next := e.lock(other, lease.Name())
			err := lease.Guard(e.ctx(), tx)
			if err == nil {
				e.Errorf("%s: after %s Guard let the former holder write", level, what)
			}
			_ = tx.Rollback()
			_ = lease.Unlock(e.ctx())
			e.live(next)
			e.unlock(next)
		}
		lease = e.lock(notRenewing, e.name("unlocked and locked again")) // by Unlocks of guarded leases
		e.unlockedIsFenced(e.beginAndRead(book, level), lease, other, level)
	}
}

// beginAndRead begins a transaction that has read, and so may have a snapshot.
func (e *env) beginAndRead(book ledger, level sql.IsolationLevel) *sql.Tx {
	e.Helper()
	tx := e.begin(level)
	var n int
	if err := tx.QueryRow(`SELECT count(*) FROM ` + book.table).Scan(&n); err != nil {
		e.Fatal(err)
	}
	return tx
}

// guardAfterRenewal checks that a lease can be guarded in a transaction that began
// before its last renewal.
func (e *env) guardAfterRenewal(tx *sql.Tx, lease *sqllock.Lease, level sql.IsolationLevel) {
	e.Helper()
	before := e.row(lease.Name()).ExpiresAt
	e.eventually(timeLimit, "the lease is renewed", func() bool { return e.row(lease.Name()).ExpiresAt > before })
	if err := lease.Guard(e.ctx(), tx); err != nil {
		e.Errorf("%s: Guard after a renewal: %v", level, err)
	}
	_ = tx.Rollback()
	e.unlock(lease)
}

// unlockedIsFenced checks that a lease which was guarded, unlocked, and had by other
// since, cannot be guarded in a transaction that began before.
func (e *env) unlockedIsFenced(tx *sql.Tx, lease *sqllock.Lease, other *sqllock.Locker, level sql.IsolationLevel) {
	e.Helper()
	if err := lease.InTx(e.ctx(), nil, func(context.Context, *sql.Tx) error { return nil }); err != nil {
		e.Errorf("InTx: %v", err)
	}
	e.unlock(lease)
	e.unlock(e.lock(other, lease.Name()))
	if err := lease.Guard(e.ctx(), tx); err == nil {
		e.Errorf("%s: Guard of an unlocked lease", level)
	}
	_ = tx.Rollback()
}

func testGuardForeign(e *env) {
	tx := e.beginElsewhere()
	lease := e.lock(e.locker(&Options{TTL: long}), e.name("k"))
	e.wantError("Guard", lease.Guard(e.ctx(), tx), sqllock.ErrInvalidOption)
	e.live(lease)
	e.unlock(lease)
}

func testGuardOver(e *env) {
	l := e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	e.wantError("Guard without a transaction", lease.Guard(e.ctx(), nil), sqllock.ErrInvalidOption)
	tx := e.begin(sql.LevelDefault)
	_ = tx.Rollback()
	e.wantError("Guard in a finished transaction", lease.Guard(e.ctx(), tx), sql.ErrTxDone)
	e.live(lease)
	e.unlock(lease)
	e.wantError("Guard of an unlocked lease", lease.Guard(e.ctx(), e.begin(sql.LevelDefault)), sqllock.ErrNotHeld)
	if err := lease.Unlock(e.ctx()); !errors.Is(err, sqllock.ErrNotHeld) {
		e.Errorf("Unlock: %v", err)
	}
}

// testGuardLatePacket has the reply to a grant get lost. What cleans up after it
// must not pass a guard.
func testGuardLatePacket(e *env) {
	p, l := e.proxied(&Options{TTL: long, RetryMax: 50 * time.Millisecond})
	other := e.locker(&Options{TTL: long, RetryMax: 20 * time.Millisecond})
	e.eachRequest(l, func(name string, n int64) int64 {
		seen := requests(p, name, n, n, loseReply)
		lease := e.lock(l, name)
		before := seen.Load()
		p.OnUp(nil)
		tx := e.begin(sql.LevelDefault)
		e.guard(lease, tx)
		e.wantError("Unlock while a transaction guards", lease.Unlock(e.ctx()), sqllock.ErrGuarded)
		waiting := locking(e.ctx(), other, name)
		time.Sleep(200 * time.Millisecond)
		silent(e, waiting, "Lock returned past a guard")
		_ = tx.Rollback()
		e.unlock(e.granted(waiting))
		return before
	})
}
