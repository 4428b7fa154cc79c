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

func ExampleLocker_Once() {
	dir, err := os.MkdirTemp("", "once")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "app.db")+"?_pragma=journal_mode(wal)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	ctx := context.Background()
	if err := migrations.Up(ctx, locksqlite.DB(db)); err != nil {
		log.Fatal(err)
	}
	locks, err := sqllock.NewUnique(ctx, locksqlite.DB(db), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)
	if _, err := db.Exec(`CREATE TABLE invoice (customer TEXT, month TEXT)`); err != nil {
		log.Fatal(err)
	}

	// All replicas call this, for example at the end of the month.
	bill := func() (ran bool, err error) {
		return locks.Once(ctx, "billing", "2026-11", func(ctx context.Context, run *sqllock.Run) error {
			return run.InTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, `INSERT INTO invoice VALUES ('a', ?1), ('b', ?1)`, run.Key())
				return err
			})
		})
	}
	for range 3 {
		ran, err := bill()
		fmt.Println(ran, err)
	}
	var invoices int
	if err := db.QueryRow(`SELECT count(*) FROM invoice`).Scan(&invoices); err != nil {
		log.Fatal(err)
	}
	fmt.Println(invoices, "invoices")
	// Output:
	// true <nil>
	// false <nil>
	// false <nil>
	// 2 invoices
}
