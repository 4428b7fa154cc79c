package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
	_ "modernc.org/sqlite"

	k8slock "github.com/sqllock/sqllock/k8s"
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
	lock, err := k8slock.New(ctx, locksqlite.DB(db), "nightly", "host", nil)
	if err != nil {
		log.Fatal(err)
	}
	record := resourcelock.LeaderElectionRecord{HolderIdentity: lock.Identity()}
	if err := lock.Create(ctx, record); err != nil {
		log.Fatal(err)
	}
	if lock.Token() <= 0 {
		log.Fatal("it has no token")
	}
	fmt.Println("held")
}
