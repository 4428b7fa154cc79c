package cronlock_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/sqllock/sqllock"
	cronlock "github.com/sqllock/sqllock/cron"
	"github.com/sqllock/sqllock/internal/testdb"
)

func readmeWrap(ctx context.Context, locks *sqllock.Locker, report func()) (*cron.Cron, error) {
	everyHour, err := cron.ParseStandard("0 * * * *")
	if err != nil {
		return nil, err
	}
	once, err := cronlock.Wrap(ctx, locks, "jobs/report", everyHour, nil)
	if err != nil {
		return nil, err
	}
	c := cron.New()
	c.Schedule(everyHour, cron.NewChain(once).Then(cron.FuncJob(report)))
	c.Start()
	return c, nil
}

func readmeJob(
	ctx context.Context, locks *sqllock.Locker, everyHour cron.Schedule, writeReport func(ctx context.Context, tx *sql.Tx, at time.Time) error,
) (cron.Job, error) {
	job, err := cronlock.NewJob(ctx, locks, "jobs/report", everyHour,
		func(ctx context.Context, run *sqllock.Run, at time.Time) error {
			return run.InTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
				return writeReport(ctx, tx, at)
			})
		}, nil)
	return job, err
}

func readmeMiddleware(ctx context.Context, locks *sqllock.Locker, report func()) (func(), error) {
	everyMinute, err := cronlock.Every(time.Minute)
	if err != nil {
		return nil, err
	}
	once, err := cronlock.Middleware(ctx, locks, "jobs/report", everyMinute, nil)
	if err != nil {
		return nil, err
	}
	report = once(report) // call it every minute
	return report, nil
}

// Two processes have the same schedule. Here they are two Lockers on one file, and a job that is
// due each second.
func Example() {
	dir, err := os.MkdirTemp("", "cron")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	everySecond, err := cronlock.Every(time.Second)
	if err != nil {
		log.Fatal(err)
	}
	ran := make(chan time.Time, 100)
	for range 2 {
		db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "app.db")+"?_pragma=journal_mode(wal)")
		if err != nil {
			log.Fatal(err)
		}
		defer db.Close()
		locks, err := openLocks(ctx, testdb.SQLite, db) // migrations.Up and sqllock.NewUnique
		if err != nil {
			log.Fatal(err)
		}
		defer locks.Close(ctx)
		job, err := cronlock.NewJob(ctx, locks, "report", everySecond, func(_ context.Context, _ *sqllock.Run, at time.Time) error {
			ran <- at
			return nil
		}, nil)
		if err != nil {
			log.Fatal(err)
		}
		c := cron.New()
		c.Schedule(everySecond, job)
		c.Start()
		defer func() { <-c.Stop().Done() }() // before the Locker is closed
	}
	first, second := <-ran, <-ran
	fmt.Println("a later time:", second.After(first))
	// Output:
	// a later time: true
}

func TestTheReadmeShowsCodeThatCompiles(t *testing.T) {
	_, _, _ = readmeWrap, readmeJob, readmeMiddleware // compiled here
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
		indented := "\t" + strings.ReplaceAll(b[1], "\n", "\n\t") + "\n"
		if !strings.Contains(string(source), strings.ReplaceAll(indented, "\n\t\n", "\n\n")) {
			t.Errorf("this is not in example_test.go:\n%s", b[1])
		}
	}
}
