package sqllock_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
)

// stock returns a database with the tables of the locks and one of the application, and a
// Locker. The function that it returns closes both.
func stock(ctx context.Context) (*sql.DB, *sqllock.Locker, func()) {
	dir, err := os.MkdirTemp("", "stock")
	if err != nil {
		log.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "app.db")+"?_pragma=journal_mode(wal)")
	if err != nil {
		log.Fatal(err)
	}
	if err := migrations.Up(ctx, locksqlite.DB(db)); err != nil {
		log.Fatal(err)
	}
	locks, err := sqllock.NewUnique(ctx, locksqlite.DB(db), nil)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.Exec(`CREATE TABLE stock (item TEXT, n INT); INSERT INTO stock VALUES ('a', 10)`); err != nil {
		log.Fatal(err)
	}
	return db, locks, func() {
		_ = locks.Close(ctx)
		_ = db.Close()
		_ = os.RemoveAll(dir)
	}
}

// The name is free in the moment in which the sale is in the database.
func ExampleLease_UnlockInTx() {
	ctx := context.Background()
	db, locks, closeAll := stock(ctx)
	defer closeAll()

	err := locks.Do(ctx, "stock/a", func(ctx context.Context, lease *sqllock.Lease) error {
		// Work that needs the lock, and no transaction, comes here.
		return lease.UnlockInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `UPDATE stock SET n = n - 1 WHERE item = 'a'`)
			return err
		})
	})
	var n int
	_ = db.QueryRow(`SELECT n FROM stock WHERE item = 'a'`).Scan(&n)
	fmt.Println(n, err)
	// Output: 9 <nil>
}

// In a transaction of your own, UnlockTx is the last statement. Unlock comes after it,
// whether the transaction was committed or not.
func ExampleLease_UnlockTx() {
	ctx := context.Background()
	db, locks, closeAll := stock(ctx)
	defer closeAll()

	sell := func() (err error) {
		lease, err := locks.Lock(ctx, "stock/a")
		if err != nil {
			return err
		}
		defer func() {
			if unlockErr := lease.Unlock(ctx); err == nil {
				err = unlockErr
			}
		}()
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if err := lease.Guard(ctx, tx); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE stock SET n = n - 1 WHERE item = 'a'`); err != nil {
			return err
		}
		if err := lease.UnlockTx(ctx, tx); err != nil {
			return err
		}
		return tx.Commit()
	}
	fmt.Println(sell(), sell())
	// Output: <nil> <nil>
}
