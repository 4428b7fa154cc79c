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

// observer reads the reports of all replicas.
type observer struct {
	t       *testing.T
	reports chan report
	seen    map[string]report // by time
}

// await waits for n reports in terms later than after, and returns the last of them. It
// fails the test if two replicas report at the same time.
func (o *observer) await(n int, after int64) (last report) {
	o.t.Helper()
	for deadline := time.After(30 * time.Second); n > 0; {
		select {
		case last = <-o.reports:
		case <-deadline:
			o.t.Fatalf("no reports in a term later than %d", after)
		}
		if r, ok := o.seen[last.time]; ok && r.pid != last.pid {
			o.t.Errorf("the report of %s was written twice: %+v and %+v", last.time, r, last)
		}
		o.seen[last.time] = last
		if last.term > after {
			n--
		}
	}
	return last
}

func TestOneOfThreeReplicasReportsAndAnotherContinuesAfterItsEnd(t *testing.T) {
	for _, engine := range testdb.All() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			d := testdb.New(t, engine)
			o := &observer{t: t, reports: make(chan report, 1000), seen: make(map[string]report)}
			replicas := make(map[int]*exec.Cmd)
			for range 3 {
				cmd := start(t, d, o.reports)
				replicas[cmd.Process.Pid] = cmd
			}
			first := o.await(2, 0)
			if err := replicas[first.pid].Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			second := o.await(2, first.term)
			if err := replicas[second.pid].Process.Kill(); err != nil {
				t.Fatal(err)
			}
			third := o.await(2, second.term)
			if first.pid == second.pid || second.pid == third.pid {
				t.Errorf("%+v, %+v, %+v", first, second, third)
			}
		})
	}
}
