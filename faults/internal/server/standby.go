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

// Replicate gives a Postgres server a standby. With sync a commit waits for it. With pair clients
// know both, and [Server.DSN] names both.
func (s *Server) Replicate(sync, pair bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sync = sync; sync {
		if err := s.exec(s.port, s.kind.admin, waitForStandby); err != nil {
			return err
		}
	}
	if err := s.follow(0); err != nil {
		return err
	}
	if pair {
		s.pair = s.Addr() + "," + address(s.standby.port)
	}
	return s.exec(s.port, s.kind.admin, reload)
}

// What decides whether a commit waits for the standby.
const (
	waitForStandby = `ALTER SYSTEM SET synchronous_standby_names = 's1'`
	waitForNobody  = `ALTER SYSTEM SET synchronous_standby_names = ''`
	reload         = `SELECT pg_reload_conf()`
)

// follow copies the server's files, starts a server on them that follows, and returns
// when it does. The port is a free one if it is 0. The caller holds mu.
func (s *Server) follow(port int) (err error) {
	s.times++
	n := &standby{data: filepath.Join(s.dir, fmt.Sprint("standby", s.times)), port: port}
	if n.port == 0 {
		if n.port, err = supervisor.FreePort(); err != nil {
			return err
		}
	}
	return s.followOn(n)
}

// followOn is follow on a port that is known.
func (s *Server) followOn(n *standby) error {
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
// standby misses the commits of that time. It calls up when the server takes writes again.
func (s *Server) Promote(lose time.Duration, up func()) error {
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
	for _, statement := range []string{`SELECT pg_promote()`, waitForNobody} {
		if err := s.exec(n.port, s.kind.admin, statement); err != nil {
			return err
		}
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
	up()
	return s.followAgain(0)
}

// followAgain is follow for a server that waits for nobody since it was promoted. If it waited for
// its standby before, it does so again.
func (s *Server) followAgain(port int) error {
	if err := s.follow(port); err != nil || !s.sync {
		return err
	}
	if err := s.exec(s.port, s.kind.admin, waitForStandby); err != nil {
		return err
	}
	return s.exec(s.port, s.kind.admin, reload)
}

// Succeed freezes the server, promotes the standby where it is after a time, and kills the server
// after a time more. Then it makes a new standby at the address of the former server. Clients have
// to know both. It calls up when the standby takes writes.
//
// The server is not thawed before it is killed: it would answer reads with rows that are old.
func (s *Server) Succeed(frozen, beside time.Duration, up func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.supervisor.Pause(s.pid); err != nil {
		return err
	}
	time.Sleep(frozen)
	n := s.standby
	if err := n.link.Close(); err != nil {
		return err
	}
	// The last statement writes, and so waits until no commit has to wait for a standby.
	for _, statement := range []string{`SELECT pg_promote()`, waitForNobody, reload, `SELECT txid_current()`} {
		if err := s.exec(n.port, s.kind.admin, statement); err != nil {
			return err
		}
	}
	up()
	time.Sleep(beside)
	if err := s.supervisor.Kill(s.pid); err != nil {
		return err
	}
	port := s.port
	s.data, s.port, s.pid = n.data, n.port, n.pid
	return s.followAgain(port)
}
