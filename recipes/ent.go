package recipes

import (
	"context"
	"database/sql"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/recipes/ent"
)

func entGuard(ctx context.Context, db *sql.DB, lease *sqllock.Lease) error {
	tx, err := db.BeginTx(ctx, nil) // instead of Client.Tx, which hides it
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := lease.Guard(ctx, tx); err != nil {
		return err
	}
	if err := entOn(tx).Invoice.UpdateOneID(42).SetState("sent").Exec(ctx); err != nil {
		return err
	}
	return tx.Commit()
}

func entInTx(ctx context.Context, lease *sqllock.Lease) error {
	return lease.InTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		return entOn(tx).Invoice.UpdateOneID(42).SetState("sent").Exec(ctx)
	})
}

func entUnlockInTx(ctx context.Context, lease *sqllock.Lease) error {
	return lease.UnlockInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		return entOn(tx).Invoice.UpdateOneID(42).SetState("sent").Exec(ctx)
	})
}

// entOn returns a client of ent on a transaction of database/sql.
func entOn(tx *sql.Tx) *ent.Client {
	below := entsql.NewDriver(dialect.Postgres, entsql.Conn{ExecQuerier: tx})
	return ent.NewClient(ent.Driver(entTx{below}))
}

// entTx is a driver of ent that begins no transaction: it runs in one.
type entTx struct{ *entsql.Driver }

func (d entTx) Tx(context.Context) (dialect.Tx, error) { return dialect.NopTx(d), nil }

func (entTx) Close() error { return nil }
