//go:build unix

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/testdb"
)

// envReplica makes the test binary the program.
const envReplica = "SCHEDULER_TEST_REPLICA"

func TestMain(m *testing.M) {
	if os.Getenv(envReplica) != "" {
		main()
		return
	}
	testdb.Main(m)
}

// report is one line of a replica.
type report struct {
	pid  int
	time string
	term int64
}

// start starts a replica, which is killed at the end of the test if it still runs.
func start(t *testing.T, d *testdb.Database, reports chan<- report) *exec.Cmd {
	t.Helper()
	var errors bytes.Buffer
	cmd := exec.Command(os.Args[0], "-dsn", d.DSN())
	cmd.Env = append(os.Environ(), envReplica+"=1")
	cmd.Stderr = &errors
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var r report
			if _, err := fmt.Sscanf(lines.Text(), "replica %d: report of %8s, in term %d", &r.pid, &r.time, &r.term); err != nil {
				t.Errorf("%q: %v", lines.Text(), err)
			}
			reports <- r
		}
	}()
	t.Cleanup(func() {
		interrupted := cmd.Process.Signal(os.Interrupt) == nil
		timer := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
		defer timer.Stop()
		<-read
		if err := cmd.Wait(); err != nil && interrupted && cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Errorf("%v: %s", err, errors.String())
		}
	})
	return cmd
}

func TestOfThreeReplicasOneReportsEachSecondAndAnotherGoesOn(t *testing.T) {
	for _, engine := range testdb.All() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			d := testdb.New(t, engine)
			reports := make(chan report, 1000)
			replicas := make(map[int]*exec.Cmd)
			for range 3 {
				cmd := start(t, d, reports)
				replicas[cmd.Process.Pid] = cmd
			}
			seen := make(map[string]report)
			await := func(n int, after int64) (last report) {
				t.Helper()
				for deadline := time.After(30 * time.Second); n > 0; {
					select {
					case last = <-reports:
					case <-deadline:
						t.Fatalf("no reports in a term later than %d", after)
					}
					if r, ok := seen[last.time]; ok && r.pid != last.pid {
						t.Errorf("the report of %s was written twice: %+v and %+v", last.time, r, last)
					}
					seen[last.time] = last
					if last.term > after {
						n--
					}
				}
				return last
			}
			first := await(2, 0)
			if err := replicas[first.pid].Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			second := await(2, first.term)
			if err := replicas[second.pid].Process.Kill(); err != nil {
				t.Fatal(err)
			}
			third := await(2, second.term)
			if first.pid == second.pid || second.pid == third.pid {
				t.Errorf("%+v, %+v, %+v", first, second, third)
			}
		})
	}
}
