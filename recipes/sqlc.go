package recipes

import (
	"context"
	"database/sql"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/recipes/sqlc"
)

func sqlcGuard(ctx context.Context, db *sql.DB, queries *sqlc.Queries, lease *sqllock.Lease) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := lease.Guard(ctx, tx); err != nil {
		return err
	}
	_, err = queries.WithTx(tx).SetState(ctx, sqlc.SetStateParams{ID: 42, State: "sent"})
	if err != nil {
		return err
	}
	return tx.Commit()
}

func sqlcInTx(ctx context.Context, queries *sqlc.Queries, lease *sqllock.Lease) error {
	return lease.InTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		_, err := queries.WithTx(tx).SetState(ctx, sqlc.SetStateParams{ID: 42, State: "sent"})
		return err
	})
}

func sqlcUnlockInTx(ctx context.Context, queries *sqlc.Queries, lease *sqllock.Lease) error {
	return lease.UnlockInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		_, err := queries.WithTx(tx).SetState(ctx, sqlc.SetStateParams{ID: 42, State: "sent"})
		return err
	})
}
