package sqllock

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/driver"
)

var _ driver.TxLocker = (*Locker)(nil)

// LockTx waits until a transaction of the caller has name, and returns the fencing token.
// The lock ends with the transaction, at its commit or rollback; there is nothing to
// unlock, to renew or to lose. It excludes the leases of Lockers in the same mode, and
// other transactions.
//
// The transaction must be one of the Locker's database. LockTx never ends it: it tries,
// with pauses in between, and locks nothing until it succeeds. ctx bounds the wait. The
// database does not detect a deadlock of two transactions that wait for names of each
// other: lock names in one order, or bound the wait.
//
// On Postgres, use isolation READ COMMITTED. A transaction that is REPEATABLE READ or SERIALIZABLE
// reads what was there at its first statement, which LockTx can be: it does not see what others have
// committed while LockTx waited for them. On Postgres a rollback to a savepoint that is older than
// LockTx also ends the lock.
//
// Only the for-update mode, and the advisory mode on Postgres, have locks in transactions.
// LockTx returns
//
//   - [ErrUnsupported] in all other modes;
//   - [ErrInvalidName] or [ErrInvalidOption] before any SQL, and ErrInvalidOption also for
//     a transaction of another database that has the tables too;
//   - [ErrTooOld];
//   - [ErrClosed];
//   - [ErrPoolExhausted] if the reserved connection of the Locker has died and the pool
//     has no other one for half a second;
//   - an error that wraps ctx's;
//   - the error of the database, which you must handle.
//
// If LockTx gives up after the transaction has got the lock, while a lock delay keeps the
// name, the transaction still has the lock.
func (l *Locker) LockTx(ctx context.Context, tx *sql.Tx, name string) (token int64, err error) {
	return l.lockTx(ctx, tx, name, false, true)
}

// TryLockTx is LockTx without waiting. If another caller has name, it returns a
// [*HeldError], and the transaction can go on. If a lock delay or a guard keeps name, it returns
// a HeldError too, but the transaction has the lock then, and keeps others from name until it
// ends.
func (l *Locker) TryLockTx(ctx context.Context, tx *sql.Tx, name string) (token int64, err error) {
	return l.lockTx(ctx, tx, name, false, false)
}

// RLockTx is LockTx for a shared lock, see RLock.
func (l *Locker) RLockTx(ctx context.Context, tx *sql.Tx, name string) (token int64, err error) {
	return l.lockTx(ctx, tx, name, true, true)
}

// TryRLockTx is RLockTx without waiting, see TryLockTx.
func (l *Locker) TryRLockTx(ctx context.Context, tx *sql.Tx, name string) (token int64, err error) {
	return l.lockTx(ctx, tx, name, true, false)
}

func (l *Locker) lockTx(ctx context.Context, tx *sql.Tx, name string, shared, wait bool) (int64, error) {
	if tx == nil {
		return 0, driver.NilError("*sql.Tx")
	}
	return l.LockTxBy(ctx, name, shared, wait, func(ctx context.Context, store driver.TxStore, req driver.TxRequest) (driver.TxStatus, error) {
		return store.TryTx(ctx, tx, req)
	})
}

// LockTxBy locks name with f. It is for packages that know other kinds of transactions,
// such as lockpg, and implements [driver.TxLocker].
func (l *Locker) LockTxBy(ctx context.Context, name string, shared, wait bool, f driver.TxFunc) (token int64, err error) {
	switch {
	case l == nil:
		return 0, driver.NilError("*Locker")
	case f == nil:
		return 0, driver.NilError("function")
	}
	if err := checkCall(ctx, name); err != nil {
		return 0, err
	}
	store := l.mode.tx
	if store == nil {
		return 0, fmt.Errorf("%w: lock %q in a transaction: this mode cannot; use NewForUpdate or NewAdvisory", ErrUnsupported, name)
	}
	if !l.inflight.begin() {
		return 0, ErrClosed
	}
	defer l.inflight.done()
	a := &txAcquisition{locker: l, store: store, wait: wait, f: f, req: driver.TxRequest{Name: name, Shared: shared}}
	if err := l.retry(ctx, func(ctx context.Context) error { return store.PrepareTx(ctx, a.req) }); err != nil {
		return 0, lockError(name, err)
	}
	if err := a.acquire(ctx); err != nil {
		return 0, err
	}
	if token, err = a.drawToken(ctx); err != nil {
		return 0, err
	}
	if err := a.confirm(ctx); err != nil {
		return 0, err
	}
	return token, nil
}

// txAcquisition is an acquisition in a transaction of the caller.
type txAcquisition struct {
	locker *Locker
	store  driver.TxStore
	wait   bool
	f      driver.TxFunc
	req    driver.TxRequest
}

// acquire gets the lock. No statement in the transaction ends with ctx, because that would
// end the transaction.
func (a *txAcquisition) acquire(ctx context.Context) error {
	for pause := newBackoff(&a.locker.cfg); ; {
		if ctx.Err() != nil {
			return lockError(a.req.Name, endOf(ctx))
		}
		status, err := a.try(ctx)
		if err != nil || status != driver.TxHeld {
			return err
		}
		if !a.wait {
			return a.heldError(ctx)
		}
		if err := a.locker.sleep(ctx, nil, pause.next()); err != nil {
			return fmt.Errorf("sqllock: lock %q in a transaction: waited for its turn: %w", a.req.Name, err)
		}
	}
}

// try sends one request. If there is no error, the status is TxHeld or TxTaken.
func (a *txAcquisition) try(ctx context.Context) (driver.TxStatus, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.locker.cfg.timeout(MaxTTL))
	defer cancel()
	status, err := a.f(ctx, a.store, a.req)
	switch {
	case err != nil:
		err = fmt.Errorf("sqllock: lock %q in a transaction: %w", a.req.Name, err)
	case status == driver.TxForeign:
		err = fmt.Errorf("%w: lock %q: the transaction is one of another database, or of another server", ErrInvalidOption, a.req.Name)
	case status == driver.TxTooOld:
		err = fmt.Errorf("%w: lock %q: begin a new one", ErrTooOld, a.req.Name)
	}
	return status, err
}

// confirm requests the lock once more. If the transaction still lives, it has the lock,
// and so had it while its token was drawn. If the server had ended it before, its token
// would be higher than that of the next holder.
func (a *txAcquisition) confirm(ctx context.Context) error {
	status, err := a.try(ctx)
	if err == nil && status == driver.TxHeld {
		err = a.heldError(ctx)
	}
	return err
}

// heldError returns who holds the name, as far as that is known.
func (a *txAcquisition) heldError(ctx context.Context) error {
	row, err := a.locker.readRow(ctx, a.req.Name)
	if err != nil || !row.Held() {
		return &HeldError{Name: a.req.Name}
	}
	return newHeldError(a.req.Name, row.Holder)
}

// drawToken gets the token outside of the transaction: a rollback would take back what the
// transaction draws. It waits while the lock delay of a former holder, or a guard, keeps
// the name.
func (a *txAcquisition) drawToken(ctx context.Context) (int64, error) {
	acq := newID()
	req := driver.AcquireRequest{Name: a.req.Name, Acq: acq, Owner: acq.String(), Shared: a.req.Shared}
	for backoff := newBackoff(&a.locker.cfg); ; {
		var res driver.AcquireResult
		err := a.locker.retry(ctx, func(ctx context.Context) (err error) {
			res, err = a.store.Draw(ctx, req)
			return err
		})
		if err != nil {
			return 0, lockError(a.req.Name, err)
		}
		a.locker.noteCrash(a.req.Name, res.Crashed)
		if res.Granted {
			return res.Version, nil
		}
		if !a.wait {
			return 0, newHeldError(a.req.Name, res.Holder)
		}
		pause := backoff.next()
		if left := timeLeft(res.Holder.Until, res.Now); left > 0 {
			pause = min(pause, left+time.Millisecond)
		}
		if err := a.locker.sleep(ctx, nil, pause); err != nil {
			return 0, lockError(a.req.Name, err)
		}
		if err := a.confirm(ctx); err != nil { // a dead transaction must not draw: others may hold the name
			return 0, err
		}
	}
}
