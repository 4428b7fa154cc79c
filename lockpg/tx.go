package lockpg

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/sqllock/sqllock/driver"
)

// LockTx is the LockTx of a *sqllock.Locker for a transaction of pgx: it waits until
// tx has name, and returns the fencing token. The lock ends with tx, or with the savepoint
// of a nested transaction that is rolled back. See there for what it promises and returns,
// and for isolation levels.
func LockTx(ctx context.Context, tx pgx.Tx, locks driver.TxLocker, name string) (token int64, err error) {
	return lockTx(ctx, tx, locks, name, false, true)
}

// TryLockTx is [LockTx] without waiting: see TryLockTx of a *sqllock.Locker.
func TryLockTx(ctx context.Context, tx pgx.Tx, locks driver.TxLocker, name string) (token int64, err error) {
	return lockTx(ctx, tx, locks, name, false, false)
}

// RLockTx is [LockTx] for a lock that is shared.
func RLockTx(ctx context.Context, tx pgx.Tx, locks driver.TxLocker, name string) (token int64, err error) {
	return lockTx(ctx, tx, locks, name, true, true)
}

// TryRLockTx is [RLockTx] without waiting, see [TryLockTx].
func TryRLockTx(ctx context.Context, tx pgx.Tx, locks driver.TxLocker, name string) (token int64, err error) {
	return lockTx(ctx, tx, locks, name, true, false)
}

func lockTx(ctx context.Context, tx pgx.Tx, locks driver.TxLocker, name string, shared, wait bool) (int64, error) {
	if tx == nil {
		return 0, driver.NilError("pgx.Tx")
	}
	if locks == nil {
		return 0, driver.NilError("*sqllock.Locker")
	}
	return locks.LockTxBy(ctx, name, shared, wait, func(ctx context.Context, ts driver.TxStore, req driver.TxRequest) (driver.TxStatus, error) {
		s, ok := ts.(txStore)
		if !ok {
			return driver.TxForeign, nil
		}
		return s.tryTx(ctx, ofPgx(tx), req)
	})
}

// inTx runs a statement in a transaction of the application and scans its one row.
type inTx func(ctx context.Context, query string, args []any, dest ...any) error

func ofPgx(tx pgx.Tx) inTx {
	return func(ctx context.Context, query string, args []any, dest ...any) error {
		return tx.QueryRow(ctx, query, args...).Scan(dest...)
	}
}

func ofSQL(tx *sql.Tx) inTx {
	return func(ctx context.Context, query string, args []any, dest ...any) error {
		return tx.QueryRowContext(ctx, query, args...).Scan(dest...)
	}
}

// txStore is a store of a mode that takes locks in transactions of any kind.
type txStore interface {
	tryTx(ctx context.Context, run inTx, req driver.TxRequest) (driver.TxStatus, error)
}

// PrepareTx implements [driver.TxStore]: it makes the pin, if there is none.
func (s *forUpdateStore) PrepareTx(ctx context.Context, req driver.TxRequest) error {
	return s.newPin(ctx, req.Name)
}

func (s *forUpdateStore) newPin(ctx context.Context, name string) error {
	return s.queryKept(ctx, s.texts["make_pin"], []any{name}, nil)
}

// TryTx implements [driver.TxStore].
func (s *forUpdateStore) TryTx(ctx context.Context, tx *sql.Tx, req driver.TxRequest) (driver.TxStatus, error) {
	return s.tryTx(ctx, ofSQL(tx), req)
}

func (s *forUpdateStore) tryTx(ctx context.Context, run inTx, req driver.TxRequest) (driver.TxStatus, error) {
	var same, known, locked bool
	here, err := s.tryHere(ctx, func(at int64) (ran int64, err error) {
		if err = run(ctx, s.texts["try_pin"], []any{req.Name, s.tables.id, at, req.Shared}, &same, &ran, &known, &locked); !same {
			ran = at // whichever server another database is on
		}
		return ran, err
	})
	switch {
	case err != nil:
		return 0, err
	case !same || !here:
		return driver.TxForeign, nil
	case locked:
		return driver.TxTaken, nil
	case !known:
		return driver.TxTooOld, nil
	}
	return driver.TxHeld, nil
}

// Draw implements [driver.TxStore].
func (s *forUpdateStore) Draw(ctx context.Context, req driver.AcquireRequest) (driver.AcquireResult, error) {
	return s.draw(ctx, &drawing{req: &req, run: s.queryKept})
}

// PrepareTx implements [driver.TxStore]. There is nothing to prepare.
func (s *advisoryStore) PrepareTx(context.Context, driver.TxRequest) error { return nil }

// TryTx implements [driver.TxStore].
func (s *advisoryStore) TryTx(ctx context.Context, tx *sql.Tx, req driver.TxRequest) (driver.TxStatus, error) {
	return s.tryTx(ctx, ofSQL(tx), req)
}

func (s *advisoryStore) tryTx(ctx context.Context, run inTx, req driver.TxRequest) (driver.TxStatus, error) {
	var same, locked bool
	here, err := s.tryHere(ctx, func(at int64) (ran int64, err error) {
		if err = run(ctx, s.texts["try_lock"], []any{s.key(req.Name), s.tables.id, at, req.Shared}, &same, &ran, &locked); !same {
			ran = at // whichever server another database is on
		}
		return ran, err
	})
	switch {
	case err != nil:
		return 0, tooMany(err)
	case !same || !here:
		return driver.TxForeign, nil
	case locked:
		return driver.TxTaken, nil
	}
	return driver.TxHeld, nil
}

// Draw implements [driver.TxStore].
func (s *advisoryStore) Draw(ctx context.Context, req driver.AcquireRequest) (res driver.AcquireResult, err error) {
	err = s.onControl(ctx, func(run runner) error {
		free, err := s.checkGuards(ctx, run, []string{req.Name})
		if err != nil { // the connection may be left with the key of the guard
			return errors.New(err.Error())
		}
		if !free {
			res = driver.AcquireResult{}
			return nil
		}
		passes, err := s.pass(ctx, run, []driver.AcquireRequest{req})
		if err != nil {
			return err
		}
		if res = passes[0].result(s.ttl); res.Granted || !passes[0].named {
			return nil
		}
		res, err = s.draw(ctx, &drawing{req: &req, run: run, lift: s.lift})
		return err
	})
	return res, err
}
