package recipes

import (
	"context"
	"database/sql"

	"github.com/jmoiron/sqlx"

	"github.com/sqllock/sqllock"
)

// sqlxInvoice is what the recipes of sqlx read and write.
type sqlxInvoice struct {
	ID    int64
	State string
}

const sqlxUpdate = `UPDATE invoice SET state = :state WHERE id = :id`

func sqlxGuard(ctx context.Context, db *sqlx.DB, lease *sqllock.Lease) error {
	tx, err := db.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := lease.Guard(ctx, tx.Tx); err != nil {
		return err
	}
	_, err = tx.NamedExecContext(ctx, sqlxUpdate, sqlxInvoice{42, "sent"})
	if err != nil {
		return err
	}
	return tx.Commit()
}

func sqlxInTx(ctx context.Context, db *sqlx.DB, lease *sqllock.Lease) error {
	return lease.InTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		update, args, err := db.BindNamed(sqlxUpdate, sqlxInvoice{42, "sent"})
		if err != nil {
			return err
		}
		_, err = sqlxOn(db, tx).ExecContext(ctx, update, args...)
		return err
	})
}

func sqlxUnlockInTx(ctx context.Context, db *sqlx.DB, lease *sqllock.Lease) error {
	return lease.UnlockInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		var invoice sqlxInvoice
		read := db.Rebind(`SELECT id, state FROM invoice WHERE id = ?`)
		if err := sqlxOn(db, tx).GetContext(ctx, &invoice, read, 42); err != nil {
			return err
		}
		write := db.Rebind(`UPDATE invoice SET state = ? WHERE id = ?`)
		_, err := tx.ExecContext(ctx, write, "sent", invoice.ID)
		return err
	})
}

// sqlxOn returns sqlx on a transaction of database/sql. It does not know the driver: bind names
// and placeholders by the DB.
func sqlxOn(db *sqlx.DB, tx *sql.Tx) *sqlx.Tx { return &sqlx.Tx{Tx: tx, Mapper: db.Mapper} }
