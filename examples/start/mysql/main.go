// Start takes a lock, does its work under it, and ends. DATABASE_URL is a DSN, such as
// user@tcp(localhost:3306)/app
package main

import (
	"context"
	"database/sql"
	"log"
	"os"
	"os/signal"
	"syscall"

	_ "github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/lockmysql"
	"github.com/sqllock/sqllock/migrations"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Getenv("DATABASE_URL")); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, dsn string) error {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := migrations.Up(ctx, lockmysql.DB(db)); err != nil { // safe in many processes at once
		return err
	}
	locks, err := sqllock.NewUnique(ctx, lockmysql.DB(db), nil)
	if err != nil {
		return err
	}
	defer locks.Close(ctx) // before db.Close, and right when a signal has ended ctx

	return locks.Do(ctx, "report/daily", func(ctx context.Context, lease *sqllock.Lease) error {
		log.Printf("token %d: I alone write the report", lease.Token())
		return nil // your work; its ctx ends when the lease is lost
	})
}
