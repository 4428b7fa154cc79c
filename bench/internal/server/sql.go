package server

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver "mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
)

// PostgresDSN returns the URL of a database on a server.
func PostgresDSN(addr, database string) string {
	return "postgres://postgres@" + addr + "/" + database + "?sslmode=disable"
}

// MariaDBDSN returns the address of a database on a server in the form of
// github.com/go-sql-driver/mysql.
func MariaDBDSN(addr, database string) string { return "root@tcp(" + addr + ")/" + database }

// maxConnections is enough for 400 Lockers, of which each has a connection that listens and one
// that is reserved, and for their pools.
const maxConnections = "1500"

// postgresKind uses the settings of the distribution, except for the number of
// connections. The module pg_stat_statements is loaded. It counts only in sessions that
// enable it.
var postgresKind = kind{
	name:     Postgres,
	accounts: []string{"postgres", "nobody"},
	find: func() ([]string, error) {
		dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
		more, _ := filepath.Glob("/usr/pgsql-*/bin")
		return lookUp(append(dirs, more...), "initdb", "postgres")
	},
	prepare: func(p []string, dir string) []string {
		return []string{p[0], "--pgdata", filepath.Join(dir, "data"), "--username=postgres", "--auth=trust", "--no-locale", "--encoding=UTF8"}
	},
	serve: func(p []string, dir string, port int) ([]string, error) {
		return []string{
			p[1], "-D", filepath.Join(dir, "data"), "-p", strconv.Itoa(port),
			"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
			"-c", "dynamic_shared_memory_type=mmap", "-c", "max_connections=" + maxConnections,
			"-c", "shared_preload_libraries=pg_stat_statements", "-c", "pg_stat_statements.track=none",
		}, nil
	},
	probe: func(addr string) (string, string, error) {
		return probeSQL("pgx", PostgresDSN(addr, "postgres"), `SHOW server_version`,
			`SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) FROM pg_settings
			WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes', 'wal_sync_method')`)
	},
}

// mariadbKind runs with the server's own defaults, which are Debian's where
// durability is concerned: no binary log.
var mariadbKind = kind{
	name:     MariaDB,
	accounts: []string{"nobody"},
	find: func() ([]string, error) {
		return lookUp([]string{"/usr/sbin", "/usr/local/sbin", "/usr/libexec"}, "mariadb-install-db", "mariadbd")
	},
	prepare: func(p []string, dir string) []string {
		return []string{
			p[0], "--no-defaults", "--datadir=" + filepath.Join(dir, "data"),
			"--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve",
		}
	},
	serve: func(p []string, dir string, port int) ([]string, error) {
		return []string{
			p[1], "--no-defaults", "--datadir=" + filepath.Join(dir, "data"),
			"--socket=" + filepath.Join(dir, "socket"), "--pid-file=" + filepath.Join(dir, "pid"),
			"--tmpdir=" + dir, "--port=" + strconv.Itoa(port), "--bind-address=127.0.0.1",
			"--skip-name-resolve", "--max-connections=" + maxConnections,
		}, nil
	},
	probe: func(addr string) (string, string, error) {
		return probeSQL("mysql", MariaDBDSN(addr, ""), `SELECT version()`,
			`SELECT CONCAT('innodb_flush_log_at_trx_commit=', @@innodb_flush_log_at_trx_commit,
			' innodb_flush_method=', @@innodb_flush_method, ' innodb_doublewrite=', @@innodb_doublewrite,
			' log_bin=', @@log_bin, ' sync_binlog=', @@sync_binlog)`)
	},
}

func probeSQL(driver, dsn, version, settings string) (string, string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return "", "", err
	}
	defer func() { _ = db.Close() }()
	var output [2]string
	for i, query := range []string{version, settings} {
		if err := db.QueryRowContext(ctx, query).Scan(&output[i]); err != nil {
			return "", "", fmt.Errorf("%s: %w", query, err)
		}
	}
	return output[0], output[1], nil
}
