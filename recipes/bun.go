package recipes

import (
	"context"
	"database/sql"

	"github.com/uptrace/bun"

	"github.com/sqllock/sqllock"
)

// bunInvoice is a model of bun.
type bunInvoice struct {
	bun.BaseModel `bun:"table:invoice"`

	ID    int64 `bun:",pk"`
	State string
}

func bunGuard(ctx context.Context, db *bun.DB, lease *sqllock.Lease) error {
	return db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if err := lease.Guard(ctx, tx.Tx); err != nil {
			return err
		}
		sent := &bunInvoice{ID: 42, State: "sent"}
		_, err := tx.NewUpdate().Model(sent).WherePK().Exec(ctx)
		return err
	})
}

func bunInTx(ctx context.Context, db *bun.DB, lease *sqllock.Lease) error {
	return lease.InTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		sent := &bunInvoice{ID: 42, State: "sent"}
		_, err := db.NewUpdate().Conn(tx).Model(sent).WherePK().Exec(ctx)
		return err
	})
}

func bunUnlockInTx(ctx context.Context, db *bun.DB, lease *sqllock.Lease) error {
	return lease.UnlockInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		sent := &bunInvoice{ID: 42, State: "sent"}
		_, err := db.NewUpdate().Conn(tx).Model(sent).WherePK().Exec(ctx)
		return err
	})
}
