package testdb

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/testdb/supervisor"
)

// PoolerReason returns why [StartPooler] cannot start a pooler here, "" if it can.
func PoolerReason() string {
	if lookUp("pgbouncer") == "" {
		return "no pgbouncer found; install pgbouncer"
	}
	return ""
}

// StartPooler starts a pgbouncer before the server of a Postgres database, with a pool_mode, and
// returns its address. It is ended when the test has ended, or its process. It fails the test if
// [PoolerReason] has a reason.
func StartPooler(t testing.TB, d *Database, mode string) (addr string) {
	t.Helper()
	w, err := theSupervisor()
	if err != nil {
		t.Fatalf("testdb: %v", err)
	}
	user := supervisor.Account([]string{"nobody"}) // it refuses to run as root
	dir, err := w.MkdirMemory(user)
	if err != nil {
		t.Fatalf("testdb: %v", err)
	}
	log := filepath.Join(dir, "log")
	t.Cleanup(func() {
		if text, err := os.ReadFile(log); err == nil && t.Failed() {
			t.Logf("pgbouncer says:\n%s", text)
		}
		if err := w.Remove(dir); err != nil {
			t.Errorf("testdb: remove pgbouncer: %v", err)
		}
	})
	port, err := supervisor.FreePort()
	if err != nil {
		t.Fatalf("testdb: %v", err)
	}
	ini := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(ini, []byte(poolerConfig(d.Addr(), port, mode)), 0o644); err != nil {
		t.Fatalf("testdb: %v", err)
	}
	pid, err := w.Start(supervisor.Command{Argv: []string{lookUp("pgbouncer"), ini}, Dir: dir, Log: log, User: user})
	if err != nil {
		t.Fatalf("testdb: %v", err)
	}
	addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	for deadline := time.Now().Add(stepTimeout); ; {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			_ = conn.Close()
			return addr
		}
		ended, status, waitErr := w.Wait(pid, 20*time.Millisecond)
		if ended || waitErr != nil || time.Now().After(deadline) {
			t.Fatalf("testdb: pgbouncer takes no connections: %v, %s, %v", err, status, waitErr)
		}
	}
}

// poolerConfig has pools that are large enough for tests that run at the same time.
func poolerConfig(server string, port int, mode string) string {
	host, serverPort, _ := net.SplitHostPort(server)
	return fmt.Sprintf(`[databases]
* = host=%s port=%s user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = %s
server_reset_query = DISCARD ALL
ignore_startup_parameters = extra_float_digits
default_pool_size = 200
max_client_conn = 2000
`, host, serverPort, port, mode)
}
