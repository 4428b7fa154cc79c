package gooselock_test

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"

	"github.com/pressly/goose/v3"

	"github.com/sqllock/sqllock"
	gooselock "github.com/sqllock/sqllock/goose"
	"github.com/sqllock/sqllock/lockmysql"
	"github.com/sqllock/sqllock/migrations"
)

// What each replica of a service does when it starts. On Postgres it is lockpg.DB and
// goose.DialectPostgres.
func Example() {
	start := func(ctx context.Context, db *sql.DB, files fs.FS) (err error) {
		database := lockmysql.DB(db)
		if err := migrations.Up(ctx, database); err != nil { // the tables of the lock
			return err
		}
		locks, err := sqllock.NewUnique(ctx, database, nil)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, locks.Close(ctx)) }()
		locker, err := gooselock.New(locks, "deploy")
		if err != nil {
			return err
		}
		provider, err := goose.NewProvider(goose.DialectMySQL, db, files, goose.WithSessionLocker(locker))
		if err != nil {
			return err
		}
		return locker.Do(ctx, func(ctx context.Context) error {
			_, err := provider.Up(ctx)
			return err
		})
	}
	_ = start
}

// A Go migration that writes only while the lease is held.
func ExampleLocker_Lease() {
	var locker *gooselock.Locker // made by New
	_ = goose.NewGoMigration(7, &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
		if err := locker.Lease().Guard(ctx, tx); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `UPDATE orders SET state = 'new' WHERE state IS NULL`)
		return err
	}}, nil)
}
