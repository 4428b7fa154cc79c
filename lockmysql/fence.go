package lockmysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/sqllock/sqllock/driver"
)

// Fence refuses a late write of a former holder, inside the transaction that writes. It
// stores the highest token that it was given for a resource. If token is lower, it returns
// an error that is [driver.ErrFenced]. Use Fence for writes in another database than that
// of the lock. In the same database, the Guard of the lease does more. A rollback of tx also undoes
// what Fence has stored.
//
// All writes to the resource must go through Fence. Writes of one term have one token, and
// all of them pass. Until tx ends, other transactions that fence the resource wait. Make the
// tables in this database too, with package migrations. Of the options, TablePrefix applies.
//
// Fence returns ErrInvalidName if resource is no valid name, and ErrInvalidOption if token
// is not positive; both before any SQL. Otherwise it returns the error of the database.
// After any error, roll the transaction back.
func Fence(ctx context.Context, tx *sql.Tx, resource string, token int64, opts ...Option) error {
	if tx == nil {
		return driver.NilError("*sql.Tx")
	}
	d := newDatabase(opts)
	if err := errors.Join(append(d.problems, driver.CheckContext(ctx), driver.CheckFence(resource, token))...); err != nil {
		return err
	}
	q := newQueries(d.prefix).texts
	if _, err := tx.ExecContext(ctx, q["fence"], digits(resource), token); err != nil {
		return err
	}
	var highest int64
	if err := tx.QueryRowContext(ctx, q["fence_token"], digits(resource)).Scan(&highest); err != nil {
		return err
	}
	if highest > token {
		return fmt.Errorf("%w: %q has seen token %d, which is higher than %d", driver.ErrFenced, resource, highest, token)
	}
	return nil
}
