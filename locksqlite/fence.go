package locksqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/sqllock/sqllock/driver"
)

// Fence refuses, inside a transaction, a write under a lock that has been succeeded
// by another: it remembers the highest token that it was given for a resource, and
// returns an error that is [driver.ErrFenced] if this one is lower. It is for
// writes in another database than that of the lock; where both are the same, the
// Guard of the lease does more. The token that it remembers is undone if tx is.
//
// All writes to the resource must go through Fence. Those of one term have one
// token and all pass. The tables must have been made here too, by package
// migrations; of the options, TablePrefix applies.
//
// It returns ErrInvalidName if the resource is not named as locks are,
// ErrInvalidOption if the token is not positive, before any SQL, and otherwise
// the error of the database. The transaction must then be rolled back.
func Fence(ctx context.Context, tx *sql.Tx, resource string, token int64, opts ...Option) error {
	if tx == nil {
		return driver.NilError("*sql.Tx")
	}
	d := DB(nil, opts...)
	if err := errors.Join(d.problem, driver.CheckIdentifier("table prefix", d.prefix), driver.CheckContext(ctx), driver.CheckFence(resource, token)); err != nil {
		return err
	}
	res, err := tx.ExecContext(ctx, newQueries(d.prefix).fence, resource, token)
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err == nil && n == 0 {
		err = fmt.Errorf("%w: %q has seen a higher token than %d", driver.ErrFenced, resource, token)
	}
	return err
}
