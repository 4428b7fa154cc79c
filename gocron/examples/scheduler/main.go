// Command scheduler is a service that writes a report every second. Start it three times:
// one writes the reports, the others stand by. End that one, with Ctrl-C or kill -9, and
// another goes on.
//
//	GOWORK=off go run ./examples/scheduler -dsn postgres://user@localhost/app
//	GOWORK=off go run ./examples/scheduler -dsn 'user@tcp(localhost:3306)/app'
//	GOWORK=off go run ./examples/scheduler -dsn 'file:scheduler.db?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)'
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/go-co-op/gocron/v2"
	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	gocronlock "github.com/sqllock/sqllock/gocron"
	"github.com/sqllock/sqllock/lockmysql"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
)

func main() {
	dsn := flag.String("dsn", "", "a URL of Postgres, a DSN of MySQL or MariaDB, or file: and a path")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *dsn)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "scheduler:", err)
		os.Exit(1)
	}
}

// database is one as unique mode needs it.
type database interface {
	driver.UniqueDatabase
	driver.Migratable
}

func open(dsn string) (*sql.DB, database, error) {
	name, target := "mysql", func(db *sql.DB) database { return lockmysql.DB(db) }
	switch {
	case strings.HasPrefix(dsn, "postgres"):
		name, target = "pgx", func(db *sql.DB) database { return lockpg.DB(db) }
	case strings.HasPrefix(dsn, "file:"):
		name, target = "sqlite", func(db *sql.DB) database { return locksqlite.DB(db) }
	}
	db, err := sql.Open(name, dsn)
	if err != nil {
		return nil, nil, err
	}
	return db, target(db), nil
}

// run serves until ctx ends. What is opened last is closed first: so the jobs are over when
// the next replica begins.
func run(ctx context.Context, dsn string) (err error) {
	db, target, err := open(dsn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := migrations.Up(ctx, target); err != nil {
		return err
	}
	// The TTL is for how long nobody runs jobs after a crash.
	locks, err := sqllock.NewUnique(ctx, target, &sqllock.UniqueOptions{TTL: 5 * time.Second})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closing(locks.Close)) }()
	election, err := locks.Election("scheduler", nil)
	if err != nil {
		return err
	}
	elector, err := gocronlock.NewElector(election)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closing(elector.Close)) }()
	s, err := schedule(election, elector)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Shutdown()) }()
	<-ctx.Done()
	return nil
}

// closing does not look at the context of the program, which has ended.
func closing(do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return do(ctx)
}

// schedule starts a scheduler with one job. All replicas have the same; where it is not the
// leader, gocron skips what is due.
func schedule(election *sqllock.Election, elector *gocronlock.Elector) (gocron.Scheduler, error) {
	s, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	if err != nil {
		return nil, err
	}
	report := func(ctx context.Context) error {
		lease, err := election.Lease()
		if err != nil {
			return err
		}
		ctx, cancel := lease.Bind(ctx) // ends with the scheduler, or when somebody else may lead
		defer cancel()
		fmt.Printf("replica %d: report of %s, in term %d\n", os.Getpid(), time.Now().Format(time.TimeOnly), lease.Token())
		return ctx.Err()
	}
	// On the same second in all replicas.
	_, err = s.NewJob(gocron.CronJob("* * * * * *", true), gocron.NewTask(report), gocron.WithName("report"))
	if err != nil {
		return nil, errors.Join(err, s.Shutdown())
	}
	s.Start()
	return s, nil
}
