package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	_ "modernc.org/sqlite"

	"github.com/sqllock/sqllock"
	gooselock "github.com/sqllock/sqllock/goose"
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
	locker, err := gooselock.New(locks, "nightly")
	if err != nil {
		log.Fatal(err)
	}
	err = locker.Do(ctx, func(context.Context) error { // goose would migrate here
		fmt.Println("held")
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := locks.Close(ctx); err != nil {
		log.Fatal(err)
	}
}
