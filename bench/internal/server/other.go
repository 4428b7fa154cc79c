package server

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/sqllock/sqllock/internal/testdb/warden"
)

func redisKind(name string) kind {
	persistence := []string{"--appendonly", "no"}
	settings := "appendonly=no save=never"
	if name == RedisAlways {
		persistence = []string{"--appendonly", "yes", "--appendfsync", "always"}
		settings = "appendonly=yes appendfsync=always"
	}
	return kind{
		name:     name,
		accounts: []string{"nobody"},
		find:     func() ([]string, error) { return lookUp(nil, "redis-server") },
		serve: func(p []string, dir string, port int) ([]string, error) {
			return append([]string{
				p[0], "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir, "--save", "",
				"--maxclients", "4000",
			}, persistence...), nil
		},
		ask: func(addr string) (string, string, error) {
			info, err := talk(addr, "INFO server\r\nQUIT\r\n")
			return field(info, `redis_version:(\S+)`), settings, err
		},
	}
}

var etcdKind = kind{
	name:     Etcd,
	accounts: []string{"nobody"},
	find:     func() ([]string, error) { return lookUp(nil, "etcd") },
	serve: func(p []string, dir string, port int) ([]string, error) {
		peers, err := warden.FreePort()
		if err != nil {
			return nil, err
		}
		client, peer := "http://"+address(port), "http://"+address(peers)
		return []string{
			p[0], "--data-dir", filepath.Join(dir, "data"),
			"--listen-client-urls", client, "--advertise-client-urls", client,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
			"--initial-cluster", "default=" + peer,
		}, nil
	},
	ask: func(addr string) (string, string, error) {
		health, err := get("http://" + addr + "/health")
		if err == nil && !strings.Contains(health, `"true"`) {
			err = errors.New("not healthy")
		}
		if err != nil {
			return "", "", err
		}
		version, err := get("http://" + addr + "/version")
		return field(version, `"etcdserver":"([^"]+)"`), "defaults: each commit is synced", err
	},
}

// zookeeperJar is where Debian has it; its manifest names the rest.
const zookeeperJar = "/usr/share/java/zookeeper.jar"

var zookeeperKind = kind{
	name:     ZooKeeper,
	accounts: []string{"nobody"},
	find: func() ([]string, error) {
		if _, err := os.Stat(zookeeperJar); err != nil {
			return nil, fmt.Errorf("no %s found; bench/setup.sh installs it", zookeeperJar)
		}
		return lookUp(nil, "java")
	},
	serve: func(p []string, dir string, port int) ([]string, error) {
		config := filepath.Join(dir, "zoo.cfg")
		text := fmt.Sprintf("dataDir=%s\nclientPort=%d\nclientPortAddress=127.0.0.1\n"+
			"tickTime=2000\nmaxClientCnxns=0\nadmin.enableServer=false\n", dir, port)
		if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
			return nil, err
		}
		return []string{p[0], "-Xmx512m", "-cp", zookeeperJar, "org.apache.zookeeper.server.quorum.QuorumPeerMain", config}, nil
	},
	ask: func(addr string) (string, string, error) {
		said, err := talk(addr, "srvr")
		if err == nil && !strings.Contains(said, "Mode:") {
			err = errors.New("not serving yet")
		}
		return field(said, `version: ([^-, ]+)`), "defaults: forceSync=yes", err
	},
}

// talk says something to a server and returns all that it answers.
func talk(addr, words string) (string, error) {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(conn, words); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(bufio.NewReader(conn))
	return string(answer), err
}

func get(url string) (string, error) {
	client := http.Client{Timeout: 5 * time.Second}
	r, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer func() { _ = r.Body.Close() }()
	body, err := io.ReadAll(r.Body)
	return string(body), err
}

func field(text, pattern string) string {
	if m := regexp.MustCompile(pattern).FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return "unknown"
}
