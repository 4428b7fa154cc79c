package gocronlock_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/sqllock/sqllock"
	gocronlock "github.com/sqllock/sqllock/gocron"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
)

func ExampleOnceTask() {
	dir, err := os.MkdirTemp("", "once")
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

	// Two schedulers, as two replicas have them. Both have missed the beginning of the year.
	everyYear, err := gocronlock.Cron("0 0 1 1 *", false, time.UTC)
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan error)
	for range 2 {
		locks, err := sqllock.NewUnique(ctx, locksqlite.DB(db), nil)
		if err != nil {
			log.Fatal(err)
		}
		defer locks.Close(ctx)
		report, err := gocronlock.OnceTask(locks, "jobs/report", everyYear,
			func(ctx context.Context, run *sqllock.Run, at time.Time) error {
				fmt.Println("ran once")
				return nil
			})
		if err != nil {
			log.Fatal(err)
		}
		s, err := gocron.NewScheduler(gocron.WithLocation(time.UTC))
		if err != nil {
			log.Fatal(err)
		}
		defer s.Shutdown()
		_, err = s.NewJob(gocron.CronJob("0 0 1 1 *", false), report,
			gocron.WithStartAt(gocron.WithStartImmediately()), // catches up
			gocron.WithEventListeners(
				gocron.AfterJobRuns(func(uuid.UUID, string) { ended <- nil }),
				gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { ended <- err })))
		if err != nil {
			log.Fatal(err)
		}
		s.Start()
	}
	for range 2 {
		if err := <-ended; err != nil {
			log.Fatal(err)
		}
	}
	// Output: ran once
}
