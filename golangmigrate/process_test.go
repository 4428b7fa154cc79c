package migratelock_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/process"
	"github.com/sqllock/sqllock/internal/testdb"
)

// The environment of the processes that tests start.
const (
	envDSN  = "MIGRATELOCK_TEST_DSN"  // else it is no such process
	envKind = "MIGRATELOCK_TEST_KIND" // where it waits for a line of its input

	beforeAll = "before all" // it waits before the migrations, with the lock
	inTheMid  = "in the mid" // and in the first of them
)

// replica is what a service does when it starts: it migrates, here as soon as it gets a line, or its
// input is closed.
func replica() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	db, err := sql.Open("pgx", os.Getenv(envDSN))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	locks, err := openLocks(ctx, db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locks.Close(ctx)) }()
	migrated, err := sql.Open("pgx", os.Getenv(envDSN)) // golang-migrate closes it
	if err != nil {
		return err
	}
	in, kind, ttl := bufio.NewScanner(os.Stdin), os.Getenv(envKind), longTTL
	if kind != "" {
		ttl = shortTTL
	}
	m, err := newMigrate(migrated, locks, func(d database.Driver) database.Driver {
		return &slowDriver{d, kind, in}
	}, sqllock.TTL(ttl), sqllock.Wait(testTimeout))
	if err != nil {
		return err
	}
	m.LockTimeout = 2 * testTimeout
	defer func() {
		sourceErr, databaseErr := m.Close()
		err = errors.Join(err, sourceErr, databaseErr)
	}()
	fmt.Println("ready")
	in.Scan()
	return migrateUp(m, in)
}

// migrateUp says how a migration ends. If it finds one that was broken off, the next line has it
// begin anew, as an operator does who has looked.
func migrateUp(m *migrate.Migrate, in *bufio.Scanner) error {
	err := m.Up()
	var dirty migrate.ErrDirty
	switch {
	case err == nil:
		fmt.Println("migrated")
	case errors.Is(err, migrate.ErrNoChange):
		fmt.Println("no change")
	case errors.Is(err, sqllock.ErrLost):
		fmt.Println("lost")
	case errors.As(err, &dirty) && in.Err() == nil:
		fmt.Println("dirty", dirty.Version)
		in.Scan()
		if err := m.Force(database.NilVersion); err != nil {
			return err
		}
		return migrateUp(m, in)
	default:
		return err
	}
	return nil
}

// slowDriver is a driver that waits for a line, under the lock.
type slowDriver struct {
	database.Driver
	where string
	in    *bufio.Scanner
}

func (d *slowDriver) Version() (version int, dirty bool, err error) {
	version, dirty, err = d.Driver.Version()
	d.wait(beforeAll)
	return version, dirty, err
}

func (d *slowDriver) Run(migration io.Reader) error {
	d.wait(inTheMid)
	return d.Driver.Run(migration)
}

func (d *slowDriver) wait(where string) {
	if d.where == where {
		d.where = ""
		fmt.Println(where)
		d.in.Scan()
	}
}

const (
	// shortTTL is the TTL of processes that wait for a line with the lock, and are killed or paused.
	shortTTL = 2 * time.Second
	// longTTL is the TTL of the others. None of them loses the lock because the machine is away for a
	// while.
	longTTL = 10 * time.Second
)

// start starts a replica and returns when it is ready to migrate.
func start(t *testing.T, d *testdb.Database, kind string) *process.Process {
	t.Helper()
	p := process.Start(t, envDSN+"="+d.DSN(), envKind+"="+kind)
	p.Expect("ready")
	return p
}

func TestOfThreeProcessesThatMigrateAtOnceOneDoesAndAllSucceed(t *testing.T) {
	t.Parallel()
	d := testdb.New(t, testdb.Postgres)
	all := []*process.Process{start(t, d, ""), start(t, d, ""), start(t, d, "")}
	for _, p := range all {
		p.CloseInput() // it begins
	}
	for _, p := range all {
		if err := p.Wait(); err != nil {
			t.Error(err)
		}
	}
	checkMigrated(t, d)
}

// checkMigrated checks that each migration has run once, and nobody has begun one anew.
func checkMigrated(t *testing.T, d *testdb.Database) {
	t.Helper()
	db := d.Open(t)
	var version int
	var dirty bool
	if err := db.QueryRowContext(t.Context(), `SELECT version, dirty FROM schema_migrations`).Scan(&version, &dirty); err != nil || version != 2 || dirty {
		t.Errorf("version %d, dirty %v: %v", version, dirty, err)
	}
	rows, err := db.QueryContext(t.Context(), `SELECT version FROM runs ORDER BY version`)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var versions []int
	for rows.Next() {
		var v int
		if err := rows.Scan(&v); err != nil {
			t.Fatal(err)
		}
		versions = append(versions, v)
	}
	if err := rows.Err(); err != nil || !slices.Equal(versions, []int{1, 2}) {
		t.Errorf("these migrations have run: %v; %v", versions, err)
	}
}
