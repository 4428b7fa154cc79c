//go:build unix

package main

import (
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/netproxy"
	"github.com/sqllock/sqllock/internal/testdb"
)

// newServerClient returns a client whose server can be stopped.
func newServerClient(t *testing.T, engine string) (client, *testdb.Server) {
	t.Helper()
	s := testdb.StartServer(t, engine)
	u := client{home: t.TempDir(), dsn: dsn(t, s.Database, "")}
	u.run(t, "migrate", "up").want(t, 0, "", "")
	return u, s
}

func TestACommandEndsWhenTheServerIsGone(t *testing.T) {
	t.Parallel()
	for _, engine := range testdb.Startable() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			u, s := newServerClient(t, engine)
			p := u.shell(t, "trap 'echo told; exit 3' TERM; @UP; while :; do sleep 0.05; done", "--ttl", "2s", "n")
			s.Kill()
			start := time.Now()
			p.wait().want(t, exitLost, "told", "lost")
			if took := time.Since(start); took > 2*time.Second+closeTimeout+2*time.Second+waitSlack() {
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
			u, s := newServerClient(t, engine)
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

// newProxyClient returns a client whose network can be frozen.
func newProxyClient(t *testing.T, engine string) (client, *netproxy.Proxy) {
	d := testdb.New(t, engine)
	u := client{home: t.TempDir(), dsn: dsn(t, d, "")}
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
			u, proxy := newProxyClient(t, engine)
			p := u.shell(t, "trap 'echo told; exit 3' TERM; @UP; while :; do sleep 0.05; done", "--ttl", "1s", "n")
			proxy.Freeze()
			start := time.Now()
			p.wait().want(t, exitLost, "told", "lost")
			if took := time.Since(start); took > time.Second+unlockTimeout+2*closeTimeout {
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
			u, proxy := newProxyClient(t, engine)
			flag := filepath.Join(u.home, "flag")
			p := u.shell(t, "@UP; while [ ! -e "+flag+" ]; do sleep 0.05; done; exit 4", "n")
			proxy.Freeze()
			if err := os.WriteFile(flag, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			p.wait().want(t, 4, "", "becomes free")
			if took := time.Since(start); took > unlockTimeout+3*closeTimeout {
				t.Errorf("it took %v", took)
			}
			p = u.start(t, "run", "n", "--", "echo", "ran")
			p.waitListening()
			start = time.Now()
			p.end(t).want(t, 128+int(syscall.SIGTERM), "", "")
			if took := time.Since(start); took > 3*closeTimeout+waitSlack() {
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
			u := client{home: t.TempDir(), dsn: dsn(t, s.Database, "")}
			u.run(t, "migrate", "up").want(t, 0, "", "")
			countWith(t, 30, u, func() int { return 0 }, maxConns)
		})
	}
}

func TestAnUnixSocketOfMySQLWorks(t *testing.T) {
	t.Parallel()
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
		u := client{home: t.TempDir()}
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
