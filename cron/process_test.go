package cronlock_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/robfig/cron/v3"
	_ "modernc.org/sqlite"

	"github.com/sqllock/sqllock"
	cronlock "github.com/sqllock/sqllock/cron"
	"github.com/sqllock/sqllock/internal/process"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/migrations"
)

// The environment of the processes that tests start.
const (
	envEngine = "CRONLOCK_TEST_ENGINE" // else it is no such process
	envDSN    = "CRONLOCK_TEST_DSN"
	envKind   = "CRONLOCK_TEST_KIND"

	asCron = "cron" // runs what is due each second, until its input is closed
	asJob  = "job"  // runs once what was due last, and waits in the middle for a line of its input
)

const runsTable = `CREATE TABLE runs (at VARCHAR(40) NOT NULL)`

// replica is a process with a job, which writes its scheduled time in a table, in the transaction
// that completes the run.
func replica() (err error) {
	engine := os.Getenv(envEngine)
	name := "mysql"
	switch engine {
	case testdb.Postgres:
		name = "pgx"
	case testdb.SQLite:
		name = "sqlite"
	}
	db, err := sql.Open(name, os.Getenv(envDSN))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	locks, err := openLocks(ctx, engine, db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locks.Close(ctx)) }()
	if os.Getenv(envKind) == asJob {
		return runJob(ctx, locks)
	}
	return runCron(ctx, locks)
}

func runCron(ctx context.Context, locks *sqllock.Locker) error {
	everySecond, err := cronlock.Every(time.Second)
	if err != nil {
		return err
	}
	job, err := cronlock.NewJob(ctx, locks, "tick", everySecond, write, nil)
	if err != nil {
		return err
	}
	c := cron.New()
	c.Schedule(everySecond, job)
	c.Start()
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	<-c.Stop().Done()
	return err
}

// write is the job.
func write(ctx context.Context, run *sqllock.Run, at time.Time) error {
	return run.InTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, fmt.Sprintf(`INSERT INTO runs VALUES ('%s')`, sqllock.TimeKey(at)))
		return err
	})
}

func runJob(ctx context.Context, locks *sqllock.Locker) error {
	everyYear, err := cron.ParseStandard("0 0 1 1 *")
	if err != nil {
		return err
	}
	in := bufio.NewScanner(os.Stdin)
	job, err := cronlock.NewJob(ctx, locks, "year", everyYear, func(ctx context.Context, run *sqllock.Run, at time.Time) error {
		fmt.Println("runs", sqllock.TimeKey(at), run.Attempt())
		in.Scan()
		err := write(context.WithoutCancel(ctx), run, at) // the database is to decide
		switch {
		case err == nil:
			fmt.Println("wrote")
		case errors.Is(err, sqllock.ErrLost), errors.Is(err, sqllock.ErrFenced):
			fmt.Println("refused")
		default:
			fmt.Println(err)
		}
		return err
	}, &cronlock.Options{Lock: []sqllock.LockOption{sqllock.TTL(jobTTL)}, Error: func(error) {}})
	if err != nil {
		return err
	}
	job.Run()
	fmt.Println("done")
	return nil
}

// jobTTL is that of a job which a test kills or pauses.
const jobTTL = 2 * time.Second

// start starts a process.
func start(t *testing.T, d *testdb.Database, kind string) *process.Process {
	t.Helper()
	return process.Start(t, envEngine+"="+d.Engine(), envDSN+"="+d.DSN(), envKind+"="+kind)
}

// onEach runs a test on each database, with the tables made.
func onEach(t *testing.T, engines []string, test func(t *testing.T, d *testdb.Database, db *sql.DB)) {
	t.Parallel()
	for _, engine := range engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			d := testdb.New(t, engine)
			db := d.Open(t)
			if err := migrations.Up(t.Context(), target(engine, db)); err != nil {
				t.Fatal(err)
			}
			if _, err := db.ExecContext(t.Context(), runsTable); err != nil {
				t.Fatal(err)
			}
			test(t, d, db)
		})
	}
}

// count returns how often jobs have written, and how many times.
func count(t *testing.T, db *sql.DB) (all, different int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), `SELECT count(*), count(DISTINCT at) FROM runs`).Scan(&all, &different); err != nil {
		t.Fatal(err)
	}
	return all, different
}

func TestEachSecondRunsOnceAmongThreeProcesses(t *testing.T) {
	onEach(t, testdb.All(), func(t *testing.T, d *testdb.Database, db *sql.DB) {
		var processes []*process.Process
		for range 3 {
			p := start(t, d, asCron)
			p.Expect("ready")
			processes = append(processes, p)
		}
		for deadline := time.Now().Add(testTimeout); ; time.Sleep(50 * time.Millisecond) {
			if all, _ := count(t, db); all >= 3 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("it does not run")
			}
		}
		for _, p := range processes {
			p.CloseInput()
			if err := p.Wait(); err != nil {
				t.Error(err)
			}
		}
		if all, different := count(t, db); all != different {
			t.Errorf("%d runs of %d times", all, different)
		}
	})
}
