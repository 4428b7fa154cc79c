//go:build unix

package cronlock_test

import (
	"database/sql"
	"strings"
	"syscall"
	"testing"

	"github.com/sqllock/sqllock/internal/process"
	"github.com/sqllock/sqllock/internal/testdb"
)

// running waits until a process is in the middle of its job, and returns the scheduled time.
func running(t *testing.T, p *process.Process, begun string) (at string) {
	t.Helper()
	words := strings.Fields(p.Read())
	if len(words) != 3 || words[0] != "runs" || words[2] != begun {
		t.Fatalf("it says %q, not that it runs with attempt %s", words, begun)
	}
	return words[1]
}

// left checks that a process leaves a run out, which is complete.
func left(t *testing.T, p *process.Process) {
	t.Helper()
	p.Expect("done")
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
}

func TestARunWhoseProcessIsKilledIsRepeatedByTheNextProcess(t *testing.T) {
	onEach(t, testdb.All(), func(t *testing.T, d *testdb.Database, db *sql.DB) {
		first := start(t, d, asJob)
		at := running(t, first, "1")
		second := start(t, d, asJob)
		first.Signal(syscall.SIGKILL)
		if again := running(t, second, "2"); again != at {
			t.Errorf("it runs for %s, not for %s", again, at)
		}
		if all, _ := count(t, db); all != 0 {
			t.Errorf("%d runs are complete before the second has ended", all)
		}
		second.Tell("wrote")
		left(t, second)
		left(t, start(t, d, asJob))
		if all, _ := count(t, db); all != 1 {
			t.Errorf("%d runs are complete", all)
		}
	})
}

// Not on SQLite: a process that is stopped while it writes keeps all others from writing.
func TestARunWhoseProcessWasPausedWritesNothingAfterTheNextHasRun(t *testing.T) {
	onEach(t, testdb.Engines(), func(t *testing.T, d *testdb.Database, db *sql.DB) {
		first := start(t, d, asJob)
		at := running(t, first, "1")
		first.Signal(syscall.SIGSTOP)
		second := start(t, d, asJob)
		if again := running(t, second, "2"); again != at {
			t.Errorf("it runs for %s, not for %s", again, at)
		}
		first.Signal(syscall.SIGCONT)
		first.Tell("refused")
		second.Tell("wrote")
		left(t, first)
		left(t, second)
		if all, _ := count(t, db); all != 1 {
			t.Errorf("%d runs are complete", all)
		}
	})
}
