//go:build unix

package main

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/internal/netproxy"
	"github.com/sqllock/sqllock/internal/testdb"
)

// dsn is how people write the address of a test's database; addr is that of a
// proxy in front of it, or "".
func dsn(t *testing.T, d *testdb.Database, addr string) string {
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

// newPersonOn is somebody with a migrated database on an engine.
func newPersonOn(t *testing.T, engine string) person {
	t.Helper()
	u := newPerson(t)
	u.dsn = dsn(t, testdb.New(t, engine), "")
	u.run(t, "migrate", "up").want(t, 0, "", "")
	return u
}

// onAll runs a test on all databases that are here.
func onAll(t *testing.T, test func(t *testing.T, u person)) {
	for _, engine := range testdb.All() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			test(t, newPersonOn(t, engine))
		})
	}
}

func TestFiftyRunsCountToFifty(t *testing.T) {
	for _, engine := range testdb.All() {
		t.Run(engine, func(t *testing.T) {
			u := newPerson(t)
			count := func() int { return 0 }
			if engine != testdb.SQLite {
				d := usualServer(t, engine)
				u.dsn, count = dsn(t, d, ""), sessions(t, d)
				u.run(t, "migrate", "up").want(t, 0, "", "")
			}
			countToFifty(t, u, count)
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

func countToFifty(t *testing.T, u person, sessions func() int) {
	const runs = 50
	number, tokens := filepath.Join(u.home, "number"), filepath.Join(u.home, "tokens")
	script := fmt.Sprintf(`n=$(cat %[1]s 2>/dev/null || echo 0); sleep 0.01; echo $((n+1)) >%[1]s; echo $SQLLOCK_TOKEN >>%[2]s`, number, tokens)
	var calls []*call
	for range runs {
		calls = append(calls, u.start(t, "run", "count", "--", "sh", "-c", script))
	}
	most := 0
	for strings.Count(file(tokens), "\n") < runs/2 {
		most = max(most, sessions())
		time.Sleep(5 * time.Millisecond)
	}
	for _, p := range calls {
		p.wait().want(t, 0, "", "")
	}
	if most > runs*maxConns {
		t.Errorf("%d connections for %d runs, want at most %d each", most, runs, maxConns)
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
			u := person{home: t.TempDir(), dsn: dsn(t, d, "")}
			u.run(t, "migrate", "up").want(t, 0, "", "")
			count := sessions(t, d)
			holding := u.shell(t, "@UP; sleep 60", "--ttl", "1s", "n")
			waiting := u.start(t, "run", "--ttl", "1s", "n", "--", "echo", "ran")
			least, most := 99, 0
			for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
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
	twenty := func(t *testing.T, u person, args ...string) {
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
		twenty(t, newPerson(t), "run", "n", "--", "true")
	})
	t.Run("a file", func(t *testing.T) {
		u := newPerson(t)
		u.dsn = "sqlite:" + filepath.Join(u.home, "a.db")
		twenty(t, u, "run", "n", "--", "true")
	})
	for _, engine := range testdb.All() {
		t.Run("migrate up on "+engine, func(t *testing.T) {
			twenty(t, person{home: t.TempDir(), dsn: dsn(t, testdb.New(t, engine), "")}, "migrate", "up")
		})
	}
}

func TestMissingTablesAreTold(t *testing.T) {
	t.Parallel()
	for _, engine := range testdb.Engines() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			u := person{home: t.TempDir(), dsn: dsn(t, testdb.New(t, engine), "")}
			u.run(t, "run", "n", "--", "echo", "ran").want(t, exitUnavailable, "", "sqllock migrate up")
			u.run(t, "migrate", "status").want(t, 0, "no", "")
			u.run(t, "migrate", "down").want(t, 0, "", "")
			u.run(t, "migrate", "up").want(t, 0, "", "")
			u.run(t, "migrate", "status").want(t, 0, "Z", "")
			u.run(t, "--table-prefix", "p_", "run", "n", "--", "true").want(t, exitUnavailable, "", "p_")
			u.run(t, "--table-prefix", "p_", "migrate", "up").want(t, 0, "", "")
			u.run(t, "--table-prefix", "p_", "run", "n", "--", "echo", "ran").want(t, 0, "ran", "")
			u.run(t, "migrate", "down").want(t, 0, "", "")
			u.run(t, "run", "n", "--", "true").want(t, exitUnavailable, "", "sqllock migrate up")
		})
	}
}

func TestASchemaOfPostgresIsUsed(t *testing.T) {
	for _, engine := range testdb.Engines() {
		if engine != testdb.Postgres {
			continue
		}
		u := newPersonOn(t, engine)
		u.run(t, "--schema", "s1", "migrate", "up").want(t, 0, "", "")
		holding := u.shell(t, "@UP; sleep 60", "--schema", "s1", "n")
		u.run(t, "run", "--try", "n", "--", "echo", "ran").want(t, 0, "ran", "")
		u.run(t, "run", "--schema", "s1", "--try", "n", "--", "echo", "ran").want(t, exitHeld, "", "held")
		holding.end(t)
	}
}

func TestAWrongPasswordIsNotRepeated(t *testing.T) {
	for _, engine := range testdb.Engines() {
		t.Run(engine, func(t *testing.T) {
			u, err := url.Parse(dsn(t, testdb.New(t, engine), ""))
			if err != nil {
				t.Fatal(err)
			}
			u.User = url.UserPassword("nobody-of-this-name", "hunter2")
			r := person{home: t.TempDir(), dsn: u.String()}.run(t, "run", "n", "--", "true")
			r.want(t, exitUnavailable, "", "nobody-of-this-name")
			if strings.Contains(r.out+r.err, "hunter2") {
				t.Errorf("the password is in:\n%s", r.err)
			}
		})
	}
}

// The next one comes within the TTL and a second, with a higher token, and finds
// nobody of the old command.
func TestTheCommandDiesWithRun(t *testing.T) {
	onAll(t, func(t *testing.T, u person) {
		const ttl = time.Second
		path := filepath.Join(u.home, "group")
		p := u.shell(t, "echo $SQLLOCK_TOKEN >"+path+".token; "+fmt.Sprintf(family, path), "--ttl", ttl.String(), "n")
		group := strings.TrimSpace(file(path))
		if n := len(members(t, group)); n < 6 {
			t.Fatalf("only %d processes in group %q", n, group)
		}
		script := fmt.Sprintf(`date +%%s%%N; ps -A -o pgid=,stat= | awk '$1 == %s && $2 !~ /^Z/ { print "left behind" }'; echo $SQLLOCK_TOKEN`, group)
		waiting := u.start(t, "run", "--ttl", ttl.String(), "n", "--", "sh", "-c", script)
		time.Sleep(time.Duration(time.Now().UnixNano()) % (500 * time.Millisecond)) // anywhere between two renewals
		killed := time.Now()
		p.signal(syscall.SIGKILL)
		p.wait()
		r := waiting.wait()
		r.want(t, 0, "", "")
		lines := strings.Fields(r.out)
		if len(lines) != 2 {
			t.Fatalf("want a time and a token, got\n%s", r.out)
		}
		nanos, _ := strconv.ParseInt(lines[0], 10, 64)
		if took := time.Unix(0, nanos).Sub(killed); took > ttl+time.Second {
			t.Errorf("the next one came after %v", took)
		}
		old, _ := strconv.Atoi(strings.TrimSpace(file(path + ".token")))
		if next, _ := strconv.Atoi(lines[1]); next <= old || old == 0 {
			t.Errorf("token %d after %d", next, old)
		}
	})
}

func TestAPausedRunEndsItsCommand(t *testing.T) {
	onAll(t, func(t *testing.T, u person) {
		p := u.shell(t, "trap 'echo told; exit 3' TERM; @UP; while :; do sleep 0.05; done", "--ttl", "1s", "n")
		p.signal(syscall.SIGSTOP)
		time.Sleep(1200 * time.Millisecond)
		u.run(t, "run", "--wait", "5s", "n", "--", "echo", "ran").want(t, 0, "ran", "")
		p.signal(syscall.SIGCONT)
		p.wait().want(t, exitLost, "told", "lost")
	})
}

func TestACommandEndsWhenTheServerIsGone(t *testing.T) {
	t.Parallel()
	for _, engine := range testdb.Startable() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			s := testdb.StartServer(t, engine)
			u := person{home: t.TempDir(), dsn: dsn(t, s.Database, "")}
			u.run(t, "migrate", "up").want(t, 0, "", "")
			p := u.shell(t, "trap 'echo told; exit 3' TERM; @UP; while :; do sleep 0.05; done", "--ttl", "2s", "n")
			s.Kill()
			start := time.Now()
			p.wait().want(t, exitLost, "told", "lost")
			if took := time.Since(start); took > 2*time.Second+closePatience+2*time.Second {
				t.Errorf("it took %v", took)
			}
			u.run(t, "run", "n", "--", "true").want(t, exitUnavailable, "", "sqllock: ")
		})
	}
}

func TestARestartOfTheServerHarmsNobody(t *testing.T) {
	t.Parallel()
	for _, engine := range testdb.Startable() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			s := testdb.StartServer(t, engine)
			u := person{home: t.TempDir(), dsn: dsn(t, s.Database, "")}
			u.run(t, "migrate", "up").want(t, 0, "", "")
			flag := filepath.Join(u.home, "flag")
			p := u.shell(t, "@UP; while [ ! -e "+flag+" ]; do sleep 0.05; done; echo done", "--ttl", "10s", "n")
			waiting := u.start(t, "run", "n", "--", "echo", "ran")
			time.Sleep(500 * time.Millisecond)
			s.Kill()
			s.Restart()
			if err := os.WriteFile(flag, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			p.wait().want(t, 0, "done", "")
			waiting.wait().want(t, 0, "ran", "")
		})
	}
}

// frozen is somebody whose network can be frozen.
func frozen(t *testing.T, engine string) (person, *netproxy.Proxy) {
	d := testdb.New(t, engine)
	u := person{home: t.TempDir(), dsn: dsn(t, d, "")}
	u.run(t, "migrate", "up").want(t, 0, "", "")
	proxy := netproxy.New(t, d.Addr())
	u.dsn = dsn(t, d, proxy.Addr())
	return u, proxy
}

func TestAFrozenNetworkLosesTheLockAndHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	for _, engine := range testdb.Engines() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			u, proxy := frozen(t, engine)
			p := u.shell(t, "trap 'echo told; exit 3' TERM; @UP; while :; do sleep 0.05; done", "--ttl", "1s", "n")
			proxy.Freeze()
			start := time.Now()
			p.wait().want(t, exitLost, "told", "lost")
			if took := time.Since(start); took > time.Second+unlockPatience+2*closePatience {
				t.Errorf("it took %v", took)
			}
		})
	}
}

func TestAFrozenNetworkHoldsTheExitUpForSecondsOnly(t *testing.T) {
	t.Parallel()
	for _, engine := range testdb.Engines() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			u, proxy := frozen(t, engine)
			flag := filepath.Join(u.home, "flag")
			p := u.shell(t, "@UP; while [ ! -e "+flag+" ]; do sleep 0.05; done; exit 4", "n")
			proxy.Freeze()
			if err := os.WriteFile(flag, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			p.wait().want(t, 4, "", "becomes free")
			if took := time.Since(start); took > unlockPatience+3*closePatience {
				t.Errorf("it took %v", took)
			}
			p = u.start(t, "run", "n", "--", "echo", "ran")
			p.waitListening()
			start = time.Now()
			p.end(t).want(t, 128+int(syscall.SIGTERM), "", "")
			if took := time.Since(start); took > 3*closePatience {
				t.Errorf("a signal took %v while the database was being opened", took)
			}
			if r := u.run(t, "run", "--try", "n", "--", "echo", "ran"); r.code != exitUnavailable {
				t.Errorf("%+v", r)
			}
		})
	}
}

// More runs than the server takes connections: those that get none try again.
func TestAFullServerIsWaitedFor(t *testing.T) {
	limits := map[string][]string{
		testdb.Postgres: {"-c", "max_connections=10"},
		testdb.MariaDB:  {"--max-connections=10"},
	}
	for _, engine := range testdb.Startable() {
		t.Run(engine, func(t *testing.T) {
			s := testdb.StartServer(t, engine, limits[engine]...)
			u := person{home: t.TempDir(), dsn: dsn(t, s.Database, "")}
			u.run(t, "migrate", "up").want(t, 0, "", "")
			countToFifty(t, u, func() int { return 0 })
		})
	}
}

func TestAnUnixSocketOfMySQLWorks(t *testing.T) {
	for _, engine := range testdb.Engines() {
		if engine != testdb.MariaDB && engine != testdb.MySQL {
			continue
		}
		d := testdb.New(t, engine)
		listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "my sql.sock"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = listener.Close() })
		go relay(listener, d.Addr())
		u := person{home: t.TempDir()}
		parsed, err := url.Parse(dsn(t, d, ""))
		if err != nil {
			t.Fatal(err)
		}
		parsed.Host, parsed.RawQuery = "", "socket="+url.QueryEscape(listener.Addr().String())
		u.dsn = parsed.String()
		u.run(t, "migrate", "up").want(t, 0, "", "")
		u.run(t, "run", "n", "--", "echo", "ran").want(t, 0, "ran", "")
	}
}

// relay connects those who come by the listener to an address.
func relay(listener net.Listener, addr string) {
	for {
		from, err := listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", addr)
		if err != nil {
			_ = from.Close()
			continue
		}
		for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
			go func() {
				_, _ = io.Copy(pair[0], pair[1])
				_, _ = pair[0].Close(), pair[1].Close()
			}()
		}
	}
}
