package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/sqllock/sqllock/driver"
)

var _ driver.Guardable = (*Lease)(nil)

// Guard makes sure, inside a transaction of the application, that the lease is the current
// one until the transaction ends. When Guard has returned nil, no other caller can become
// holder of the name before tx is committed or rolled back, even if this process crashes.
// So what the transaction writes is written by the holder. Of a permit, no other caller can get
// this one before tx has ended. Guard is one statement in tx.
// Renewals go on. On SQLite, which has one writer, renewals wait: a transaction that is
// longer than the TTL loses the lease, but still no other caller gets the name before it
// ends. On a Galera cluster renewals wait, too, and a caller on another node can become holder
// before tx has ended: then tx fails with error 1213, at its commit at the latest, and writes
// nothing. It may also fail so because another node has changed who waits for the name: repeat it
// then.
//
// Call Guard first. On Postgres, in a transaction with isolation REPEATABLE READ or
// SERIALIZABLE, the lease must have been acquired before the transaction's first
// statement, and Guard also reads the row outside of the transaction: the pool must have another
// connection. Do not call Guard inside a savepoint, which could undo it. On MySQL and MariaDB,
// guard a permit in a transaction with isolation READ COMMITTED: with a higher one, callers of
// any name may have to wait until tx ends.
//
// Guard returns
//
//   - [ErrFenced] if the lease is no longer the current one;
//   - a [*LostError] if it was known to be lost;
//   - [ErrNotHeld] if it was unlocked;
//   - [ErrUnsupported] if it is shared or of a quorum, or if tx is on a node of a Galera cluster,
//     and the Locker was made on a server that is none;
//   - [ErrInvalidOption] if tx is nil or belongs to another database that has the tables
//     too;
//   - otherwise the error of the database, which you must handle: after a serialization
//     failure, repeat the transaction.
//
// After any error you must roll back the transaction. You must also do so after a deadlock
// in a later statement: MySQL has then undone everything, including the guard, and goes on
// without it.
func (l *Lease) Guard(ctx context.Context, tx *sql.Tx) error {
	if tx == nil {
		return driver.NilError("*sql.Tx")
	}
	return l.GuardBy(ctx, guardIn(tx))
}

// guardIn guards leases in a transaction.
func guardIn(tx *sql.Tx) driver.GuardFunc {
	return func(ctx context.Context, store driver.GuardStore, req driver.GuardRequest) (driver.GuardStatus, error) {
		return store.Guard(ctx, tx, req)
	}
}

// InTx begins a transaction on the Locker's handle, guards the lease in it, calls fn, and
// commits. The transaction and fn's context end with ctx or with the lease: if the lease
// is lost, what fn has written is rolled back. It is also rolled back if fn returns an
// error or panics. opts may be nil.
//
// InTx returns what [Lease.Guard] returns, or the error of fn, or that of the commit. If
// fn's context has ended by then, the error also wraps its cause, such as the [*LostError]
// of a lost lease. If the connection breaks during the commit, only the database knows
// whether the transaction was committed.
func (l *Lease) InTx(ctx context.Context, opts *sql.TxOptions, fn func(ctx context.Context, tx *sql.Tx) error) error {
	return l.inTx(ctx, opts, fn, func(ctx context.Context, tx *sql.Tx) error {
		if err := tx.Commit(); err != nil {
			return l.commitError(ctx, err)
		}
		return nil
	})
}

// inTx is InTx with a function that commits.
func (l *Lease) inTx(ctx context.Context, opts *sql.TxOptions, fn, commit func(ctx context.Context, tx *sql.Tx) error) error {
	if fn == nil {
		return driver.NilError("function")
	}
	if err := driver.CheckContext(ctx); err != nil {
		return err
	}
	if l.isZero() {
		return ErrNotHeld
	}
	if err := l.term.guardable(l); err != nil {
		return err
	}
	bound, cancel := l.Bind(ctx)
	defer cancel()
	tx, err := l.term.locker.mode.Begin(bound, opts)
	if err != nil {
		return fmt.Errorf("sqllock: begin a transaction under %q: %w", l.Name(), l.explain(bound, err))
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	if err := l.Guard(bound, tx); err != nil {
		return l.explain(bound, err)
	}
	if err := fn(bound, tx); err != nil {
		return l.explain(bound, err)
	}
	return commit(bound, tx)
}

// commitError is the error of a commit in a context.
func (l *Lease) commitError(ctx context.Context, err error) error {
	return fmt.Errorf("sqllock: commit under %q: %w", l.Name(), l.explain(ctx, err))
}

// explain adds the cause of ctx's end, if it has ended, to the error of a statement.
func (l *Lease) explain(ctx context.Context, err error) error { return explain(ctx, err) }

func explain(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// GuardBy guards the lease with f. It is for packages that know other kinds of
// transactions, such as lockpg, and implements [driver.Guardable].
func (l *Lease) GuardBy(ctx context.Context, f driver.GuardFunc) error {
	if f == nil {
		return driver.NilError("function")
	}
	if err := driver.CheckContext(ctx); err != nil {
		return err
	}
	if l.isZero() {
		return ErrNotHeld
	}
	t := l.term
	if err := t.guard(l); err != nil {
		return err
	}
	status, err := t.locker.mode.Guard(ctx, f, driver.GuardRequest{Name: t.name, Acq: t.acq, Version: t.token, Shared: t.permit})
	switch {
	case err != nil:
		return fmt.Errorf("sqllock: guard %q: %w", t.name, err)
	case status == driver.Guarded:
		return t.guard(l) // it may have been unlocked meanwhile
	case status == driver.Foreign:
		return fmt.Errorf("%w: guard %q: the transaction is one of another database", ErrInvalidOption, t.name)
	}
	return t.fencedError(ctx)
}

// fencedError asks the database, outside of the transaction, whether the term is over: a
// transaction may see the table as it was before the grant.
func (t *term) fencedError(ctx context.Context) error {
	reason, err := t.locker.endReason(ctx, t)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %q with token %d, as the transaction sees it", ErrFenced, t.name, t.token)
	case reason != 0:
		t.lose(reason, nil)
	default:
		return fmt.Errorf("%w: %q with token %d: the transaction sees the tables as they were before the lease was granted", ErrFenced, t.name, t.token)
	}
	return fmt.Errorf("%w: %q has another holder than that with token %d, or none", ErrFenced, t.name, t.token)
}

// endReason asks the database why a term is over. The reason is 0 if the term is not over.
func (l *Locker) endReason(ctx context.Context, t *term) (reason Reason, err error) {
	err = l.withTimeout(ctx, t.timeout, func(ctx context.Context) error {
		for pause := newBackoff(&l.cfg); ; {
			var err error
			if t.permit {
				reason, err = l.mode.permitEndReason(ctx, t.name, t.acq, t.token)
			} else {
				reason, err = l.mode.endReason(ctx, t.name, t.acq, t.token, l.cfg.ttl)
			}
			if err == nil || l.mode.Classify(err) != driver.Again || sleep(ctx, pause.next()) != nil {
				return err
			}
		}
	})
	return reason, err
}

func guardedError(name string) error {
	return fmt.Errorf("%w: %q is free when the transaction has ended", ErrGuarded, name)
}
