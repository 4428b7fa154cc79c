package sqllock

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/driver"
)

var _ driver.TxLocker = (*Locker)(nil)

// LockTx waits until a transaction of the caller's has name, and returns the fencing
// token. The lock ends with the transaction, whether that is committed or rolled
// back; there is nothing to unlock, renew or lose. It excludes the leases that
// Lockers of the same mode have, and other transactions.
//
// The transaction must be one of the Locker's database, and is never ended by the
// waiting: LockTx tries, with pauses in between, and locks nothing until it
// succeeds. ctx bounds the wait. Two transactions that wait for names of each other
// are not noticed by the database: lock names in one order, or bound the wait.
//
// The mode must be for update, or advisory on Postgres; of others LockTx returns
// [ErrUnsupported]. It returns [ErrInvalidName] and [ErrInvalidOption] before any
// SQL, ErrInvalidOption also for a transaction of another database that has the
// tables too, [ErrTooOld], [ErrClosed], [ErrPoolExhausted] if the connection that the
// Locker keeps has died and the pool has no other to give for half a second, an error
// that wraps ctx's, or the error of the database, which is the caller's to deal with. If LockTx gives up after the
// transaction has got the lock, while a lock delay keeps the name, the transaction
// has it all the same.
func (l *Locker) LockTx(ctx context.Context, tx *sql.Tx, name string) (token int64, err error) {
	return l.lockTx(ctx, tx, name, false, true)
}

// TryLockTx is LockTx without waiting: if somebody else has name it returns a
// [*HeldError], and the transaction can go on.
func (l *Locker) TryLockTx(ctx context.Context, tx *sql.Tx, name string) (token int64, err error) {
	return l.lockTx(ctx, tx, name, false, false)
}

// RLockTx is LockTx for a lock that is shared, as RLock's.
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

// LockTxBy is for packages that know other kinds of transactions, such as lockpg. It
// implements [driver.TxLocker].
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

// txAttempt is an acquisition in a transaction of the caller's.
type txAcquisition struct {
	locker *Locker
	store  driver.TxStore
	wait   bool
	f      driver.TxFunc
	req    driver.TxRequest
}

// take gets the lock. No statement in the transaction ends with ctx: that would end
// the transaction.
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

// try asks once. The status is TxHeld or TxTaken if there is no error.
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

// confirm asks for the lock once more, which the transaction has if it lives: then it
// had the lock while its token was drawn. A transaction that the server ended before
// would have a higher token than the next holder.
func (a *txAcquisition) confirm(ctx context.Context) error {
	status, err := a.try(ctx)
	if err == nil && status == driver.TxHeld {
		err = a.heldError(ctx)
	}
	return err
}

// held says who holds the name, as far as that can be told.
func (a *txAcquisition) heldError(ctx context.Context) error {
	row, err := a.locker.readRow(ctx, a.req.Name)
	if err != nil || !row.Held() {
		return &HeldError{Name: a.req.Name}
	}
	return newHeldError(a.req.Name, row.Holder)
}

// draw gets the token, outside of the transaction: what the transaction draws it
// would take back if it were rolled back. While a former holder's lock delay, or a
// guard, keeps the name it waits.
func (a *txAcquisition) drawToken(ctx context.Context) (int64, error) {
	acq := newID()
	req := driver.GrantRequest{Name: a.req.Name, Acq: acq, Owner: acq.String(), Shared: a.req.Shared}
	for backoff := newBackoff(&a.locker.cfg); ; {
		var res driver.GrantResult
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
		if left := time.Duration(res.Holder.Until-res.Now) * time.Microsecond; left > 0 {
			pause = min(pause, left+time.Millisecond)
		}
		if err := a.locker.sleep(ctx, nil, pause); err != nil {
			return 0, lockError(a.req.Name, err)
		}
	}
}
