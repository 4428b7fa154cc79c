package sqllock_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
)

func ExampleLocker_Inspect_waiters() {
	dir, err := os.MkdirTemp("", "waiters")
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
	// Here all run in one process. In production each has its own.
	open := func(label string) *sqllock.Locker {
		locks, err := sqllock.NewUnique(ctx, locksqlite.DB(db), &sqllock.UniqueOptions{Label: label})
		if err != nil {
			log.Fatal(err)
		}
		return locks
	}
	migrate, report, export := open("migrate"), open("report"), open("export")
	defer migrate.Close(ctx)
	defer report.Close(ctx)
	defer export.Close(ctx)

	lease, err := migrate.Lock(ctx, "orders")
	if err != nil {
		log.Fatal(err)
	}
	served := make(chan string)
	wait := func(lock func(ctx context.Context) (*sqllock.Lease, error), who string) {
		lease, err := lock(ctx)
		if err != nil {
			log.Fatal(err)
		}
		served <- who
		_ = lease.Unlock(ctx)
	}
	go wait(func(ctx context.Context) (*sqllock.Lease, error) { return export.Lock(ctx, "orders") }, "export")
	waiting(ctx, migrate, 1)
	go wait(func(ctx context.Context) (*sqllock.Lease, error) { return report.RLock(ctx, "orders") }, "report")

	info := waiting(ctx, migrate, 2)
	fmt.Println(info.Label, "holds the name,", info.Waiters, "wait")
	for _, w := range info.Queue {
		fmt.Println(w.Label, "waits:", w.Kind)
	}
	if err := lease.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-served, "is served first, then", <-served)
	// Output:
	// migrate holds the name, 2 wait
	// export waits: exclusive
	// report waits: shared
	// export is served first, then report
}

// waiting returns what Inspect tells when so many wait for the name.
func waiting(ctx context.Context, locks *sqllock.Locker, n int) sqllock.Info {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		info, err := locks.Inspect(ctx, "orders")
		if err != nil {
			log.Fatal(err)
		}
		if info.Waiters == n {
			return info
		}
		time.Sleep(time.Millisecond)
	}
}
