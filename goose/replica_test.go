package gooselock_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	gooselock "github.com/sqllock/sqllock/goose"
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

// process is a replica that migrates once it is told to.
type process struct {
	cmd    *exec.Cmd
	input  io.Closer
	errors bytes.Buffer
}

// start starts a replica and returns when it is ready. It is killed at the end of the
// test, if it still runs.
func start(t *testing.T, d *testdb.Database, mode, way string, takes time.Duration) *process {
	t.Helper()
	p := &process{cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), envEngine+"="+d.Engine(), envDSN+"="+d.DSN(), envMode+"="+mode, envWay+"="+way,
		envTakes+"="+takes.String())
	p.cmd.Stderr = &p.errors
	var err error
	if p.input, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	output, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	if line, err := bufio.NewReader(output).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	return p
}

// tell tells the process to begin.
func (p *process) tell() { _ = p.input.Close() }

// wait returns the end of the process.
func (p *process) wait() error {
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(p.errors.String()))
	}
	return nil
}

// replicaGroups are those that run beside each other: more would take the machine from each other,
// and cost leases their renewals.
var replicaGroups = make(chan struct{}, 2)

// together starts six replicas and tells them to begin at one time.
func together(t *testing.T, d *testdb.Database, mode, way string, takes time.Duration) []*process {
	t.Helper()
	replicaGroups <- struct{}{}
	t.Cleanup(func() { <-replicaGroups })
	all := make([]*process, 6)
	for i := range all {
		all[i] = start(t, d, mode, way, takes)
	}
	for _, p := range all {
		p.tell()
	}
	return all
}
