//go:build unix

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/supervise"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
)

func TestRunOnceRunsTheCommandOnceForEachKey(t *testing.T) {
	t.Parallel()
	onEachDB(t, func(t *testing.T, s *clientDB) {
		show := []string{"--", "sh", "-c", "echo $SQLLOCK_NAME $SQLLOCK_KEY $SQLLOCK_ATTEMPT"}
		once := func(key string, command []string, flags ...string) result {
			t.Helper()
			return s.run(t, append(append(append([]string{"run", "--once", key}, flags...), "n"), command...)...)
		}
		once("a", show).want(t, 0, "n a 1\n", "")
		once("a", show).want(t, 0, "", "a was run already")
		once("a", show, "-q").want(t, 0, "", "")
		once("b", []string{"--", "sh", "-c", "exit 3"}).want(t, 3, "", "")
		once("b", show, "--try").want(t, 0, "n b 2\n", "")
		s.run(t, "run", "--once", "b", "other", "--", "echo", "ran").want(t, 0, "ran", "")
		s.run(t, "inspect", "n").want(t, 0, "done key", "")
		if out := s.run(t, "inspect", "--json", "n").out; !strings.Contains(out, `"done_key":"b","done_attempt":2,"done":"2`) {
			t.Errorf("inspect says %s", out)
		}
		out := s.run(t, "ls", "-a", "n").out
		header, row, _ := strings.Cut(out, "\n")
		if at := strings.Index(header, "DONE"); at < 0 || len(row) < at || !regexp.MustCompile(`^\S+ ago`).MatchString(row[at:]) {
			t.Errorf("ls says %s", out)
		}
		s.run(t, "reap", "--key-retention", "1h").want(t, 0, "0 keys purged", "")
		s.exec(t, "UPDATE sqllock_done SET since = 1, at = 1")
		s.run(t, "reap", "--key-retention", "1h").want(t, 0, "3 keys purged", "")
		once("a", show).want(t, 0, "n a 1\n", "")
	})
}

func TestRunOnceWaitsForTheRunOfAnother(t *testing.T) {
	t.Parallel()
	onEachDB(t, func(t *testing.T, s *clientDB) {
		path := filepath.Join(t.TempDir(), "continue")
		first := s.shell(t, "@UP; while ! test -e "+path+"; do sleep 0.05; done", "--once", "a", "n")
		s.run(t, "run", "--once", "a", "--try", "n", "--", "echo", "ran").want(t, exitHeld, "", "held")
		s.run(t, "run", "--once", "a", "--wait", "4s", "-E", "9", "n", "--", "echo", "ran").want(t, 9, "", "held")
		second := s.start(t, "run", "--once", "a", "n", "--", "echo", "ran")
		eventually(t, "a caller waits in the queue", func() bool { return s.waitingFor(t, "n") == 1 })
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		first.wait().want(t, 0, "", "")
		second.wait().want(t, 0, "", "a was run already")
	})
}

func TestRunOnceRunsAgainWhatWasKilledOrLost(t *testing.T) {
	t.Parallel()
	onEachDB(t, func(t *testing.T, s *clientDB) {
		killed := s.shell(t, "@UP; sleep 60", "--once", "a", "--ttl", "1s", "n")
		killed.signal(syscall.SIGKILL)
		killed.wait()
		lost := s.shell(t, "@UP; sleep 60", "--once", "a", "--ttl", "15s", "n")
		s.run(t, "unlock", "n", "--force").want(t, 0, "unlocked n", "")
		lost.wait().want(t, exitLost, "", "revoked")
		ended := s.shell(t, "@UP; sleep 60", "--once", "a", "n")
		ended.end(t)
		s.run(t, "run", "--once", "a", "n", "--", "sh", "-c", "echo $SQLLOCK_ATTEMPT").want(t, 0, "4", "")
	})
}

func TestRunOnceRefusesWhatItCannot(t *testing.T) {
	t.Parallel()
	onEachDB(t, func(t *testing.T, s *clientDB) {
		s.run(t, "run", "--once", "a", "--shared", "n", "--", "true").want(t, exitUsage, "", "--shared")
		s.run(t, "run", "--once", "a", "--mode", "advisory", "n", "--", "true").want(t, exitUsage, "", "--mode unique")
		s.run(t, "run", "--once", "", "n", "--", "true").want(t, exitUsage, "", "the key")
		s.run(t, "reap", "--key-retention", "0s").want(t, exitUsage, "", "--key-retention")
	})
}

// A signal comes when the name is granted and CMD does not run yet.
func TestRunOnceIsEndedByASignalThatComesWithTheGrant(t *testing.T) {
	t.Parallel()
	d := testdb.New(t, testdb.SQLite)
	db := locksqlite.DB(d.Open(t))
	if err := migrations.Up(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	locker, err := sqllock.NewUnique(t.Context(), db, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	r := &runner{app: &app{stderr: os.Stderr}, name: "n", key: &keyRun{key: "a"}, locker: locker}
	r.acquire = func(ctx context.Context) (*sqllock.Lease, error) {
		lease, err := r.waitForLock(ctx)
		cancel(supervise.SignalError{Signal: syscall.SIGTERM})
		return lease, err
	}
	sigs := supervise.CatchSignals()
	defer sigs.Stop()
	lease, err := r.lockUnlessSignalled(ctx, sigs)
	if f := (*failure)(nil); lease != nil || !errors.As(err, &f) || f.code != 128+int(syscall.SIGTERM) {
		t.Errorf("%v, %v; want the exit code of the signal", lease, err)
	}
	if err := locker.Close(t.Context()); err != nil { // it would wait for the lease
		t.Error(err)
	}
}
