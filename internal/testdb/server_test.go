//go:build unix

package testdb_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/testdb"
)

func TestAKilledServerRestartsWithItsCommitsAndItsAddress(t *testing.T) {
	for _, engine := range testdb.Startable() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			s := testdb.StartServer(t, engine)
			db, addr := s.Open(t), s.Addr()
			mustExec(t, db, `CREATE TABLE t (id INTEGER PRIMARY KEY)`)
			mustExec(t, db, `INSERT INTO t VALUES (1)`)
			s.Kill()
			if err := db.Ping(); err == nil {
				t.Error("a killed server answers")
			}
			if left := inDir(s.Dir()); left != "" {
				t.Errorf("left of it: %s", left)
			}
			s.Restart()
			if got := column(t, s.Open(t), `SELECT id FROM t`); got != "1" || s.Addr() != addr {
				t.Errorf("want row 1 on %s, got %q on %s", addr, got, s.Addr())
			}
		})
	}
}

func TestAServerStopsAndRestartsInOrder(t *testing.T) {
	for _, engine := range testdb.Startable() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			s := testdb.StartServer(t, engine)
			db := s.Open(t)
			if err := db.Ping(); err != nil { // a client that stays must not hold up the stop
				t.Fatal(err)
			}
			s.Stop()
			if err := db.Ping(); err == nil {
				t.Error("a stopped server answers")
			}
			s.Restart()
			s.Restart() // while it runs
			if err := db.Ping(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestARestartWaitsForItsPortToBeFree(t *testing.T) {
	for _, engine := range testdb.Startable() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			s := testdb.StartServer(t, engine)
			s.Stop()
			listener, err := net.Listen("tcp", s.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			time.AfterFunc(2*time.Second, func() { _ = listener.Close() })
			s.Restart()
			if err := s.Open(t).Ping(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAPausedServerHangsUntilItIsResumed(t *testing.T) {
	for _, engine := range testdb.Startable() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			s := testdb.StartServer(t, engine)
			known, fresh := s.Open(t), s.Open(t)
			if err := known.Ping(); err != nil {
				t.Fatal(err)
			}
			s.Pause()
			for _, db := range []interface {
				PingContext(context.Context) error
			}{known, fresh} {
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				if err := db.PingContext(ctx); err == nil {
					t.Error("a paused server answers")
				}
				cancel()
			}
			s.Resume()
			if err := s.Open(t).Ping(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAServerTakesExtraArguments(t *testing.T) {
	for _, engine := range testdb.Startable() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			args, query, want := []string{"--read-only", "--innodb-flush-log-at-trx-commit=2"},
				`SELECT @@read_only * 10 + @@innodb_flush_log_at_trx_commit`, "12"
			if engine == testdb.Postgres {
				args = []string{"-c", "fsync=off", "-c", "default_transaction_read_only=on"}
				query = `SELECT current_setting('fsync') || current_setting('transaction_read_only')`
				want = "offon"
			}
			s := testdb.StartServer(t, engine, args...)
			if got := column(t, s.Open(t), query); got != want {
				t.Errorf("want %q, got %q", want, got)
			}
		})
	}
}

func TestAServerIsRemovedWithItsTestEvenWhenKilledOrPaused(t *testing.T) {
	for _, engine := range testdb.Startable() {
		for name, end := range map[string]func(*testdb.Server){
			"killed": (*testdb.Server).Kill,
			"paused": (*testdb.Server).Pause,
		} {
			t.Run(engine+" "+name, func(t *testing.T) {
				t.Parallel()
				var dir, segment string
				t.Run("use", func(t *testing.T) {
					s := testdb.StartServer(t, engine)
					dir, segment = s.Dir(), sharedMemory(s.Dir())
					if engine == testdb.Postgres && !hasSegment(t, segment) {
						t.Errorf("this test looks for the wrong segment, %q", segment)
					}
					end(s)
				})
				wantNothingLeft(t, dir, segment)
			})
		}
	}
}

// wantNothingLeft waits until a server is gone, with its directory and its shared memory.
// After the end of the test process that takes a moment.
func wantNothingLeft(t *testing.T, dir, segment string) {
	t.Helper()
	left := func() string {
		switch _, err := os.Stat(dir); {
		case err == nil:
			return dir
		case hasSegment(t, segment):
			return "shared memory " + segment
		}
		return inDir(dir)
	}
	for deadline := time.Now().Add(10 * time.Second); left() != ""; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("left: %s", left())
			return
		}
	}
}

// inDir returns the processes with the working directory dir. It needs /proc.
func inDir(dir string) string {
	var found []string
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, link := range links {
		wd, err := os.Readlink(link)
		if err == nil && strings.HasPrefix(strings.TrimSuffix(wd, " (deleted)")+"/", dir+"/") {
			stat, _ := os.ReadFile(filepath.Join(filepath.Dir(link), "stat"))
			found = append(found, string(stat))
		}
	}
	return strings.Join(found, "; ")
}

// sharedMemory returns the number of a Postgres server's System V segment, "none"
// for others.
func sharedMemory(dir string) string {
	text, _ := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	if lines := strings.Split(string(text), "\n"); len(lines) > 6 {
		return strings.Fields(lines[6])[1]
	}
	return "none"
}

func hasSegment(t *testing.T, segment string) bool {
	t.Helper()
	out, err := exec.Command("ipcs", "-m").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[1] == segment {
			return true
		}
	}
	return false
}
