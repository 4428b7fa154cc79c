package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	"github.com/caddyserver/certmagic"
	_ "modernc.org/sqlite"

	"github.com/sqllock/sqllock"
	certmagiclock "github.com/sqllock/sqllock/certmagic"
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
	storage, err := certmagiclock.New(&certmagic.FileStorage{Path: "tls"}, locks, "tls/")
	if err != nil {
		log.Fatal(err)
	}
	if err := storage.Lock(ctx, "nightly"); err != nil {
		log.Fatal(err)
	}
	fmt.Println("held")
	if err := storage.Unlock(ctx, "nightly"); err != nil {
		log.Fatal(err)
	}
	if err := locks.Close(ctx); err != nil {
		log.Fatal(err)
	}
}
