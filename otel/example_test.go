package otellock_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
	otellock "github.com/sqllock/sqllock/otel"
)

func Example() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	if err := migrations.Up(ctx, locksqlite.DB(db)); err != nil {
		log.Fatal(err)
	}

	telemetry, err := otellock.New(nil) // measures for the providers of the process
	if err != nil {
		log.Fatal(err)
	}
	hooks := telemetry.Hooks(sqllock.Hooks{})
	locks, err := sqllock.NewUnique(ctx, locksqlite.DB(db), &sqllock.UniqueOptions{Hooks: &hooks})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = locks.Close(ctx) }()

	if err := locks.Do(ctx, "nightly", func(context.Context, *sqllock.Lease) error {
		fmt.Println("held")
		return nil
	}); err != nil {
		log.Fatal(err)
	}
	// Output: held
}
