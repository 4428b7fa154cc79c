package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	"github.com/go-co-op/gocron/v2"
	_ "modernc.org/sqlite"

	"github.com/sqllock/sqllock"
	gocronlock "github.com/sqllock/sqllock/gocron"
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
	locker, err := gocronlock.NewLocker(locks, "jobs/")
	if err != nil {
		log.Fatal(err)
	}
	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		log.Fatal(err)
	}
	held := make(chan error)
	if err := addJob(s, locker, held); err != nil {
		log.Fatal(err)
	}
	s.Start()
	if err := <-held; err != nil {
		log.Fatal(err)
	}
	if err := s.Shutdown(); err != nil {
		log.Fatal(err)
	}
	if err := locks.Close(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("held")
}

// addJob adds a job that runs at once and reports whether it holds its lock.
func addJob(s gocron.Scheduler, locker *gocronlock.Locker, held chan<- error) error {
	_, err := s.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), gocron.NewTask(func() {
		_, err := locker.Lease("nightly")
		held <- err
	}), gocron.WithName("nightly"))
	return err
}
