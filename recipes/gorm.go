package recipes

import (
	"context"
	"database/sql"

	"gorm.io/gorm"

	"github.com/sqllock/sqllock"
)

// gormInvoice is a model of gorm.
type gormInvoice struct {
	ID    int64
	State string
}

func (gormInvoice) TableName() string { return "invoice" }

func gormGuard(ctx context.Context, db *gorm.DB, lease *sqllock.Lease) error {
	return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := lease.Guard(ctx, gormTx(tx)); err != nil {
			return err
		}
		return tx.Model(&gormInvoice{ID: 42}).Update("state", "sent").Error
	})
}

func gormInTx(ctx context.Context, db *gorm.DB, lease *sqllock.Lease) error {
	return lease.InTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		return gormOn(ctx, db, tx).Model(&gormInvoice{ID: 42}).Update("state", "sent").Error
	})
}

func gormUnlockInTx(ctx context.Context, db *gorm.DB, lease *sqllock.Lease) error {
	return lease.UnlockInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		return gormOn(ctx, db, tx).Model(&gormInvoice{ID: 42}).Update("state", "sent").Error
	})
}

// gormTx returns the transaction of database/sql below one of gorm, or nil, which Guard refuses.
func gormTx(tx *gorm.DB) *sql.Tx {
	pool := tx.Statement.ConnPool
	if prepared, ok := pool.(*gorm.PreparedStmtTX); ok { // with gorm.Config.PrepareStmt
		pool = prepared.Tx
	}
	below, _ := pool.(*sql.Tx)
	return below
}

// gormOn returns gorm on a transaction of database/sql.
func gormOn(ctx context.Context, db *gorm.DB, tx *sql.Tx) *gorm.DB {
	session := db.Session(&gorm.Session{Context: ctx, NewDB: true})
	session.Statement.ConnPool = tx
	return session
}
