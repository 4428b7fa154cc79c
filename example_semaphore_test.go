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

func ExampleLocker_Semaphore() {
	dir, err := os.MkdirTemp("", "semaphore")
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

	// At most two imports run at the same time, in all processes.
	imports, err := locks.Semaphore("imports", 2, nil)
	if err != nil {
		log.Fatal(err)
	}
	var leases []*sqllock.Lease
	for {
		lease, err := imports.TryAcquire(ctx)
		if errors.Is(err, sqllock.ErrHeld) {
			fmt.Println("no permit is free")
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("slot", lease.Slot())
		leases = append(leases, lease)
	}
	if err := leases[0].Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	err = imports.Do(ctx, func(_ context.Context, lease *sqllock.Lease) error {
		fmt.Println("slot", lease.Slot(), "again, with a higher token:", lease.Token() > leases[1].Token())
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := leases[1].Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// slot 0
	// slot 1
	// no permit is free
	// slot 0 again, with a higher token: true
}
