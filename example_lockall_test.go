package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
)

func ExampleLocker_LockAll() {
	dir, err := os.MkdirTemp("", "lockall")
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

	// The order of the names does not matter: two transfers in opposite directions wait for
	// each other's end, and never for each other.
	leases, err := locks.LockAll(ctx, []string{"account/carla", "account/ben"})
	if err != nil {
		log.Fatal(err)
	}
	defer leases.Unlock(ctx)
	fmt.Println(leases.Names())

	// One of the names is held, so another caller gets none.
	_, err = locks.TryLockAll(ctx, []string{"account/anna", "account/ben"})
	var held *sqllock.HeldError
	if errors.As(err, &held) {
		fmt.Println(held.Name, "is held")
	}

	// The transaction is refused unless both leases are the current ones.
	err = leases.InTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		return nil // move the money
	})
	fmt.Println(err)
	// Output:
	// [account/ben account/carla]
	// account/ben is held
	// <nil>
}
