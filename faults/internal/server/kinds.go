//go:build linux

package server

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"

	"github.com/sqllock/sqllock/internal/peerserver"
)

// A server that is killed breaks connections: that is no news here.
func init() { _ = mysql.SetLogger(&mysql.NopLogger{}) }

var kinds = map[string]kind{
	Postgres: {
		name: Postgres, driver: "pgx", accounts: []string{"postgres", "nobody"},
		prepare: func(data string) ([]string, error) {
			p, err := postgres("initdb")
			return []string{
				p, "--pgdata", data, "--username=postgres", "--auth=trust",
				"--no-locale", "--encoding=UTF8",
			}, err
		},
		serve: func(_, data string, port int) ([]string, error) {
			p, err := postgres("postgres")
			return []string{
				p, "-D", data, "-p", strconv.Itoa(port),
				"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
				// Not in /dev/shm, where a killed server would leave them.
				"-c", "dynamic_shared_memory_type=mmap", "-c", "max_connections=200",
			}, err
		},
		dsn: func(addr, database string) string {
			return "postgres://postgres@" + addr + "/" + database + "?sslmode=disable"
		},
		admin: "postgres", create: `CREATE DATABASE faults`,
	},
	MariaDB: {
		name: MariaDB, driver: "mysql", accounts: []string{"nobody"},
		prepare: func(data string) ([]string, error) {
			p, err := lookUp("mariadb-install-db")
			return []string{
				p, "--no-defaults", "--datadir=" + data,
				"--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve",
			}, err
		},
		serve: func(dir, data string, port int) ([]string, error) {
			p, err := lookUp("mariadbd")
			return []string{
				p, "--no-defaults", "--datadir=" + data,
				"--socket=" + filepath.Join(dir, "socket"), "--pid-file=" + filepath.Join(dir, "pid"),
				"--tmpdir=" + dir, "--port=" + strconv.Itoa(port), "--bind-address=127.0.0.1",
				"--skip-name-resolve", "--max-connections=300",
			}, err
		},
		// An update that changes nothing is an update all the same: the registers count.
		// Nothing is prepared for one use: docs/operations.md advises it.
		dsn: func(addr, database string) string {
			return "root@tcp(" + addr + ")/" + database + "?clientFoundRows=true&interpolateParams=true"
		},
		create: `CREATE DATABASE faults`,
	},
	SQLite: {
		name: SQLite, driver: "sqlite",
		dsn: func(dir, _ string) string { return File(dir) },
	},
	Redis:       peer(Redis, peerserver.Redis(false)),
	RedisAlways: peer(RedisAlways, peerserver.Redis(true)),
	Etcd:        peer(Etcd, peerserver.Etcd()),
	ZooKeeper:   peer(ZooKeeper, peerserver.ZooKeeper(zookeeperTick)),
}

// zookeeperTick lets sessions be as short as two seconds, and end on time.
const zookeeperTick = 200 * time.Millisecond

// peer is a server of other locks.
func peer(name string, p peerserver.Server) kind {
	return kind{
		name: name, accounts: p.Accounts, ownMalloc: name == Redis || name == RedisAlways,
		serve: func(dir, _ string, port int) ([]string, error) {
			path, err := lookUp(p.Program)
			if err != nil {
				return nil, err
			}
			return p.Serve(path, dir, port)
		},
		probe: func(addr string) error {
			_, err := p.Probe(addr)
			return err
		},
	}
}

// File returns the DSN of an SQLite database in a directory.
func File(dir string) string {
	return "file:" + filepath.Join(dir, "faults.db") + "?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)"
}

// postgres returns the newest program of that name: Debian has several versions beside
// each other.
func postgres(name string) (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	more, _ := filepath.Glob("/usr/pgsql-*/bin/" + name)
	if found = append(found, more...); len(found) > 0 {
		return found[len(found)-1], nil
	}
	return lookUp(name)
}

// lookUp finds a program, also where an ordinary user's PATH does not lead.
func lookUp(name string) (string, error) {
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin", "/usr/local/sbin", "/usr/libexec") {
		if p, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("no program %s found; faults/setup.sh installs it", name)
}
