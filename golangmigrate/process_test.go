package migratelock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"testing"

	"github.com/golang-migrate/migrate/v4"

	"github.com/sqllock/sqllock/internal/process"
	"github.com/sqllock/sqllock/internal/testdb"
)

// envDSN is set in the environment of a process that a test has started.
const envDSN = "MIGRATELOCK_TEST_DSN"

// replica is what a service does when it starts: it migrates, here as soon as its input is closed.
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
	m, err := newMigrate(migrated, locks)
	if err != nil {
		return err
	}
	defer func() {
		sourceErr, databaseErr := m.Close()
		err = errors.Join(err, sourceErr, databaseErr)
	}()
	fmt.Println("ready")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	if err := m.Up(); !errors.Is(err, migrate.ErrNoChange) {
		return err
	}
	return nil
}

// start starts a replica and returns when it is ready to migrate.
func start(t *testing.T, d *testdb.Database) *process.Process {
	t.Helper()
	p := process.Start(t, envDSN+"="+d.DSN())
	p.Expect("ready")
	return p
}

func TestOfThreeProcessesThatMigrateAtOnceOneDoesAndAllSucceed(t *testing.T) {
	t.Parallel()
	d := testdb.New(t, testdb.Postgres)
	all := []*process.Process{start(t, d), start(t, d), start(t, d)}
	for _, p := range all {
		p.CloseInput() // it begins
	}
	for _, p := range all {
		if err := p.Wait(); err != nil {
			t.Error(err)
		}
	}
	rows, err := d.Open(t).QueryContext(t.Context(), `SELECT version FROM runs ORDER BY version`)
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
