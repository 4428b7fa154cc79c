package gocronlock_test

import (
	"context"
	"database/sql"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/sqllock/sqllock"
	gocronlock "github.com/sqllock/sqllock/gocron"
	"github.com/sqllock/sqllock/lockmysql"
)

func readmeElector(ctx context.Context, db *sql.DB) error {
	locks, err := sqllock.NewUnique(ctx, lockmysql.DB(db), nil)
	if err != nil {
		return err
	}
	defer locks.Close(ctx)

	election, err := locks.Election("scheduler", nil)
	if err != nil {
		return err
	}
	elector, err := gocronlock.NewElector(election)
	if err != nil {
		return err
	}
	defer elector.Close(ctx)

	s, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	if err != nil {
		return err
	}
	defer s.Shutdown() // before the Elector is closed
	// s.NewJob(…) in all processes alike
	s.Start()
	<-ctx.Done()
	return nil
}

func readmeLocker(locks *sqllock.Locker, report func(context.Context) error) (gocron.Scheduler, error) {
	locker, err := gocronlock.NewLocker(locks, "jobs/", sqllock.MinHold(10*time.Second))
	if err != nil {
		return nil, err
	}
	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		return nil, err
	}
	everyMinute := gocron.CronJob("* * * * *", false)
	_, err = s.NewJob(everyMinute, gocron.NewTask(func(ctx context.Context) error {
		lease, err := locker.Lease("report")
		if err != nil {
			return err
		}
		ctx, cancel := lease.Bind(ctx) // ends with the scheduler or with the lease
		defer cancel()
		return report(ctx)
	}), gocron.WithName("report"))
	return s, err
}

func readmeOnce(
	locks *sqllock.Locker, s gocron.Scheduler, writeReport func(ctx context.Context, tx *sql.Tx, at time.Time) error,
) (gocron.Scheduler, error) {
	everyHour, err := gocronlock.Cron("0 * * * *", false, time.UTC)
	if err != nil {
		return nil, err
	}
	task, err := gocronlock.OnceTask(locks, "jobs/report", everyHour,
		func(ctx context.Context, run *sqllock.Run, at time.Time) error {
			return run.InTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
				return writeReport(ctx, tx, at)
			})
		})
	if err != nil {
		return nil, err
	}
	_, err = s.NewJob(gocron.CronJob("0 * * * *", false), task,
		gocron.WithStartAt(gocron.WithStartImmediately())) // catches up
	return s, err
}

// They are compiled here, and run in the example of this module.
var _, _, _ = readmeElector, readmeLocker, readmeOnce

func TestTheReadmeShowsCodeThatCompiles(t *testing.T) {
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)\n```$").FindAllStringSubmatch(string(readme), -1)
	if len(blocks) != 3 {
		t.Errorf("there are %d blocks", len(blocks))
	}
	for _, b := range blocks {
		if indented := "\t" + strings.ReplaceAll(b[1], "\n", "\n\t") + "\n"; !strings.Contains(string(source), strings.ReplaceAll(indented, "\n\t\n", "\n\n")) {
			t.Errorf("this is not in example_test.go:\n%s", b[1])
		}
	}
}
