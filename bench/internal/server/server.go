// Package server starts throw-away servers on 127.0.0.1 for the benchmarks. They
// keep their files in a temporary directory and end with the process that started
// them, however that ends.
package server

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/sqllock/sqllock/internal/testdb/supervisor"
)

// The servers by name.
const (
	Postgres    = "postgres"
	MariaDB     = "mariadb"
	SQLite      = "sqlite" // a directory, no server
	Redis       = "redis"
	RedisAlways = "redis-always" // with a flush before each reply
	Etcd        = "etcd"
	ZooKeeper   = "zookeeper"
)

// stepTimeout bounds each step that a server takes.
const stepTimeout = time.Minute

// Server is one that runs, or a directory for SQLite.
type Server struct {
	Name     string
	Addr     string // host:port; of SQLite the directory
	Version  string
	Settings string // the settings for durability, as the server reports them
	PID      int    // its process, the parent of its others; 0 for SQLite
}

// kind is how to run a server.
type kind struct {
	name     string
	accounts []string // users it may run as when root starts it, the first that exists
	// find returns the paths of the programs, the server last.
	find func() ([]string, error)
	// prepare returns a command that makes the files in dir, nil if there is none.
	prepare func(programs []string, dir string) []string
	serve   func(programs []string, dir string, port int) ([]string, error)
	// probe connects and returns the version and settings; an error means not ready.
	probe func(addr string) (version, settings string, err error)
}

var kinds = append([]kind{postgresKind, mariadbKind}, others...)

// Fleet runs servers. It is not safe for concurrent use.
type Fleet struct {
	supervisor *supervisor.Supervisor
	running    map[string]*Server
}

// NewFleet returns a Fleet that keeps its files below dir. [supervisor.Main] must have
// been called first of all in main.
func NewFleet(dir string) (*Fleet, error) {
	if err := os.Setenv("TMPDIR", dir); err != nil { // the supervisor inherits it
		return nil, err
	}
	w, err := supervisor.Start()
	if err != nil {
		return nil, err
	}
	return &Fleet{supervisor: w, running: make(map[string]*Server)}, nil
}

// Close kills all servers and removes their files.
func (f *Fleet) Close() error { return f.supervisor.Close() }

// Start starts a server, or returns the running one. The error names what is missing.
func (f *Fleet) Start(name string) (*Server, error) {
	if s := f.running[name]; s != nil {
		return s, nil
	}
	s, err := f.start(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f.running[name] = s
	return s, nil
}

func (f *Fleet) start(name string) (*Server, error) {
	if name == SQLite {
		dir, err := f.supervisor.MkdirTemp(nil)
		return &Server{Name: name, Addr: dir, Version: "in the process", Settings: "journal_mode=WAL synchronous=FULL"}, err
	}
	for _, k := range kinds {
		if k.name == name {
			return f.launch(k)
		}
	}
	return nil, errors.New("no such server")
}

// launch makes the files of a server and starts it on a free port.
func (f *Fleet) launch(k kind) (*Server, error) {
	programs, err := k.find()
	if err != nil {
		return nil, err
	}
	owner := supervisor.Account(k.accounts)
	dir, err := f.supervisor.MkdirTemp(owner)
	if err != nil {
		return nil, err
	}
	log := filepath.Join(dir, "log")
	run := func(argv []string) (int, error) {
		return f.supervisor.Start(supervisor.Command{Argv: argv, Dir: dir, Log: log, User: owner})
	}
	s, err := f.boot(k, programs, dir, run)
	if err != nil {
		output, _ := os.ReadFile(log)
		return nil, fmt.Errorf("%w\n%s", err, output[max(0, len(output)-2000):])
	}
	return s, nil
}

func (f *Fleet) boot(k kind, programs []string, dir string, run func([]string) (int, error)) (*Server, error) {
	if k.prepare != nil {
		pid, err := run(k.prepare(programs, dir))
		if err != nil {
			return nil, err
		}
		if ended, status, err := f.supervisor.Wait(pid, stepTimeout); err != nil || !ended || status != "exit status 0" {
			return nil, errors.Join(fmt.Errorf("%s: %s", programs[0], status), err)
		}
	}
	port, err := supervisor.FreePort()
	if err != nil {
		return nil, err
	}
	argv, err := k.serve(programs, dir, port)
	if err != nil {
		return nil, err
	}
	pid, err := run(argv)
	if err != nil {
		return nil, err
	}
	s := &Server{Name: k.name, Addr: address(port), PID: pid}
	for deadline := time.Now().Add(stepTimeout); ; {
		ended, status, err := f.supervisor.Wait(pid, 50*time.Millisecond)
		if err != nil || ended {
			return nil, errors.Join(fmt.Errorf("the server ended: %s", status), err)
		}
		if s.Version, s.Settings, err = k.probe(s.Addr); err == nil {
			return s, nil
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("the server does not answer: %w", err)
		}
	}
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// lookUp finds programs, also where an ordinary user's PATH does not lead.
func lookUp(dirs []string, names ...string) ([]string, error) {
	dirs = append(filepath.SplitList(os.Getenv("PATH")), dirs...)
	var paths []string
	for _, name := range names {
		path := ""
		for _, dir := range dirs {
			if p, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				path = p
				break
			}
		}
		if path == "" {
			return nil, fmt.Errorf("no program %s found; bench/setup.sh installs it", name)
		}
		paths = append(paths, path)
	}
	return paths, nil
}
