package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	"github.com/golang-migrate/migrate/v4/database/stub"
	_ "modernc.org/sqlite"

	"github.com/sqllock/sqllock"
	migratelock "github.com/sqllock/sqllock/golangmigrate"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
)

func main() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", "file:locks.db?_pragma=journal_mode(wal)")
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
	driver, err := migratelock.New(&stub.Stub{}, locks, "nightly")
	if err != nil {
		log.Fatal(err)
	}
	if err := driver.Lock(); err != nil { // golang-migrate would migrate here
		log.Fatal(err)
	}
	fmt.Println("held")
	if err := driver.Unlock(); err != nil {
		log.Fatal(err)
	}
	if err := locks.Close(ctx); err != nil {
		log.Fatal(err)
	}
}
