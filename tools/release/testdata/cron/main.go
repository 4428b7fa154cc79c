package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"time"

	"github.com/robfig/cron/v3"
	_ "modernc.org/sqlite"

	"github.com/sqllock/sqllock"
	cronlock "github.com/sqllock/sqllock/cron"
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
	schedule, err := cronlock.Every(time.Hour)
	if err != nil {
		log.Fatal(err)
	}
	once, err := cronlock.Wrap(ctx, locks, "nightly", schedule, nil)
	if err != nil {
		log.Fatal(err)
	}
	cron.NewChain(once).Then(cron.FuncJob(func() { fmt.Println("held") })).Run()
	if err := locks.Close(ctx); err != nil {
		log.Fatal(err)
	}
}
