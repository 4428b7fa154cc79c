//go:build unix

package main

import (
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/internal/testdb"
)

// dsn is how people write the address of a test's database; addr is that of a
// proxy in front of it, or "".
func dsn(t testing.TB, d *testdb.Database, addr string) string {
	t.Helper()
	native := d.DSN()
	if addr != "" {
		native = d.DSNVia(addr)
	}
	switch d.Engine() {
	case testdb.SQLite:
		return "sqlite:" + d.Path()
	case testdb.Postgres:
		return native
	}
	cfg, err := mysql.ParseDSN(native)
	if err != nil {
		t.Fatal(err)
	}
	u := url.URL{Scheme: "mysql", User: url.UserPassword(cfg.User, cfg.Passwd), Host: cfg.Addr, Path: "/" + cfg.DBName}
	if cfg.Net == "unix" {
		u.Host, u.RawQuery = "", "socket="+url.QueryEscape(cfg.Addr)
	}
	return u.String()
}

// newClientOn returns a client with a migrated database on an engine.
func newClientOn(t *testing.T, engine string) client {
	t.Helper()
	u := newClient(t)
	u.dsn = dsn(t, testdb.New(t, engine), "")
	u.run(t, "migrate", "up").want(t, 0, "", "")
	return u
}

// onAll runs a test on all databases that are here.
func onAll(t *testing.T, test func(t *testing.T, u client)) {
	for _, engine := range testdb.All() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			test(t, newClientOn(t, engine))
		})
	}
}

func TestFiftyRunsCountToFifty(t *testing.T) {
	for _, engine := range testdb.All() {
		t.Run(engine, func(t *testing.T) {
			u := newClient(t)
			count := func() int { return 0 }
			if engine != testdb.SQLite {
				d := usualServer(t, engine)
				u.dsn, count = dsn(t, d, ""), sessions(t, d)
				u.run(t, "migrate", "up").want(t, 0, "", "")
			}
			countWith(t, 50, u, count, maxConns)
		})
	}
}

// usualServer is one with the default limit of connections, if one can be
// started.
func usualServer(t *testing.T, engine string) *testdb.Database {
	if slices.Contains(testdb.Startable(), engine) {
		return testdb.StartServer(t, engine).Database
	}
	return testdb.New(t, engine)
}

// countWith has so many runs at a time read a number, add one and write it.
func countWith(t *testing.T, runs int, u client, sessions func() int, conns int, flags ...string) {
	t.Helper()
	number, tokens := filepath.Join(u.home, "number"), filepath.Join(u.home, "tokens")
	script := fmt.Sprintf(`n=$(cat %[1]s 2>/dev/null || echo 0); sleep 0.01; echo $((n+1)) >%[1]s; echo $SQLLOCK_TOKEN >>%[2]s`, number, tokens)
	var calls []*call
	for range runs {
		calls = append(calls, u.start(t, append(append([]string{"run"}, flags...), "count", "--", "sh", "-c", script)...))
	}
	most := 0
	for end := time.Now().Add(testTimeout); strings.Count(file(tokens), "\n") < runs/2 && time.Now().Before(end); {
		most = max(most, sessions())
		time.Sleep(5 * time.Millisecond)
	}
	for _, p := range calls {
		p.wait().want(t, 0, "", "")
	}
	if most > runs*conns {
		t.Errorf("%d connections for %d runs, want at most %d each", most, runs, conns)
	}
	if got := strings.TrimSpace(file(number)); got != strconv.Itoa(runs) {
		t.Errorf("counted to %s, want %d", got, runs)
	}
	last := 0
	for line := range strings.Lines(file(tokens)) {
		token, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil || token <= last {
			t.Fatalf("token %q after %d, want it higher", line, last)
		}
		last = token
	}
}

// sessions returns a function that counts the sessions on a database but its own.
func sessions(t *testing.T, d *testdb.Database) func() int {
	t.Helper()
	db := d.Open(t)
	db.SetMaxOpenConns(1)
	query := `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'sqllock'`
	if d.Engine() != testdb.Postgres {
		query = `SELECT count(*) FROM information_schema.processlist WHERE db = database() AND id <> connection_id()`
	}
	return func() int {
		t.Helper()
		var n int
		if err := db.QueryRow(query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
}

func TestARunHasOneOrTwoConnections(t *testing.T) {
	t.Parallel()
	for _, engine := range testdb.Engines() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			d := testdb.New(t, engine)
			u := client{home: t.TempDir(), dsn: dsn(t, d, "")}
			u.run(t, "migrate", "up").want(t, 0, "", "")
			count := sessions(t, d)
			holding := u.shell(t, "@UP; sleep 60", "--ttl", "9s", "n")
			waiting := u.start(t, "run", "--ttl", "9s", "n", "--", "echo", "ran")
			least, most := 99, 0
			for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) { // with a renewal
				n := count()
				least, most = min(least, n), max(most, n)
			}
			if least < 1 || most > 2*maxConns {
				t.Errorf("a holder and a waiter have %d to %d connections", least, most)
			}
			holding.end(t)
			waiting.wait().want(t, 0, "ran", "")
		})
	}
}

func TestTwentyFirstUsesAtOnceSucceed(t *testing.T) {
	t.Parallel()
	twenty := func(t *testing.T, u client, args ...string) {
		var calls []*call
		for range 20 {
			calls = append(calls, u.start(t, args...))
		}
		for _, p := range calls {
			p.wait().want(t, 0, "", "")
		}
		u.run(t, "run", "n", "--", "echo", "ran").want(t, 0, "ran", "")
	}
	t.Run("the file that is the default", func(t *testing.T) {
		twenty(t, newClient(t), "run", "n", "--", "true")
	})
	t.Run("a file", func(t *testing.T) {
		u := newClient(t)
		u.dsn = "sqlite:" + filepath.Join(u.home, "a.db")
		twenty(t, u, "run", "n", "--", "true")
	})
	for _, engine := range testdb.All() {
		t.Run("migrate up on "+engine, func(t *testing.T) {
			twenty(t, client{home: t.TempDir(), dsn: dsn(t, testdb.New(t, engine), "")}, "migrate", "up")
		})
	}
}

func TestMissingTablesAreTold(t *testing.T) {
	t.Parallel()
	for _, engine := range testdb.Engines() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			u := client{home: t.TempDir(), dsn: dsn(t, testdb.New(t, engine), "")}
			u.run(t, "run", "n", "--", "echo", "ran").want(t, exitUnavailable, "", "sqllock migrate up")
			u.run(t, "migrate", "status").want(t, 0, "no", "")
			u.run(t, "migrate", "down").want(t, 0, "", "")
			u.run(t, "migrate", "up").want(t, 0, "", "")
			u.run(t, "migrate", "status").want(t, 0, "Z", "")
			u.run(t, "--table-prefix", "p_", "run", "n", "--", "true").want(t, exitUnavailable, "", "p_")
			u.run(t, "--table-prefix", "p_", "migrate", "up").want(t, 0, "", "")
			u.run(t, "--table-prefix", "p_", "run", "n", "--", "echo", "ran").want(t, 0, "ran", "")
			u.run(t, "migrate", "down").want(t, exitUsage, "", "add --force")
			u.run(t, "run", "n", "--", "echo", "ran").want(t, 0, "ran", "")
			u.run(t, "migrate", "down", "--force").want(t, 0, "", "")
			u.run(t, "run", "n", "--", "true").want(t, exitUnavailable, "", "give the same with --table-prefix, or --schema")
		})
	}
}

func TestTablesThatWereNeverReleasedAreRefusedUntilMigrateDownDropsThem(t *testing.T) {
	t.Parallel()
	for _, engine := range testdb.All() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			d := testdb.New(t, engine)
			s := &clientDB{client: client{home: t.TempDir(), dsn: dsn(t, d, "")}, d: d, db: d.Open(t)}
			name := engine
			if engine != testdb.SQLite && engine != testdb.Postgres {
				name = "mysql"
			}
			for statement := range strings.SplitSeq(file(filepath.Join("..", "..", "migrations", "testdata", "unreleased", name+".sql")), ";\n") {
				if strings.TrimSpace(statement) != "" {
					s.exec(t, statement)
				}
			}
			for _, args := range [][]string{{"run", "n", "--", "true"}, {"ls"}, {"migrate", "up"}} {
				s.run(t, args...).want(t, exitUnavailable, "", "sqllock migrate down")
			}
			s.finds(t, exitNo, "bad", "migrations", "older", "sqllock migrate down")
			s.run(t, "migrate", "down").want(t, exitUsage, "", "add --force")
			s.run(t, "migrate", "down", "--force").want(t, 0, "undone 20261121000004\n", "")
			s.run(t, "migrate", "up").want(t, 0, "applied 20261122000001 ", "")
			s.run(t, "migrate", "down", "--force").want(t, 0, "undone 20261122000001 ", "")
		})
	}
}

func TestASchemaOfPostgresIsUsed(t *testing.T) {
	t.Parallel()
	for _, engine := range testdb.Engines() {
		if engine != testdb.Postgres {
			continue
		}
		u := newClientOn(t, engine)
		u.run(t, "--schema", "s1", "migrate", "up").want(t, 0, "", "")
		holding := u.shell(t, "@UP; sleep 60", "--schema", "s1", "n")
		u.run(t, "run", "--try", "n", "--", "echo", "ran").want(t, 0, "ran", "")
		u.run(t, "--schema", "s1", "ls").want(t, 0, "n     unique  held", "")
		u.run(t, "run", "--schema", "s1", "--try", "n", "--", "echo", "ran").want(t, exitHeld, "", "held")
		holding.end(t)
	}
}
