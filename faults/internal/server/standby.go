//go:build linux

package server

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"github.com/sqllock/sqllock/internal/netproxy"
	"github.com/sqllock/sqllock/internal/testdb/supervisor"
)

// A standby is a second Postgres that follows the first over its own proxy.
type standby struct {
	data string
	port int
	pid  int
	link *netproxy.Proxy
}

// Replicate gives a Postgres server a standby. With sync a commit waits for it.
func (s *Server) Replicate(sync bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sync { // the standby, which gets the file too, is one day the server
		if err := s.exec(s.port, s.kind.admin, `ALTER SYSTEM SET synchronous_standby_names = 's1'`); err != nil {
			return err
		}
	}
	if err := s.follow(); err != nil {
		return err
	}
	return s.exec(s.port, s.kind.admin, `SELECT pg_reload_conf()`)
}

// follow copies the server's files, starts a server on them that follows, and returns
// when it does. The caller holds mu.
func (s *Server) follow() (err error) {
	s.times++
	n := &standby{data: filepath.Join(s.dir, fmt.Sprint("standby", s.times))}
	if n.port, err = supervisor.FreePort(); err != nil {
		return err
	}
	program, err := postgres("pg_basebackup")
	if err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(s.Addr())
	if err := s.finish([]string{
		program, "-D", n.data, "-h", "127.0.0.1", "-p", port, "-U", "postgres", "-X", "stream", "-c", "fast", "-R",
	}); err != nil {
		return err
	}
	if n.link, err = netproxy.Listen(s.Addr()); err != nil {
		return err
	}
	s.standby = n
	_, port, _ = net.SplitHostPort(n.link.Addr())
	argv, err := s.kind.serve(s.dir, n.data, n.port)
	if err != nil {
		return err
	}
	argv = append(argv, "-c", "primary_conninfo=host=127.0.0.1 port="+port+" user=postgres application_name=s1",
		"-c", "wal_retrieve_retry_interval=200ms") // so that it does not take long to be promoted
	if n.pid, err = s.serve(argv, n.port); err != nil {
		return err
	}
	return s.follows()
}

// follows waits until the standby receives the writes of the primary.
func (s *Server) follows() error {
	db, err := sql.Open(s.kind.driver, s.kind.dsn(s.Addr(), s.kind.admin))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), stepTimeout)
	defer cancel()
	for {
		var n int
		err := db.QueryRowContext(ctx, `SELECT count(*) FROM pg_stat_replication WHERE application_name = 's1' AND state = 'streaming'`).Scan(&n)
		if err != nil || n > 0 {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Promote kills the server, promotes the standby at the same address, and makes a new
// standby. If lose is not 0, Promote freezes the link for that time before, so that the
// standby misses the commits of that time.
func (s *Server) Promote(lose time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lose > 0 {
		s.standby.link.Freeze()
		time.Sleep(lose)
	}
	if err := s.supervisor.Kill(s.pid); err != nil {
		return err
	}
	n := s.standby
	if err := n.link.Close(); err != nil {
		return err
	}
	if err := s.exec(n.port, s.kind.admin, `SELECT pg_promote()`); err != nil {
		return err
	}
	if err := s.supervisor.Interrupt(n.pid); err != nil {
		return err
	}
	if ended, _, err := s.supervisor.Wait(n.pid, stepTimeout); err != nil || !ended {
		return errors.Join(errors.New("the promoted standby does not end"), err)
	}
	s.data = n.data
	if err := s.boot(); err != nil {
		return err
	}
	return s.follow()
}
