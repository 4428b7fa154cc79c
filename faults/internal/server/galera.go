//go:build linux

package server

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/internal/testdb/supervisor"
)

// Galera is a cluster of MariaDB in which each of three nodes takes writes.
const Galera = "galera"

const nodes = 3

// library is what makes nodes of a cluster of MariaDB.
const library = "/usr/lib/galera/libgalera_smm.so"

// cluster is what its nodes share.
type cluster struct {
	members []string // their addresses, for each other
	formed  atomic.Bool
}

// startCluster starts a cluster. The Server is its first node, which knows the others.
func startCluster(w *supervisor.Supervisor) (*Server, error) {
	c := &cluster{}
	ports, err := freePorts(3 * nodes)
	if err != nil {
		return nil, err
	}
	for i := range nodes {
		c.members = append(c.members, address(ports[3*i]))
	}
	var all []*Server
	for i := range nodes {
		s := &Server{kind: c.node(i, [3]int(ports[3*i:])), supervisor: w, user: supervisor.Account([]string{"nobody"})}
		if s.dir, err = w.MkdirMemory(s.user); err == nil {
			all = append(all, s)
			err = s.launch()
		}
		if err != nil {
			err = fmt.Errorf("start node %d: %w", i, err)
			for _, s := range all {
				text := s.LogText()
				err = errors.Join(err, errors.New(string(text[max(0, len(text)-2000):])), s.Remove())
			}
			return nil, err
		}
		c.formed.Store(true)
	}
	all[0].nodes = all
	return all[0], nil
}

// freePorts returns different ports.
func freePorts(n int) (ports []int, err error) {
	for len(ports) < n {
		port, err := supervisor.FreePort()
		if err != nil {
			return nil, err
		}
		if !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
	}
	return ports, nil
}

// node is how to run node i. Its ports are those for the group, for changes that it has missed,
// and for all data.
func (c *cluster) node(i int, ports [3]int) kind {
	k := kinds[MariaDB]
	serve := k.serve
	k.name = Galera
	k.probe, k.startTimeout = ready, 4*time.Minute // a node that joins gets all data
	k.dsn = func(addr, database string) string {
		return "root@tcp(" + addr + ")/" + database + "?clientFoundRows=true&interpolateParams=true&wsrep_sync_wait=7"
	}
	if i > 0 { // it gets everything from the others
		k.create = ""
		k.prepare = func(data string) ([]string, error) {
			mkdir, err := exec.LookPath("mkdir")
			return []string{mkdir, data}, err
		}
	}
	k.serve = func(dir, data string, port int) ([]string, error) {
		argv, err := serve(dir, data, port)
		if err != nil {
			return nil, err
		}
		found, _ := filepath.Glob(library)
		if len(found) == 0 {
			return nil, fmt.Errorf("no %s found; faults/setup.sh galera installs it", library)
		}
		argv = append(argv, "--binlog-format=ROW", "--default-storage-engine=InnoDB", "--innodb-autoinc-lock-mode=2",
			"--innodb-flush-log-at-trx-commit=1", "--innodb-buffer-pool-size=64M", "--innodb-log-file-size=16M",
			"--wsrep-on=ON", "--wsrep-provider="+library, "--wsrep-cluster-name=faults", "--wsrep-node-name=node"+strconv.Itoa(i),
			"--wsrep-node-address="+c.members[i], "--wsrep-sst-method=rsync", "--wsrep-sst-receive-address="+address(ports[2]),
			"--wsrep-cluster-address=gcomm://"+strings.Join(c.members, ","),
			"--wsrep-provider-options=gmcast.listen_addr=tcp://"+c.members[i]+";ist.recv_addr="+address(ports[1])+
				";ist.recv_bind=127.0.0.1;pc.recovery=false;evs.keepalive_period=PT0.5S;evs.suspect_timeout=PT2S;evs.inactive_timeout=PT4S;gcache.size=32M")
		if i == 0 && !c.formed.Load() {
			argv = append(argv, "--wsrep-new-cluster")
		}
		return argv, nil
	}
	return k
}

// ready fails as long as a node is no member of the cluster.
func ready(addr string) error { return status(addr, "wsrep_ready", "ON") }

// status fails unless a node says so of itself.
func status(addr, variable, want string) error {
	db, err := sql.Open(kinds[MariaDB].driver, kinds[MariaDB].dsn(addr, ""))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var name, value string
	err = db.QueryRowContext(ctx, `SHOW STATUS LIKE '`+variable+`'`).Scan(&name, &value)
	if err == nil && value != want {
		err = fmt.Errorf("%s is %s, not %s", variable, value, want)
	}
	return err
}

// Nodes returns the nodes of a cluster, or the server itself.
func (s *Server) Nodes() []*Server {
	if s.nodes == nil {
		return []*Server{s}
	}
	return s.nodes
}

// Isolate cuts a node off from the others for some time, but not from its clients. It returns
// when the node is a member again.
func (s *Server) Isolate(d time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.isolate(1); err != nil {
		return err
	}
	time.Sleep(d)
	if err := s.isolate(0); err != nil {
		return err
	}
	return s.awaitReady()
}

func (s *Server) isolate(on int) error {
	return s.exec(s.port, "", fmt.Sprintf(`SET GLOBAL wsrep_provider_options = 'gmcast.isolate=%d'`, on))
}

// Freeze is Pause for a node. It returns when the node is a member again.
func (s *Server) Freeze(d time.Duration) error {
	if err := s.Pause(d); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.awaitReady()
}

// notice is how long the nodes may take to see that one of them is gone, or is back.
const notice = 5 * time.Second

// awaitReady waits until a node has been a member of the whole cluster for some time.
func (s *Server) awaitReady() error {
	since := time.Now()
	for deadline := since.Add(s.kind.startTimeout); time.Since(since) < notice; time.Sleep(100 * time.Millisecond) {
		err := errors.Join(s.probe(s.port), status(s.Addr(), "wsrep_cluster_size", strconv.Itoa(nodes)))
		if err != nil {
			since = time.Now()
		}
		if err != nil && time.Now().After(deadline) {
			return err
		}
	}
	return nil
}
