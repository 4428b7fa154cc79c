package lockpg

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/sqllock/sqllock/driver"
)

// Fence refuses a late write of a former holder, inside the transaction that writes. It
// stores the highest token that it was given for a resource. If token is lower, it returns
// an error that is [driver.ErrFenced]. Use Fence for writes in another database than that
// of the lock. In the same database, [Guard] does more. A rollback of tx also undoes
// what Fence has stored.
//
// All writes to the resource must go through Fence. Writes of one term have one token, and
// all of them pass. Until tx ends, other transactions that fence the resource wait. Make the
// tables in this database too, with package migrations. Of the options, Schema and
// TablePrefix apply.
//
// Fence returns ErrInvalidName if resource is no valid name, and ErrInvalidOption if token
// is not positive; both before any SQL. Otherwise it returns the error of the database.
// After any error, roll the transaction back.
func Fence(ctx context.Context, tx pgx.Tx, resource string, token int64, opts ...Option) error {
	if tx == nil {
		return driver.NilError("pgx.Tx")
	}
	q, err := fenceQuery(ctx, resource, token, opts)
	if err != nil {
		return err
	}
	tag, err := tx.Exec(ctx, q, resource, token)
	if err != nil {
		return err
	}
	return fenced(resource, token, tag.RowsAffected())
}

// FenceSQL is [Fence] for a transaction of database/sql.
func FenceSQL(ctx context.Context, tx *sql.Tx, resource string, token int64, opts ...Option) error {
	if tx == nil {
		return driver.NilError("*sql.Tx")
	}
	q, err := fenceQuery(ctx, resource, token, opts)
	if err != nil {
		return err
	}
	res, err := tx.ExecContext(ctx, q, resource, token)
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err != nil {
		return err
	}
	return fenced(resource, token, n)
}

func fenceQuery(ctx context.Context, resource string, token int64, opts []Option) (string, error) {
	d := newDatabase(opts)
	if err := errors.Join(append(d.problems, driver.CheckContext(ctx), driver.CheckFence(resource, token))...); err != nil {
		return "", err
	}
	t := tables{schema: d.schema, prefix: d.prefix}
	return t.fill(uniqueTexts["fence"]), nil
}

func fenced(resource string, token, rows int64) error {
	if rows == 0 {
		return fmt.Errorf("%w: %q has seen a higher token than %d", driver.ErrFenced, resource, token)
	}
	return nil
}
