//go:build linux

package server

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/sqllock/sqllock/internal/testdb/supervisor"
)

// pooler is a pgbouncer in transaction mode in front of a Postgres.
type pooler struct{ pid, port int }

// Pool starts a pooler in front of the server.
func (s *Server) Pool() error {
	path, err := lookUp("pgbouncer")
	if err != nil {
		return err
	}
	port, err := supervisor.FreePort()
	if err != nil {
		return err
	}
	// After a crash of the server it connects again at once. It notices only when it serves them that
	// clients whose time is over have left: so there is room for many, and nobody waits for long.
	text := fmt.Sprintf(`[databases]
* = host=127.0.0.1 port=%d user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
ignore_startup_parameters = extra_float_digits
max_client_conn = 5000
default_pool_size = 100
query_wait_timeout = 2
server_login_retry = 0.1
`, s.port, port)
	ini := filepath.Join(s.dir, "pgbouncer.ini")
	if err := os.WriteFile(ini, []byte(text), 0o644); err != nil {
		return err
	}
	pid, err := s.run([]string{path, ini})
	if err != nil {
		return err
	}
	s.pooler = &pooler{pid, port}
	for deadline := time.Now().Add(stepTimeout); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.DialTimeout("tcp", address(port), time.Second)
		if err == nil {
			return c.Close()
		}
		if time.Now().After(deadline) {
			return errors.Join(fmt.Errorf("pgbouncer does not answer: %w", err), s.EndPooler())
		}
	}
}

// EndPooler ends the pooler, if there is one.
func (s *Server) EndPooler() error {
	if s.pooler == nil {
		return nil
	}
	p := s.pooler
	s.pooler = nil
	return s.supervisor.Kill(p.pid)
}
