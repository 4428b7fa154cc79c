//go:build linux && galera

package galera

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/lockmysql"
	"github.com/sqllock/sqllock/migrations"
)

// The environment of the processes that tests start.
const (
	envDo  = "GALERA_TEST_DO" // up or down; else it is no such process
	envDSN = "GALERA_TEST_DSN"
)

// migrate is what such a process does, when its input ends.
func migrate(do, dsn string) error {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if do == "down" {
		return migrations.Down(ctx, lockmysql.DB(db))
	}
	return migrations.Up(ctx, lockmysql.DB(db))
}

// together has n processes migrate at one time, on all nodes.
func together(t *testing.T, n int, do string) {
	t.Helper()
	began := time.Now()
	var all []*exec.Cmd
	var inputs []io.Closer
	for i := range n {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), envDo+"="+do, envDSN+"="+dsn(i%3))
		cmd.Stderr = os.Stderr
		input, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		all, inputs = append(all, cmd), append(inputs, input)
	}
	for _, input := range inputs {
		_ = input.Close()
	}
	for _, cmd := range all {
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", do, err)
		}
	}
	t.Logf("%s by %d processes: %v", do, n, time.Since(began).Round(time.Millisecond))
}

// tables returns how many of ours a node has.
func tables(t *testing.T, db *sql.DB) int64 {
	t.Helper()
	settle(t, db)
	return number(t, db, `SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = database() AND table_name LIKE 'sqllock%'`)
}

// checkUsable takes a name on each node.
func checkUsable(t *testing.T) {
	t.Helper()
	for i := range cluster.Nodes() {
		db := open(t, i)
		settle(t, db)
		locks, err := sqllock.NewUnique(t.Context(), lockmysql.DB(db), &sqllock.UniqueOptions{Logger: logTo(io.Discard)})
		if err != nil {
			t.Errorf("node %d: %v", i, err)
			continue
		}
		err = locks.Do(t.Context(), fmt.Sprint("usable ", i), func(context.Context, *sqllock.Lease) error { return nil })
		if err != nil {
			t.Errorf("node %d: %v", i, err)
		}
		if err := locks.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestProcessesOnAllNodesMigrateAtOnce(t *testing.T) {
	db := open(t, 0)
	for round := range 3 {
		together(t, 4, "down") // also what an earlier test has left
		if left := tables(t, db); left > 0 {
			t.Errorf("round %d: Down has left %d tables", round, left)
		}
		together(t, 12, "up")
		checkUsable(t)
	}
}

// committed is how many transactions a node has got of the cluster.
func committed(t *testing.T, db *sql.DB) int64 {
	t.Helper()
	settle(t, db)
	return number(t, db, `SELECT VARIABLE_VALUE FROM information_schema.global_status WHERE VARIABLE_NAME = 'WSREP_LAST_COMMITTED'`)
}

func TestUpChangesNothingIfTheTablesAreCurrent(t *testing.T) {
	db := open(t, 0)
	together(t, 1, "up")
	before := committed(t, db)
	together(t, 6, "up")
	if after := committed(t, db); after != before {
		t.Errorf("%d transactions or statements have gone to all nodes", after-before)
	}
}

func TestWhatAKilledProcessLeftIsFinishedOnAnotherNode(t *testing.T) {
	db := open(t, 1)
	for i, after := range []time.Duration{20 * time.Millisecond, 60 * time.Millisecond, 120 * time.Millisecond} {
		together(t, 1, "down")
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), envDo+"=up", envDSN+"="+dsn(0))
		if err := cmd.Start(); err != nil { // its input is empty
			t.Fatal(err)
		}
		for deadline := time.Now().Add(20 * time.Second); tables(t, db) == 0 && time.Now().Before(deadline); {
			time.Sleep(5 * time.Millisecond)
		}
		time.Sleep(after)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		t.Logf("round %d: killed with %d tables", i, tables(t, db))
		together(t, 3, "up")
		checkUsable(t)
	}
}
