//go:build linux

// Package server starts the databases of a fault run on 127.0.0.1, each with files of
// its own, to be killed, paused and started again, and to have its clock set.
package server

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/sqllock/sqllock/internal/testdb/supervisor"
)

// The databases by name.
const (
	Postgres = "postgres"
	MariaDB  = "mariadb"
	SQLite   = "sqlite" // a file, no server

	// Those that others lock with.
	Redis       = "redis"
	RedisAlways = "redis-always" // with a flush before each reply
	Etcd        = "etcd"
	ZooKeeper   = "zookeeper"
)

// stepTimeout bounds each step that a server takes.
const stepTimeout = time.Minute

// Server is a database with its files, or a file for SQLite. Its methods are safe for
// concurrent use, and wait for each other.
type Server struct {
	kind       kind
	supervisor *supervisor.Supervisor
	user       *supervisor.User
	dir        string
	port       int

	mu      sync.Mutex
	data    string // the files of the server of this time
	pid     int
	clock   *clock   // nil if it was not asked for
	standby *standby // nil if it was not asked for
	sync    bool     // commits wait for the standby
	pair    string   // the addresses of the server and the standby, if clients know both
	times   int      // how many standbys there were

	pooler *pooler   // nil if it was not asked for
	nodes  []*Server // of a cluster, this one the first; nil if there is none
}

// kind is how to run a database.
type kind struct {
	name     string
	driver   string
	accounts []string // the user to run as when root starts it: the first that exists
	// prepare and serve are the commands that make its files in data, below dir, and run
	// it on them.
	prepare func(data string) ([]string, error)
	serve   func(dir, data string, port int) ([]string, error)
	dsn     func(addr, database string) string
	admin   string // the database to connect to first
	create  string // the statement that makes the database of the run
	// probe fails as long as the server is not ready; nil asks in SQL.
	probe func(addr string) error
	// startTimeout is how long a start may take; 0 is stepTimeout.
	startTimeout time.Duration
	// ownMalloc means that the server has its own allocator.
	ownMalloc bool
}

// Start starts a database. With steppable it runs under a clock that Step sets.
func Start(w *supervisor.Supervisor, name string, steppable bool) (*Server, error) {
	if name == Galera {
		return startCluster(w)
	}
	k, ok := kinds[name]
	if !ok {
		return nil, fmt.Errorf("no database is named %q", name)
	}
	s := &Server{kind: k, supervisor: w, user: supervisor.Account(k.accounts)}
	var err error
	if s.dir, err = w.MkdirMemory(s.user); err != nil {
		return nil, err
	}
	if steppable {
		if s.clock, err = newClock(s.dir, k.ownMalloc); err != nil {
			return nil, err
		}
	}
	if err := s.launch(); err != nil {
		text := s.LogText()
		return nil, errors.Join(fmt.Errorf("start %s: %w\n%s", name, err, text[max(0, len(text)-2000):]), s.Remove())
	}
	return s, nil
}

func (s *Server) launch() error {
	if s.kind.serve == nil {
		return nil
	}
	s.data = filepath.Join(s.dir, "data")
	if s.kind.prepare != nil {
		argv, err := s.kind.prepare(s.data)
		if err != nil {
			return err
		}
		if err := s.finish(argv); err != nil {
			return err
		}
	}
	var err error
	if s.port, err = supervisor.FreePort(); err != nil {
		return err
	}
	if err := s.boot(); err != nil || s.kind.create == "" {
		return err
	}
	return s.exec(s.port, s.kind.admin, s.kind.create)
}

// finish runs a command to its end.
func (s *Server) finish(argv []string) error {
	pid, err := s.run(argv)
	if err != nil {
		return err
	}
	ended, status, err := s.supervisor.Wait(pid, stepTimeout)
	if err != nil || !ended || status != "exit status 0" {
		return errors.Join(fmt.Errorf("%s: %s", argv[0], status), err)
	}
	return nil
}

func (s *Server) log() string { return filepath.Join(s.dir, "log") }

func (s *Server) run(argv []string) (int, error) {
	return s.supervisor.Start(supervisor.Command{Argv: argv, Dir: s.dir, Log: s.log(), User: s.user})
}

// boot starts the server on its port and returns when it accepts connections. It tries
// again while leftovers of a killed server block it.
func (s *Server) boot() error {
	for deadline := time.Now().Add(cmp.Or(s.kind.startTimeout, stepTimeout)); ; time.Sleep(200 * time.Millisecond) {
		err := s.bootOnce()
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

func (s *Server) bootOnce() error {
	argv, err := s.kind.serve(s.dir, s.data, s.port)
	if err != nil {
		return err
	}
	if s.clock != nil {
		argv = append(s.clock.command(), argv...)
	}
	s.pid, err = s.serve(argv, s.port)
	return err
}

// serve runs a server, and returns when it takes connections on a port.
func (s *Server) serve(argv []string, port int) (pid int, err error) {
	if pid, err = s.run(argv); err != nil {
		return 0, err
	}
	for deadline := time.Now().Add(cmp.Or(s.kind.startTimeout, stepTimeout)); ; {
		ended, status, err := s.supervisor.Wait(pid, 20*time.Millisecond)
		if err != nil || ended {
			return 0, errors.Join(fmt.Errorf("the server ended: %s", status), err)
		}
		if err = s.probe(port); err == nil {
			return pid, nil
		}
		if time.Now().After(deadline) {
			return 0, fmt.Errorf("the server does not answer: %w", err)
		}
	}
}

// probe fails as long as the server does not answer.
func (s *Server) probe(port int) error {
	if s.kind.probe != nil {
		return s.kind.probe(address(port))
	}
	return s.exec(port, s.kind.admin, `SELECT 1`)
}

// exec runs one statement on a new connection.
func (s *Server) exec(port int, database, statement string) error {
	db, err := sql.Open(s.kind.driver, s.kind.dsn(address(port), database))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	_, err = db.ExecContext(ctx, statement)
	return err
}

// Name returns the name of the database product.
func (s *Server) Name() string { return s.kind.name }

// Addr returns the host:port of the server. It stays the same when it is started again, and
// changes when [Server.Succeed] promotes the standby.
func (s *Server) Addr() string { return address(s.port) }

// Front returns the host:port for clients: of the pooler, if there is one, or of the server.
func (s *Server) Front() string {
	if s.pooler != nil {
		return address(s.pooler.port)
	}
	return s.Addr()
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// Driver returns the name of the driver of database/sql.
func (s *Server) Driver() string { return s.kind.driver }

// DSN returns the data source name of the run's database, through the host:port addr, or
// directly if addr is "", then with both addresses if clients know both. SQLite has no address. It
// is for SQL only.
func (s *Server) DSN(addr string) string {
	switch {
	case s.kind.serve == nil:
		return s.kind.dsn(s.dir, "")
	case addr == "" && s.pair != "":
		return s.kind.dsn(s.pair, "faults") + "&target_session_attrs=read-write&connect_timeout=1"
	}
	if addr == "" {
		addr = s.Addr()
	}
	return s.kind.dsn(addr, "faults")
}

// Crash kills the server and all of its processes, and starts it again after a pause. A node is
// a member of its cluster again when Crash returns.
func (s *Server) Crash(pause time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.supervisor.Kill(s.pid); err != nil {
		return err
	}
	time.Sleep(pause)
	return s.boot()
}

// Pause stops the server and all of its processes for some time.
func (s *Server) Pause(d time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.supervisor.Pause(s.pid); err != nil {
		return err
	}
	time.Sleep(d)
	return s.supervisor.Resume(s.pid)
}

// Step sets the server's clock forward by d, or back.
func (s *Server) Step(d time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock.step(d)
}

// LogText returns the log of the server, or those of all nodes.
func (s *Server) LogText() []byte {
	text, _ := os.ReadFile(s.log())
	for i, node := range s.nodes {
		if i > 0 {
			text = append(text, node.LogText()...)
		}
	}
	return text
}

// Remove ends the server and removes its files, of all nodes.
func (s *Server) Remove() error {
	var err error
	for i, node := range s.nodes {
		if i > 0 {
			err = errors.Join(err, node.Remove())
		}
	}
	if s.standby != nil {
		err = errors.Join(err, s.standby.link.Close())
	}
	return errors.Join(err, s.supervisor.Remove(s.dir))
}
