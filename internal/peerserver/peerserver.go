// Package peerserver describes how to run the servers of other locks: Redis, etcd and
// ZooKeeper on 127.0.0.1, each with its own directory. Other modules use it to compare
// those locks with this project's. The package itself starts no server.
package peerserver

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sqllock/sqllock/internal/testdb/supervisor"
)

// Server is how to run a server.
type Server struct {
	Program  string   // to look for on the PATH
	Accounts []string // the user to run as when root starts it: the first that exists
	Settings string   // those that decide on durability
	// Serve returns the command that runs the program, which was found at path, on the
	// files in dir. A server that was killed is run again with another call.
	Serve func(path, dir string, port int) ([]string, error)
	// Probe returns the version of a server at host:port; an error means that it is not
	// ready.
	Probe func(addr string) (version string, err error)
}

var accounts = []string{"nobody"}

// Redis keeps nothing over a restart, or, with always, flushes each command before it
// replies.
func Redis(always bool) Server {
	persistence, settings := []string{"--appendonly", "no"}, "appendonly=no save=never"
	if always {
		persistence = []string{"--appendonly", "yes", "--appendfsync", "always"}
		settings = "appendonly=yes appendfsync=always"
	}
	return Server{
		Program: "redis-server", Accounts: accounts, Settings: settings,
		Serve: func(path, dir string, port int) ([]string, error) {
			return append([]string{
				path, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir, "--save", "",
				"--maxclients", "4000",
			}, persistence...), nil
		},
		Probe: func(addr string) (string, error) {
			info, err := talk(addr, "INFO server\r\nQUIT\r\n")
			if err == nil && !strings.Contains(info, "redis_version:") {
				err = errors.New("not serving yet")
			}
			return field(info, `redis_version:(\S+)`), err
		},
	}
}

// Etcd is a cluster of one.
func Etcd() Server {
	return Server{
		Program: "etcd", Accounts: accounts, Settings: "defaults: each commit is synced",
		Serve: func(path, dir string, port int) ([]string, error) {
			peers, err := supervisor.FreePort()
			if err != nil {
				return nil, err
			}
			client, peer := url(port), url(peers)
			return []string{
				path, "--data-dir", filepath.Join(dir, "data"),
				"--listen-client-urls", client, "--advertise-client-urls", client,
				"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
				"--initial-cluster", "default=" + peer,
			}, nil
		},
		Probe: func(addr string) (string, error) {
			health, err := get("http://" + addr + "/health")
			if err == nil && !strings.Contains(health, `"true"`) {
				err = errors.New("not healthy")
			}
			if err != nil {
				return "", err
			}
			version, err := get("http://" + addr + "/version")
			return field(version, `"etcdserver":"([^"]+)"`), err
		},
	}
}

func url(port int) string { return "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// zookeeperJar is where Debian has it; its manifest names the rest.
const zookeeperJar = "/usr/share/java/zookeeper.jar"

// ZooKeeper is a single server. Its sessions may last for two ticks at least and for
// twenty at most.
func ZooKeeper(tick time.Duration) Server {
	return Server{
		Program: "java", Accounts: accounts, Settings: "defaults: forceSync=yes",
		Serve: func(path, dir string, port int) ([]string, error) {
			if _, err := os.Stat(zookeeperJar); err != nil {
				return nil, fmt.Errorf("no %s found", zookeeperJar)
			}
			config := filepath.Join(dir, "zoo.cfg")
			text := fmt.Sprintf("dataDir=%s\nclientPort=%d\nclientPortAddress=127.0.0.1\n"+
				"tickTime=%d\nmaxClientCnxns=0\nadmin.enableServer=false\n", dir, port, tick.Milliseconds())
			if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
				return nil, err
			}
			return []string{
				path, "-Xmx512m", "-XX:-UsePerfData", // the option prevents files outside of dir
				"-cp", zookeeperJar, "org.apache.zookeeper.server.quorum.QuorumPeerMain", config,
			}, nil
		},
		Probe: func(addr string) (string, error) {
			reply, err := talk(addr, "srvr")
			if err == nil && !strings.Contains(reply, "Mode:") {
				err = errors.New("not serving yet")
			}
			return field(reply, `version: ([^-, ]+)`), err
		},
	}
}
