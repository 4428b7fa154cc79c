package lockpg

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqllock/sqllock/driver"
)

// Guard is the Guard of a *sqllock.Lease for a transaction of pgx: it makes sure
// that the lease is the current one until tx ends. See there for what it promises
// and returns.
func Guard(ctx context.Context, tx pgx.Tx, lease driver.Guardable) error {
	if tx == nil {
		return driver.NilError("pgx.Tx")
	}
	if lease == nil {
		return driver.NilError("lease")
	}
	return lease.GuardBy(ctx, guardIn(tx))
}

// guardIn guards leases in a transaction.
func guardIn(tx pgx.Tx) driver.GuardFunc {
	return func(ctx context.Context, ls driver.GuardStore, req driver.GuardRequest) (driver.GuardStatus, error) {
		s, ok := ls.(guarding)
		if !ok {
			return driver.Foreign, nil
		}
		return s.guardIn(ctx, ofPgx(tx), req)
	}
}

// UnlockTx is the UnlockTx of a *sqllock.Lease for a transaction of pgx: it ends the term
// in tx, and the lease is unlocked after tx. See there for what it promises and returns.
func UnlockTx(ctx context.Context, tx pgx.Tx, lease driver.Unlockable) error {
	if tx == nil {
		return driver.NilError("pgx.Tx")
	}
	if lease == nil {
		return driver.NilError("lease")
	}
	return lease.UnlockTxBy(ctx, guardIn(tx))
}

// guarding is a store that guards leases in transactions of any kind.
type guarding interface {
	guardIn(ctx context.Context, run inTx, req driver.GuardRequest) (driver.GuardStatus, error)
}

var (
	_ guarding = (*store)(nil)
	_ guarding = (*forUpdateStore)(nil)
	_ guarding = (*advisoryStore)(nil)
)

// InTx begins a transaction on a pool of pgx, guards the lease in it, calls fn, and
// commits. It rolls back if fn returns an error or panics, or if ctx ends. If ctx has
// ended, the error is its cause as well.
//
// Unlike the InTx of a *sqllock.Lease it does not bind ctx to the lease: after a loss fn
// goes on and can commit, although no other caller gets the name before the transaction has
// ended. Pass a context that ends with the lease:
//
//	ctx, cancel := lease.Bind(ctx)
//	defer cancel()
//	err := lockpg.InTx(ctx, pool, lease, pgx.TxOptions{}, fn)
//
// Then a loss ends fn's context and the transaction, and the error is a *sqllock.LostError.
func InTx(ctx context.Context, db interface {
	BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error)
}, lease driver.Guardable, opts pgx.TxOptions, fn func(ctx context.Context, tx pgx.Tx) error) error {
	return beginAndCommit(ctx, db, lease, opts, fn, func(tx pgx.Tx) error { return tx.Commit(ctx) })
}

// UnlockInTx is the UnlockInTx of a *sqllock.Lease on a pool of pgx: it does what [InTx]
// does, but ends the term in the transaction and unlocks the lease after the commit. Like
// InTx it does not bind ctx to the lease: pass a context of Lease.Bind.
func UnlockInTx(ctx context.Context, db interface {
	BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error)
}, lease driver.Unlockable, opts pgx.TxOptions, fn func(ctx context.Context, tx pgx.Tx) error) error {
	return beginAndCommit(ctx, db, lease, opts, fn, func(tx pgx.Tx) error { return lease.UnlockInTxBy(ctx, guardIn(tx), tx.Commit) })
}

// beginner is a pool or a connection of pgx.
type beginner interface {
	BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error)
}

// beginAndCommit is InTx with a function that commits.
func beginAndCommit(
	ctx context.Context, db beginner, lease driver.Guardable, opts pgx.TxOptions,
	fn func(ctx context.Context, tx pgx.Tx) error, commit func(tx pgx.Tx) error,
) error {
	if err := driver.CheckContext(ctx); err != nil {
		return err
	}
	pool, isPool := db.(*pgxpool.Pool)
	conn, isConn := db.(*pgx.Conn)
	switch {
	case db == nil, isPool && pool == nil, isConn && conn == nil:
		return driver.NilError("pool")
	case lease == nil:
		return driver.NilError("lease")
	case fn == nil:
		return driver.NilError("function")
	}
	err := guarded(ctx, db, lease, opts, fn, commit)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// guarded is beginAndCommit with arguments that are checked.
func guarded(
	ctx context.Context, db beginner, lease driver.Guardable, opts pgx.TxOptions,
	fn func(ctx context.Context, tx pgx.Tx) error, commit func(tx pgx.Tx) error,
) error {
	tx, err := db.BeginTx(ctx, opts)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }() // does nothing after a commit
	if err := Guard(ctx, tx, lease); err != nil {
		return err
	}
	if err := fn(ctx, tx); err != nil {
		return err
	}
	return commit(tx)
}

// Guard implements driver.GuardStore.
func (s *store) Guard(ctx context.Context, tx *sql.Tx, req driver.GuardRequest) (driver.GuardStatus, error) {
	return s.guardIn(ctx, ofSQL(tx), req)
}

func (s *store) guardIn(ctx context.Context, run inTx, req driver.GuardRequest) (driver.GuardStatus, error) {
	var same, current, old bool
	if req.Ends {
		var waiting int64
		args := []any{req.Name, req.Acq.String(), req.Version, req.MinHold.Microseconds(), s.id}
		err := run(ctx, s.engine.texts["end_term"], args, &same, &waiting, &current)
		return endStatus(same, waiting, current), err
	}
	if len(req.Others) > 0 {
		return s.guardAll(ctx, run, req.Terms())
	}
	text := "guard"
	if req.Shared {
		text = "guard_shared"
	}
	if err := run(ctx, s.engine.texts[text], []any{req.Name, req.Acq.String(), req.Version, s.id}, &same, &current, &old); err != nil {
		return driver.Fenced, err
	}
	return s.lookAgain(ctx, guardStatus(same, current), old, req.Terms())
}

// guardLook bounds the look of lookAgain. In a pool of one connection the transaction itself may be in
// its way.
const guardLook = 5 * time.Second

// lookAgain reads the rows of terms that a transaction guards, if its snapshot is old. It sees them as
// they were, and Postgres need not tell it that they were changed before they were locked.
func (s *store) lookAgain(ctx context.Context, status driver.GuardStatus, old bool, terms []driver.Term) (driver.GuardStatus, error) {
	if !old || status != driver.Guarded {
		return status, nil
	}
	names := make([]string, len(terms))
	for i := range terms {
		names[i] = terms[i].Name
	}
	look, cancel := context.WithTimeout(ctx, guardLook)
	defer cancel()
	res, err := s.Read(look, driver.ReadRequest{Names: names})
	if err != nil {
		return driver.Fenced, fmt.Errorf("to guard in isolation REPEATABLE READ or SERIALIZABLE takes a look on a second connection: %w", err)
	}
	for i := range terms {
		if h := &res.Rows[i].Holder; h.Acq != terms[i].Acq || h.Version != terms[i].Version {
			return driver.Fenced, nil
		}
	}
	return status, nil
}

// guardAll guards several terms by one statement.
func (s *store) guardAll(ctx context.Context, run inTx, terms []driver.Term) (driver.GuardStatus, error) {
	n := len(terms)
	args := texts([]any{
		column(n, func(i int) string { return terms[i].Name }),
		column(n, func(i int) driver.ID { return terms[i].Acq }),
		column(n, func(i int) int64 { return terms[i].Version }),
	})
	var same, old bool
	var current int
	if err := run(ctx, s.engine.texts["guard_all"], append(args, s.id), &same, &current, &old); err != nil {
		return driver.Fenced, err
	}
	return s.lookAgain(ctx, guardStatus(same, current == n), old, terms)
}

// endStatus is guardStatus for a request that ends the term. waiting is -1 if it has not.
func endStatus(same bool, waiting int64, current bool) driver.GuardStatus {
	switch {
	case !same:
		return driver.Foreign
	case waiting > 0:
		return driver.Awaited
	case waiting == 0:
		return driver.Guarded
	case current:
		return driver.PassedOver
	}
	return driver.Fenced
}

func guardStatus(same, current bool) driver.GuardStatus {
	switch {
	case !same:
		return driver.Foreign
	case current:
		return driver.Guarded
	}
	return driver.Fenced
}
