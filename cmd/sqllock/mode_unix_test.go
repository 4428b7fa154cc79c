//go:build unix

package main

import (
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/testdb"
)

// onEachMode runs a test in all modes on all databases that are here.
func onEachMode(t *testing.T, test func(t *testing.T, s *clientDB, m mode)) {
	for _, engine := range testdb.All() {
		offered := modes
		if engine == testdb.SQLite {
			offered = []mode{unique}
		}
		onModes(t, engine, offered, test)
	}
}

// onSessionModes runs a test in the modes in which a session keeps a lock.
func onSessionModes(t *testing.T, test func(t *testing.T, s *clientDB, m mode)) {
	for _, engine := range testdb.Engines() {
		onModes(t, engine, []mode{forUpdate, advisory}, test)
	}
}

func onModes(t *testing.T, engine string, offered []mode, test func(t *testing.T, s *clientDB, m mode)) {
	for _, m := range offered {
		t.Run(engine+" "+string(m), func(t *testing.T) {
			t.Parallel()
			test(t, newClientDB(t, testdb.New(t, engine)), m)
		})
	}
}

func TestOneHoldsAtATimeInEachMode(t *testing.T) {
	t.Parallel()
	onEachMode(t, func(t *testing.T, s *clientDB, m mode) {
		token := func(text string) int {
			t.Helper()
			n, err := strconv.Atoi(strings.TrimSpace(text))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		path := filepath.Join(s.home, "token")
		holding := s.shell(t, "echo $SQLLOCK_TOKEN >"+path+"; @UP; sleep 60", "--mode", string(m), "n", "--label", "the holder")
		s.run(t, "run", "--mode", string(m), "--try", "n", "--", "echo", "ran").want(t, exitHeld, "", "held")
		r := result{}
		for wait := 300 * time.Millisecond; r.code != exitHeld && wait < 30*time.Second; wait *= 4 { // a busy machine may not connect in time
			r = s.run(t, "run", "n", "--mode="+string(m), "--wait", wait.String(), "--", "echo", "ran")
		}
		r.want(t, exitHeld, "", "held")
		if m != unique {
			s.run(t, "run", "--try", "n", "--", "echo", "ran").want(t, 0, "ran", "") // another lock
		}
		waiting := s.start(t, "run", "--mode", string(m), "n", "--", "sh", "-c", "echo $SQLLOCK_TOKEN")
		time.Sleep(300 * time.Millisecond)
		holding.end(t).want(t, 128+int(syscall.SIGTERM), "", "")
		r = waiting.wait()
		r.want(t, 0, "", "")
		if first, next := token(file(path)), token(r.out); next <= first {
			t.Errorf("token %d after %d", next, first)
		}
	})
}

func TestThoseWhoShareHoldTogether(t *testing.T) {
	t.Parallel()
	onEachMode(t, func(t *testing.T, s *clientDB, m mode) {
		try := func(code int, out, err string, args ...string) {
			t.Helper()
			s.run(t, append(append([]string{"run", "--try", "--mode", string(m)}, args...), "n", "--", "echo", "ran")...).want(t, code, out, err)
		}
		one := s.shell(t, "@UP; sleep 60", "--mode", string(m), "--shared", "n")
		two := s.shell(t, "@UP; sleep 60", "--mode", string(m), "-s", "--wait", "10s", "n")
		try(0, "ran", "", "--shared")
		try(exitHeld, "", "held")
		if m != forUpdate { // of which nobody knows them
			eventually(t, "two readers are listed", func() bool {
				found := entries(t, s.run(t, "ls", "--json").out)
				return len(found) == 1 && found[0].Readers == 2 && found[0].Mode == m && found[0].State == "held" && found[0].Label == ""
			})
			s.run(t, "ls").want(t, 0, "2 readers", "")
			s.run(t, "inspect", "--mode", string(m), "n").want(t, 0, "readers", "")
			s.run(t, "wait", "--mode", string(m), "--wait", "0", "n").want(t, exitNo, "", "2 readers")
		}
		waiting := s.start(t, "run", "--mode", string(m), "n", "--", "echo", "ran")
		one.end(t)
		try(exitHeld, "", "held")
		two.end(t)
		waiting.wait().want(t, 0, "ran", "")
		writing := s.shell(t, "@UP; sleep 60", "--mode", string(m), "n")
		try(exitHeld, "", "held", "--shared")
		writing.end(t)
		try(0, "ran", "", "--shared")
		try(0, "ran", "")
	})
}

// end ends all sessions on the database but those of the test.
func (s *clientDB) endSessions(t *testing.T) {
	t.Helper()
	if s.d.Engine() == testdb.Postgres {
		s.exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'sqllock'`)
		return
	}
	rows, err := s.db.Query(`SELECT id FROM information_schema.processlist WHERE db = database() AND id <> connection_id() AND user = substring_index(user(), '@', 1)`)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var ids []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if _, err := s.db.Exec("KILL " + id); err != nil && !strings.Contains(err.Error(), "Unknown thread") {
			t.Fatal(err)
		}
	}
}

func TestTheEndOfTheSessionEndsTheCommand(t *testing.T) {
	t.Parallel()
	onSessionModes(t, func(t *testing.T, s *clientDB, m mode) {
		for _, flags := range [][]string{nil, {"--shared"}} {
			args := append([]string{"--mode", string(m), "n"}, flags...)
			p := s.shell(t, "trap 'echo told; exit 3' TERM; @UP; while :; do sleep 0.05; done", args...)
			began := time.Now()
			s.endSessions(t)
			p.wait().want(t, exitLost, "told", "lost")
			if took := time.Since(began); took > 10*time.Second { // the TTL is 30 s
				t.Errorf("it took %v", took)
			}
			s.run(t, "run", "--mode", string(m), "--wait", "10s", "n", "--", "echo", "ran").want(t, 0, "ran", "")
		}
	})
}

func TestTheNameIsFreeWhenRunIsKilled(t *testing.T) {
	t.Parallel()
	onSessionModes(t, func(t *testing.T, s *clientDB, m mode) {
		for _, flags := range [][]string{nil, {"--shared"}} {
			path := filepath.Join(t.TempDir(), "token")
			args := append([]string{"--mode", string(m), "n"}, flags...)
			p := s.shell(t, "echo $SQLLOCK_TOKEN >"+path+"; @UP; sleep 60", args...)
			p.signal(syscall.SIGKILL)
			p.wait()
			began := time.Now()
			r := s.run(t, "run", "--mode", string(m), "n", "--", "sh", "-c", "echo $SQLLOCK_TOKEN")
			r.want(t, 0, "", "")
			if took := time.Since(began); took > 10*time.Second { // the TTL is 30 s
				t.Errorf("the next one came after %v", took)
			}
			old, _ := strconv.Atoi(strings.TrimSpace(file(path)))
			if next, _ := strconv.Atoi(strings.TrimSpace(r.out)); next <= old || old == 0 {
				t.Errorf("token %d after %d", next, old)
			}
		}
	})
}

func TestTheServerEndsARunThatIsPausedForLonger(t *testing.T) {
	t.Parallel()
	onSessionModes(t, func(t *testing.T, s *clientDB, m mode) {
		p := s.shell(t, "trap 'echo told; exit 3' TERM; @UP; while :; do sleep 0.05; done", "--mode", string(m), "--ttl", "2s", "n")
		p.signal(syscall.SIGSTOP)
		stopped := time.Now()
		s.run(t, "run", "--mode", string(m), "--wait", "30s", "n", "--", "echo", "ran").want(t, 0, "ran", "")
		if took := time.Since(stopped); took > 15*time.Second {
			t.Errorf("the next one came after %v", took)
		}
		p.signal(syscall.SIGCONT)
		p.wait().want(t, exitLost, "told", "lost")
	})
}

func TestMySQLNeedsATTLOfTwoSeconds(t *testing.T) {
	t.Parallel()
	onMySQL(t, func(t *testing.T, s *clientDB) {
		for _, m := range []mode{forUpdate, advisory} {
			s.run(t, "run", "--mode", string(m), "--ttl", "1900ms", "n", "--", "echo", "ran").want(t, exitUsage, "", "TTL")
			s.run(t, "run", "--mode", string(m), "--ttl", "2s", "n", "--", "echo", "ran").want(t, 0, "ran", "")
		}
	})
}

func TestOptionsOfAHoldAreThereInEachMode(t *testing.T) {
	t.Parallel()
	onSessionModes(t, func(t *testing.T, s *clientDB, m mode) {
		s.run(t, "run", "--mode", string(m), "--min-hold", "1h", "n", "--", "true").want(t, 0, "", "")
		s.run(t, "run", "--mode", string(m), "--try", "n", "--", "true").want(t, exitHeld, "", "kept until")
		s.run(t, "unlock", "--mode", string(m), "--force", "n").want(t, 0, "kept", "")
		s.run(t, "run", "--mode", string(m), "--max-hold", "500ms", "m", "--", "sleep", "60").want(t, exitLost, "", "MaxHold")
		p := s.shell(t, "@UP; sleep 60", "--mode", string(m), "delayed", "--lock-delay", "1h", "--value", "some text")
		s.run(t, "inspect", "--mode", string(m), "delayed").want(t, 0, `"some text"`, "")
		p.signal(syscall.SIGKILL)
		p.wait()
		s.run(t, "run", "--mode", string(m), "--wait", "5s", "delayed", "--", "true").want(t, exitHeld, "", "kept until")
	})
}

func TestASharedLockHasNoDelayInTheSessionModes(t *testing.T) {
	t.Parallel()
	onSessionModes(t, func(t *testing.T, s *clientDB, m mode) {
		s.run(t, "run", "--mode", string(m), "--shared", "--lock-delay", "1s", "n", "--", "echo", "ran").want(t, exitUsage, "", "LockDelay")
	})
}

func TestARunOfASessionModeHasThreeConnectionsAtMost(t *testing.T) {
	t.Parallel()
	onSessionModes(t, func(t *testing.T, s *clientDB, m mode) {
		count := sessions(t, s.d)
		idle := count() // those of the test
		holding := s.shell(t, "@UP; sleep 60", "--mode", string(m), "--ttl", "9s", "n")
		waiting := s.start(t, "run", "--mode", string(m), "--ttl", "9s", "n", "--", "echo", "ran")
		eventually(t, "both are connected", func() bool { return count()-idle >= 2 })
		least, most := 99, 0
		for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) { // with a renewal
			n := count() - idle
			least, most = min(least, n), max(most, n)
		}
		if least < 2 || most > 2*maxSessionConns {
			t.Errorf("a holder and a waiter have %d to %d connections", least, most)
		}
		holding.end(t)
		waiting.wait().want(t, 0, "ran", "")
		eventually(t, "all connections are closed", func() bool { return count() <= idle })
	})
}

func TestFiftyRunsCountToFiftyInEachMode(t *testing.T) {
	for _, m := range []mode{forUpdate, advisory} {
		for _, engine := range testdb.Engines() {
			t.Run(engine+" "+string(m), func(t *testing.T) {
				d := usualServer(t, engine)
				u := client{home: t.TempDir(), dsn: dsn(t, d, "")}
				u.run(t, "migrate", "up").want(t, 0, "", "")
				countWith(t, 50, u, sessions(t, d), maxSessionConns, "--mode", string(m))
			})
		}
	}
}
