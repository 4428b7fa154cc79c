package gooselock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	gooselock "github.com/sqllock/sqllock/goose"
	"github.com/sqllock/sqllock/internal/process"
	"github.com/sqllock/sqllock/internal/testdb"
)

// The environment of the processes that tests start.
const (
	envEngine = "GOOSELOCK_TEST_ENGINE" // else it is no such process
	envDSN    = "GOOSELOCK_TEST_DSN"
	envMode   = "GOOSELOCK_TEST_MODE"
	envWay    = "GOOSELOCK_TEST_WAY"
	envTakes  = "GOOSELOCK_TEST_TAKES"
)

// replica is what a process does that a test has started: what a service does when it
// starts.
func replica() (err error) {
	engine, name := os.Getenv(envEngine), "mysql"
	if engine == testdb.Postgres {
		name = "pgx"
	}
	takes, err := time.ParseDuration(os.Getenv(envTakes))
	if err != nil {
		return err
	}
	db, err := sql.Open(name, os.Getenv(envDSN))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	fmt.Println("ready")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	locks, err := openLocks(ctx, os.Getenv(envMode), target(engine, db), shortTTL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locks.Close(ctx)) }()
	// With a value, every mode notes who holds.
	l, err := gooselock.New(locks, lockName, sqllock.Value([]byte("migrating")))
	if err != nil {
		return err
	}
	p, err := newProvider(engine, db, os.Getenv(envWay), l, takes)
	if err != nil {
		return err
	}
	return l.Do(ctx, up(p))
}

// start starts a replica, which migrates when its input is closed, and returns when it is ready.
func start(t *testing.T, d *testdb.Database, mode, way string, takes time.Duration) *process.Process {
	t.Helper()
	p := process.Start(t, envEngine+"="+d.Engine(), envDSN+"="+d.DSN(), envMode+"="+mode, envWay+"="+way,
		envTakes+"="+takes.String())
	p.Expect("ready")
	return p
}

// replicaGroups are those that run beside each other: more would take the machine from each other,
// and cost leases their renewals.
var replicaGroups = make(chan struct{}, 2)

// together starts six replicas and tells them to begin at one time.
func together(t *testing.T, d *testdb.Database, mode, way string, takes time.Duration) []*process.Process {
	t.Helper()
	replicaGroups <- struct{}{}
	t.Cleanup(func() { <-replicaGroups })
	all := make([]*process.Process, 6)
	for i := range all {
		all[i] = start(t, d, mode, way, takes)
	}
	for _, p := range all {
		p.CloseInput()
	}
	return all
}
