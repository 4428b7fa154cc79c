package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
)

func ExampleElection_RequestResign() {
	dir, err := os.MkdirTemp("", "election")
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
	locks, err := sqllock.NewUnique(ctx, locksqlite.DB(db), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)

	// The leader listens. Its context ends when somebody asks it to resign.
	leader, err := locks.Election("scheduler", &sqllock.ElectionOptions{Identity: "host-1", ResignOnRequest: true})
	if err != nil {
		log.Fatal(err)
	}
	if err := leader.Campaign(ctx, nil); err != nil {
		log.Fatal(err)
	}
	lease, err := leader.Lease()
	if err != nil {
		log.Fatal(err)
	}
	resigned := make(chan struct{})
	go func() {
		defer close(resigned)
		<-lease.Context().Done()
		fmt.Println("asked:", errors.Is(context.Cause(lease.Context()), sqllock.ErrResignRequested))
		if err := leader.Resign(ctx); err != nil { // it has led until here
			log.Print(err)
		}
	}()

	// Another candidate asks, before host-1 is shut down. ErrResignRefused would name the leader.
	other, err := locks.Election("scheduler", &sqllock.ElectionOptions{Identity: "host-2"})
	if err != nil {
		log.Fatal(err)
	}
	wait, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	fmt.Println("resigned:", other.RequestResign(wait))
	<-resigned
	_, err = other.Leader(ctx)
	fmt.Println(err)
	// Output:
	// asked: true
	// resigned: <nil>
	// sqllock: no leader of "scheduler"
}
