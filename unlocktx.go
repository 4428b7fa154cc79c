package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/driver"
)

var _ driver.Unlockable = (*Lease)(nil)

// UnlockTx ends the term in a transaction of the application: the name becomes free in the
// moment in which tx commits, together with what tx has written, and stays held if tx is
// rolled back. Nobody gets the name before tx has ended. Make UnlockTx the last statement of
// tx. It holds the row of the name until tx ends, so that renewals wait. It also does what
// [Lease.Guard] does: what tx has written before it is written by the holder.
//
// The lease itself goes on, and you must call [Lease.Unlock] when tx has ended. Unlock
// returns nil if tx was committed; if tx was rolled back, or nobody knows, Unlock frees the
// name. It also hands the name to the next waiter. Without it, the next waiter in unique
// mode gets the name within 1.7 s after the commit, or within a third of its TTL if that is
// less, which counts as 170 ms at least.
//
// UnlockTx does not end the lease's context, on which tx may depend. After the commit, the
// context ends with cause [ErrUnlocked]: by Unlock, or earlier when a renewal finds that the
// term is over. Until one of them, a Lock with the lease's context does not re-enter it. If
// tx is rolled back, the next renewal makes the lease what it was before.
//
// UnlockTx is for exclusive leases in unique mode. It returns
//
//   - what [Lease.Guard] returns;
//   - [ErrGuarded] if another transaction guards the lease or has locked the row of the
//     name. UnlockTx waits for that for a second at most;
//   - [ErrUnsupported] also in the modes for update and advisory, and of a permit;
//   - [ErrInvalidOption] also if the lease was re-entered and not unlocked as often.
//
// After any error you must roll back tx. On Postgres, and on MariaDB from version 11.6 on, a
// renewal since the first statement of a REPEATABLE READ or SERIALIZABLE transaction makes
// UnlockTx fail with a serialization failure. On SQLite a read before it has the same effect
// if another connection has written since. Repeat the transaction then.
func (l *Lease) UnlockTx(ctx context.Context, tx *sql.Tx) error {
	if tx == nil {
		return driver.NilError("*sql.Tx")
	}
	return l.UnlockTxBy(ctx, guardIn(tx))
}

// UnlockInTx is [Lease.InTx] and Unlock in one: it begins a transaction on the Locker's
// handle, guards the lease in it, calls fn, ends the term as [Lease.UnlockTx] does, commits,
// and wakes the next waiter. So the term ends in the moment in which the database has what
// fn has written. If nobody waits, no statement follows the commit: MySQL, MariaDB and SQLite
// flush once less than with InTx and then Unlock. Postgres has one transaction less; it does
// not wait for the flush of an Unlock in any case.
//
// If UnlockInTx returns nil, the lease is unlocked, and the next Unlock, such as that of a
// defer or of [Locker.Do], does nothing and returns nil. After an error you must still call
// Unlock. It returns nil if only the reply to the commit was lost and the database has
// committed. The errors are those of InTx and of UnlockTx.
func (l *Lease) UnlockInTx(ctx context.Context, opts *sql.TxOptions, fn func(ctx context.Context, tx *sql.Tx) error) error {
	if !l.isZero() {
		if err := l.term.endable(l); err != nil {
			return err
		}
	}
	return l.inTx(ctx, opts, fn, func(ctx context.Context, tx *sql.Tx) error {
		err := l.UnlockInTxBy(ctx, guardIn(tx), func(context.Context) error { return tx.Commit() })
		if err != nil {
			return l.explain(ctx, err)
		}
		return nil
	})
}

// UnlockTxBy is [Lease.UnlockTx] by f. It is for packages that know other kinds of
// transactions, such as lockpg, and implements [driver.Unlockable].
func (l *Lease) UnlockTxBy(ctx context.Context, f driver.GuardFunc) error {
	if f == nil {
		return driver.NilError("function")
	}
	if err := driver.CheckContext(ctx); err != nil {
		return err
	}
	if l.isZero() {
		return ErrNotHeld
	}
	_, err := l.term.endBy(ctx, l, f, false)
	return err
}

// UnlockInTxBy is the end of [Lease.UnlockInTx] in a transaction that f knows, that guards
// the lease already, and that commit commits. It implements [driver.Unlockable].
func (l *Lease) UnlockInTxBy(ctx context.Context, f driver.GuardFunc, commit func(ctx context.Context) error) error {
	if f == nil || commit == nil {
		return driver.NilError("function")
	}
	if err := driver.CheckContext(ctx); err != nil {
		return err
	}
	if l.isZero() {
		return ErrNotHeld
	}
	awaited, err := l.term.endBy(ctx, l, f, true)
	if err != nil {
		return err
	}
	err = commit(ctx)
	l.term.committed()
	if err != nil {
		return l.commitError(ctx, err)
	}
	l.term.locker.unlockEnded(ctx, l, awaited)
	return nil
}

// endBy ends the term by f. It reports whether somebody waits for the name. commits says that
// the caller commits at once, and then calls committed.
func (t *term) endBy(ctx context.Context, l *Lease, f driver.GuardFunc, commits bool) (awaited bool, err error) {
	if err := t.endable(l); err != nil {
		return false, err
	}
	status, err := t.locker.endBy(ctx, t, f, commits)
	switch {
	case err != nil:
		return false, fmt.Errorf("sqllock: end %q in a transaction: %w", t.name, err)
	case status == driver.Guarded, status == driver.Awaited:
		return status == driver.Awaited, t.leave(l, commits)
	case status == driver.PassedOver:
		return false, fmt.Errorf("%w: another transaction guards %q or has locked its row", ErrGuarded, t.name)
	case status == driver.Foreign:
		return false, fmt.Errorf("%w: end %q: the transaction is one of another database", ErrInvalidOption, t.name)
	}
	return false, t.fencedError(ctx)
}

// endTimeout is how long UnlockTx tries to end a term whose row is locked. Those who wait
// for the name, and renewals, lock the row for a moment each.
const endTimeout = time.Second

// endBy has f try to end a term until none of them is in the way.
func (l *Locker) endBy(ctx context.Context, t *term, f driver.GuardFunc, guarded bool) (driver.GuardStatus, error) {
	req := driver.GuardRequest{Name: t.name, Acq: t.acq, Version: t.token, Ends: true, Guarded: guarded, MinHold: t.minHold}
	until := l.clock.Now() + endTimeout
	for pause := (&backoff{time.Millisecond, 20 * time.Millisecond, l.cfg.spread}); ; {
		status, err := l.mode.Guard(ctx, f, req)
		if err != nil || status != driver.PassedOver || l.clock.Now() >= until || sleep(ctx, pause.next()) != nil {
			return status, err
		}
	}
}

// unlockEnded unlocks a lease whose term a committed transaction has ended. If somebody
// waits, a release that finds no term hands the name over.
func (l *Locker) unlockEnded(ctx context.Context, lease *Lease, awaited bool) {
	l.inflight.add()
	defer l.inflight.done()
	t := lease.term
	var bound unlockBound
	if awaited {
		bound = newUnlockBound(ctx, t.timeout)
	}
	lease.endedBefore.Store(true)
	last, err := t.removeLease(lease)
	if errors.Is(err, ErrNotHeld) { // unlocked meanwhile
		lease.endedBefore.Store(false)
	}
	if !last {
		return
	}
	l.keeper.drop(t)
	defer l.queue.ended(t)
	if t.unknown { // a request may still arrive
		l.cleanup.add(t.cleanupRequest())
	}
	if awaited {
		l.serveQueue(bound, t)
	}
	if err == nil {
		l.unlockedEvent(t, nil)
	}
}

// serveQueue has the database hand over the name of a term that has ended. If that fails, it
// is done in the background.
func (l *Locker) serveQueue(bound unlockBound, t *term) {
	base := l.base
	if base.Err() != nil {
		base = context.Background()
	}
	wait := l.deadlines.borrow(base, bound.until, bound.early)
	defer l.deadlines.giveBack(wait)
	req := l.releaseRequest(t)
	req.Awaited = true
	a, ok := l.releases.Do(wait, nil, req, releaseKind(t, &req, false), t.timeout)
	t.handedOver = a.Result.HandedOver
	if !ok || a.Err != nil {
		l.cleanup.addOnce(t.cleanupRequest())
	}
}

// releaseLeaving releases a term that a transaction may have ended. It serves the queue if
// one has.
func (l *Locker) releaseLeaving(ctx context.Context, t *term) error {
	req, _ := t.cleanupRequest()
	err := l.withTimeout(ctx, t.timeout, func(ctx context.Context) error {
		_, err := l.mode.Release(ctx, []driver.ReleaseRequest{req})
		return err
	})
	if err == nil {
		l.claims.recheck(t.name)
	}
	return err
}

// endable returns why no transaction can end the term of a lease, or nil.
func (t *term) endable(l *Lease) error {
	switch {
	case t.locker.mode.sessions != nil:
		return fmt.Errorf("%w: end %q in a transaction: a session keeps the lock", ErrUnsupported, t.name)
	case t.permit:
		return fmt.Errorf("%w: end %q in a transaction: it is a permit", ErrUnsupported, t.name)
	}
	if err := t.guard(l); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.notReenteredLocked()
}

// notReenteredLocked returns an error if the term has more leases than one; the caller holds
// mu.
func (t *term) notReenteredLocked() error {
	if t.count > 1 {
		return fmt.Errorf("%w: end %q in a transaction: the lease was re-entered, %d Unlocks are missing", ErrInvalidOption, t.name, t.count-1)
	}
	return nil
}

// leave notes that a transaction has ended the term, unless it is rolled back.
func (t *term) leave(l *Lease, commits bool) error {
	if err := t.guard(l); err != nil { // it may have been unlocked meanwhile
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.notReenteredLocked(); err != nil {
		return err
	}
	if t.leaving && t.leavingSince == never {
		return fmt.Errorf("%w: end %q in a transaction: another call ends it", ErrInvalidOption, t.name)
	}
	t.leaving, t.leavingSince = true, t.locker.clock.Now()
	if commits {
		t.leavingSince = never
	}
	return nil
}

// committed notes that the reply to a commit has come, or will not come.
func (t *term) committed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leavingSince = t.locker.clock.Now()
}

// isCommitting reports that UnlockInTx waits for the reply to a commit that ends the term.
func (t *term) isCommitting() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.leaving && t.leavingSince == never
}

// isLeaving reports that a transaction may have ended the term.
func (t *term) isLeaving() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.leaving
}

// leaveLocked ends a term that a transaction has ended, before it is unlocked; the caller
// holds mu and calls Locker.termLeft after it.
func (t *term) leaveLocked() {
	t.state = termLeft
	t.deadline.Store(0)
	for _, l := range t.leases {
		l.ctx.cancel(ErrUnlocked)
	}
}
