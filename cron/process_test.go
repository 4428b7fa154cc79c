package cronlock_test

import (
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
)

// The environment of the processes that tests start.
const (
	envEngine = "CRONLOCK_TEST_ENGINE" // else it is no such process
	envDSN    = "CRONLOCK_TEST_DSN"
)

const runsTable = `CREATE TABLE runs (at VARCHAR(40) NOT NULL)`

// replica is a process with a cron. It writes each time that it runs in a table, in the transaction
// that completes the run, until its input is closed.
func replica() (err error) {
	engine := os.Getenv(envEngine)
	name, insert := "mysql", `INSERT INTO runs VALUES (?)`
	switch engine {
	case testdb.Postgres:
		name, insert = "pgx", `INSERT INTO runs VALUES ($1)`
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
	everySecond, err := cronlock.Every(time.Second)
	if err != nil {
		return err
	}
	job, err := cronlock.NewJob(ctx, locks, "tick", everySecond, func(ctx context.Context, run *sqllock.Run, at time.Time) error {
		return run.InTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, insert, sqllock.TimeKey(at))
			return err
		})
	}, nil)
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

// start starts a replica, and returns the function that ends it.
func start(t *testing.T, d *testdb.Database) (end func()) {
	t.Helper()
	p := process.Start(t, envEngine+"="+d.Engine(), envDSN+"="+d.DSN())
	p.Expect("ready")
	return func() {
		p.CloseInput()
		if err := p.Wait(); err != nil {
			t.Error(err)
		}
	}
}

func TestEachSecondRunsOnceAmongThreeProcesses(t *testing.T) {
	for _, engine := range testdb.All() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			d := testdb.New(t, engine)
			db := d.Open(t)
			locks, err := openLocks(t.Context(), engine, db)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = locks.Close(t.Context()) }()
			if _, err := db.ExecContext(t.Context(), runsTable); err != nil {
				t.Fatal(err)
			}
			ends := []func(){start(t, d), start(t, d), start(t, d)}
			count := func() (all, different int) {
				err := db.QueryRowContext(t.Context(), `SELECT count(*), count(DISTINCT at) FROM runs`).Scan(&all, &different)
				if err != nil {
					t.Fatal(err)
				}
				return all, different
			}
			for deadline := time.Now().Add(testTimeout); ; time.Sleep(50 * time.Millisecond) {
				if all, _ := count(); all >= 3 {
					break
				}
				if time.Now().After(deadline) {
					t.Fatal("it does not run")
				}
			}
			for _, end := range ends {
				end()
			}
			if all, different := count(); all != different {
				t.Errorf("%d runs of %d times", all, different)
			}
		})
	}
}
