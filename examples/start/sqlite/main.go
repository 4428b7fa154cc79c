// Start takes a lock, does its work under it, and ends. The argument is a DSN, such as
// file:locks.db?_pragma=journal_mode(wal)
package main

import (
	"context"
	"database/sql"
	"log"
	"os"

	_ "modernc.org/sqlite"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: start DSN")
	}
	if err := run(context.Background(), os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, dsn string) error {
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := migrations.Up(ctx, locksqlite.DB(db)); err != nil { // safe in many processes at once
		return err
	}
	locks, err := sqllock.NewUnique(ctx, locksqlite.DB(db), nil)
	if err != nil {
		return err
	}
	defer locks.Close(ctx)

	return locks.Do(ctx, "report/daily", func(ctx context.Context, lease *sqllock.Lease) error {
		log.Printf("token %d: I alone write the report", lease.Token())
		return nil // your work; its ctx ends when the lease is lost
	})
}
