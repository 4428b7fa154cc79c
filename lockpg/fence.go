package lockpg

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/sqllock/sqllock/driver"
)

// Fence refuses, inside a transaction, a write under a lock that has been succeeded
// by another: it remembers the highest token that it was given for a resource, and
// returns an error that is [driver.ErrFenced] if this one is lower. It is for
// writes in another database than that of the lock; where both are the same,
// [Guard] does more. The token that it remembers is undone if tx is.
//
// All writes to the resource must go through Fence. Those of one term have one
// token and all pass. Until tx ends, others who fence the resource wait. The
// tables must have been made here too, by package migrations; of the options,
// Schema and TablePrefix apply.
//
// It returns ErrInvalidName if the resource is not named as locks are,
// ErrInvalidOption if the token is not positive, before any SQL, and otherwise
// the error of the database. The transaction must then be rolled back.
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
	return newQueries(d.schema, d.prefix).fence, nil
}

func fenced(resource string, token, rows int64) error {
	if rows == 0 {
		return fmt.Errorf("%w: %q has seen a higher token than %d", driver.ErrFenced, resource, token)
	}
	return nil
}
