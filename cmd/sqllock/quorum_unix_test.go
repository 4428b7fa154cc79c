//go:build unix

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sqllock/sqllock/internal/testdb"
)

// newQuorumClient returns a client of a quorum over three SQLite files. The last of them cannot be
// made while its directory, which it returns, does not exist.
func newQuorumClient(t *testing.T) (u client, missing string) {
	t.Helper()
	dir := t.TempDir()
	missing = filepath.Join(dir, "missing")
	for _, file := range []string{filepath.Join(dir, "a.db"), filepath.Join(dir, "b.db"), filepath.Join(missing, "c.db")} {
		u.dsns = append(u.dsns, "sqlite:"+file)
	}
	u.home = t.TempDir()
	return u, missing
}

// onQuorums runs a test with all three databases, and with one of them away.
func onQuorums(t *testing.T, test func(t *testing.T, u client)) {
	for _, away := range []bool{false, true} {
		t.Run(strconv.FormatBool(away), func(t *testing.T) {
			t.Parallel()
			u, missing := newQuorumClient(t)
			if !away {
				if err := os.Mkdir(missing, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			test(t, u)
		})
	}
}

func TestSeveralDatabasesAreAQuorum(t *testing.T) {
	onQuorums(t, func(t *testing.T, u client) {
		holding := u.shell(t, "@UP; sleep 60", "--label", "me", "--value", "v", "n")
		u.run(t, "run", "--try", "n", "--", "true").want(t, exitHeld, "", "me")
		u.run(t, "ls").want(t, 0, "n     quorum  held ", "")
		var seen entry
		if err := json.Unmarshal([]byte(u.run(t, "inspect", "--json", "n").out), &seen); err != nil || seen.State != "held" || seen.Value != "v" || seen.Mode != quorumMode {
			t.Errorf("inspect: %+v, %v", seen, err)
		}
		u.run(t, "leader", "--json", "n").want(t, 0, `"label":"me"`, "")
		u.run(t, "wait", "--wait", "0", "n").want(t, exitNo, "", "held by me")
		u.run(t, "unlock", "n").want(t, exitUsage, "", "held by me")
		u.run(t, "unlock", "--force", "n").want(t, 0, "unlocked n, which was held by me", "")
		u.run(t, "wait", "n").want(t, 0, "", "")
		r := u.run(t, "run", "n", "--", "sh", "-c", "echo $SQLLOCK_TOKEN")
		if token, err := strconv.ParseInt(strings.TrimSpace(r.out), 10, 64); err != nil || token <= seen.Token {
			t.Errorf("the next token is %s after %d, %v", r.out, seen.Token, err)
		}
		u.run(t, "reap", "--json").want(t, 0, `"crashed":[]`, "")
		u.run(t, "ls", "--all", "--json").want(t, 0, `"mode":"quorum"`, "")
		holding.signal(syscall.SIGTERM)
		holding.wait()
	})
}

func TestRunsOfAQuorumExcludeEachOther(t *testing.T) {
	onQuorums(t, func(t *testing.T, u client) {
		u.run(t, "run", "first", "--", "true").want(t, 0, "", "") // the tables are there
		countWith(t, 6, u, func() int { return 0 }, maxConns)
	})
}

func TestElectOverAQuorum(t *testing.T) {
	t.Parallel()
	u, _ := newQuorumClient(t)
	log := filepath.Join(u.home, "log")
	first := u.startElect(t, log, "--identity", "one", "n")
	tokens(t, log, 1)
	u.run(t, "leader", "n").want(t, 0, "one", "")
	second := u.startElect(t, log, "--identity", "two", "n")
	first.end(t)
	tokens(t, log, 2)
	u.run(t, "leader", "n").want(t, 0, "two", "")
	second.end(t)
}

func TestAQuorumNeedsAMajority(t *testing.T) {
	t.Parallel()
	u, _ := newQuorumClient(t)
	u.run(t, "run", "n", "--", "true").want(t, 0, "", "")
	u.run(t, "--faulty-nodes", "1", "run", "n", "--", "true").want(t, exitUnavailable, "", "2 of 3 databases are up, 3 are needed")
	u.run(t, "--faulty-nodes", "1", "ls").want(t, exitUnavailable, "", "database 2: ")
	u.run(t, "--node-timeout", "4s", "run", "--ttl", "24s", "n", "--", "true").want(t, 0, "", "")
}

// The third database is on a server that is down.
func TestAQuorumOfSeveralProducts(t *testing.T) {
	t.Parallel()
	const account = "secret_user:hunter2"
	u := client{home: t.TempDir()}
	engines := testdb.Engines()
	if len(engines) == 0 {
		return // no server is here, which Main reports
	}
	for i := range 2 {
		u.dsns = append(u.dsns, dsn(t, testdb.New(t, engines[i%len(engines)]), ""))
	}
	u.dsns = append(u.dsns, "postgres://"+account+"@127.0.0.1:1/d")
	shown := ""
	run := func(args ...string) result {
		r := u.run(t, args...)
		shown += r.out + r.err
		return r
	}
	run("run", "n", "--", "true").want(t, exitUnavailable, "", "migrate up")
	run("migrate", "up").want(t, exitUnavailable, "database 1:\napplied ", "database 2: cannot connect to 127.0.0.1:1")
	run("migrate", "status").want(t, exitUnavailable, "database 0:\nVERSION", "database 2: ")
	run("run", "n", "--", "echo", "ran").want(t, 0, "ran", "a database of the quorum is down")
	run("ls", "--all").want(t, 0, "n     quorum  released", "")
	run("doctor").want(t, exitNo, "bad   database      database 2: cannot connect to 127.0.0.1:1", "")
	if r := run("doctor"); !strings.Contains(r.out, "ok    quorum        a name is kept on 2 of 3 databases") || strings.Contains(r.out, string(advisory)) {
		t.Errorf("doctor:\n%s", r.out)
	}
	run("migrate", "down").want(t, exitUnavailable, "database 1:\n", "database 1: migrate down: this drops the tables")
	run("migrate", "down", "--force").want(t, exitUnavailable, "database 1:\nundone ", "database 2: ")
	if strings.Contains(shown, "hunter2") || strings.Contains(shown, "secret_user") {
		t.Errorf("the user or the password is in:\n%s", shown)
	}
}

func TestDoctorOfAQuorum(t *testing.T) {
	t.Parallel()
	u, missing := newQuorumClient(t)
	if err := os.Mkdir(missing, 0o700); err != nil {
		t.Fatal(err)
	}
	r := u.run(t, "doctor")
	r.want(t, exitNo, "bad   quorum        ", "")
	if n := strings.Count(r.out, "bad   database "); n != len(u.dsns) {
		t.Errorf("%d databases are bad:\n%s", n, r.out)
	}
	u.run(t, "migrate", "up").want(t, 0, "database 2:\napplied ", "")
	r = u.run(t, "doctor")
	r.want(t, 0, "ok    quorum        ", "")
	for line := range strings.Lines(r.out) {
		if !strings.HasPrefix(line, "ok  ") {
			t.Error(line)
		}
	}
}

func TestThePageOfAQuorum(t *testing.T) {
	t.Parallel()
	u, _ := newQuorumClient(t)
	holding := u.shell(t, "@UP; sleep 60", "held")
	web := u.serve(t)
	if code, text := web.get("", ""); code != 200 || !strings.Contains(text, "quorum mode") || !strings.Contains(text, "held") {
		t.Errorf("%d, and:\n%s", code, text)
	}
	web.signal(syscall.SIGTERM)
	web.wait().want(t, 0, "", "")
	holding.end(t)
}

// What a quorum does not have is refused, and no database is touched.
func TestWhatAQuorumRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want string }{
		{"run --mode advisory n -- true", "--mode does not go with several --dsn"},
		{"ls --mode unique", "--mode does not go with several --dsn"},
		{"run --shared n -- true", "--shared does not go with several --dsn: a quorum has one holder at a time"},
		{"run --permits 3 n -- true", "--permits does not go with several --dsn"},
		{"run --once k n -- true", "--once does not go with several --dsn: a quorum remembers no keys"},
		{"elect --may-resign n -- true", "--may-resign does not go with several --dsn"},
		{"elect --resign n", "--resign does not go with several --dsn"},
		{"--allow-session-pooler ls", "--allow-session-pooler does not go with several --dsn"},
		{"--allow-silent-holders ls", "--allow-silent-holders does not go with several --dsn"},
		{"init --yes", "init is about one database"},
		{"migrate copy d", "copy is about one database"},
		{"--table-prefix sqllock_ migrate up", "the table prefix sqllock_ is that of unique mode"},
		{"--table-prefix 1_ run n -- true", "1_"},
		{"--schema s ls", "database 0: a schema is for Postgres only"},
		{"--faulty-nodes 3 run n -- true", "--faulty-nodes 3: must be from 0 to 2 for 3 databases"},
		{"--faulty-nodes -1 doctor", "--faulty-nodes -1: must be from 0 to 2"},
		{"--node-timeout 9ms run n -- true", "--node-timeout 9ms: must be from 10ms to a sixth of the TTL, 5s"},
		{"--node-timeout 2s run --ttl 6s n -- true", "--node-timeout 2s: must be from 10ms to a sixth of the TTL, 1s"},
		{"--dsn  run n -- true", "--dsn is empty"},
		{"--dsn redis://h migrate up", "database 3: the DSN begins with none of"},
		{"--dsn sqlite:a --dsn sqlite:a migrate up", "the databases 3 and 4 are the same"},
		{strings.Repeat("--dsn sqlite:a ", 7) + "migrate up", "10 --dsn: a quorum has from 2 to 9 databases"},
		{"run --ttl 1ms n -- true", "TTL 1ms"},
	} {
		t.Run(c.args, func(t *testing.T) {
			u, missing := newQuorumClient(t)
			u.run(t, strings.Split(c.args, " ")...).want(t, exitUsage, "", c.want)
			if files, err := os.ReadDir(filepath.Dir(missing)); err != nil || len(files) > 0 {
				t.Errorf("there are files: %v, %v", files, err)
			}
		})
	}
	one := newClient(t)
	for _, flag := range []string{"--faulty-nodes=1", "--node-timeout=1s"} {
		one.run(t, flag, "ls").want(t, exitUsage, "", "they need several --dsn")
	}
}

// A DSN in the environment ends at the end of its line.
func TestTheEnvironmentNamesDatabasesLineByLine(t *testing.T) {
	t.Parallel()
	one := newClient(t)
	one.dsn = "sqlite:" + filepath.Join(one.home, "a,sqlite:b")
	one.run(t, "run", "n", "--", "true").want(t, 0, "", "")
	if _, err := os.Stat(filepath.Join(one.home, "a,sqlite:b")); err != nil {
		t.Error(err)
	}
	one.run(t, "ls", "--all").want(t, 0, "unique", "")
	one.run(t, "--dsn", one.dsn, "ls", "--all").want(t, 0, "unique", "")
	several, missing := newQuorumClient(t)
	if err := os.Mkdir(missing, 0o700); err != nil {
		t.Fatal(err)
	}
	all := client{home: several.home, dsn: strings.Join(several.dsns, "\n") + "\n"}
	all.run(t, "run", "n", "--", "true").want(t, 0, "", "")
	several.run(t, "ls", "--all").want(t, 0, "n     quorum", "")
	all.run(t, "--dsn", several.dsns[0], "ls").want(t, exitUnavailable, "", "migrate up") // it has no tables of unique mode
	all.dsn = "postgres://u:hunter2\nhunter2@h/d"
	if r := all.run(t, "ls"); r.code != exitUsage || strings.Contains(r.err, "hunter2") {
		t.Errorf("a password with the end of a line: %+v", r)
	}
}
