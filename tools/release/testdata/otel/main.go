package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	_ "modernc.org/sqlite"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
	otellock "github.com/sqllock/sqllock/otel"
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
	telemetry, err := otellock.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	hooks := telemetry.Hooks(sqllock.Hooks{})
	locks, err := sqllock.NewUnique(ctx, locksqlite.DB(db), &sqllock.UniqueOptions{Hooks: &hooks})
	if err != nil {
		log.Fatal(err)
	}
	err = locks.Do(ctx, "nightly", func(context.Context, *sqllock.Lease) error {
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
