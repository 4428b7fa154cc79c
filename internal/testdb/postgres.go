package testdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/sqllock/sqllock/internal/testdb/supervisor"
)

type postgresEngine struct{}

var (
	_ engine = postgresEngine{}
	_ copier = postgresEngine{}
)

func (postgresEngine) name() string      { return Postgres }
func (postgresEngine) driver() string    { return "pgx" }
func (postgresEngine) account() []string { return []string{"postgres", "nobody"} }
func (postgresEngine) directory() string { return "SHOW data_directory" }

func (postgresEngine) open(dsn string) (*sql.DB, error) { return sql.Open("pgx", dsn) }

func (postgresEngine) dsn(base, addr, database string, params []string) string {
	u, err := url.Parse(base)
	if err != nil {
		panic("bug: a DSN was not checked: " + err.Error())
	}
	if addr != "" {
		u.Host = addr
	}
	u.Path = "/" + database
	// The driver takes the last of two values for one key.
	u.RawQuery = strings.Trim(u.RawQuery+"&"+query(params), "&")
	return u.String()
}

func (postgresEngine) addr(dsn string) string {
	u, err := url.Parse(dsn)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return ""
	}
	if u.Port() == "" {
		return net.JoinHostPort(u.Hostname(), "5432")
	}
	return u.Host
}

func (postgresEngine) local(addr string) string {
	return "postgres://postgres@" + addr + "/postgres?sslmode=disable"
}

func (postgresEngine) find() (programs, error) { return findPostgres() }

func (postgresEngine) initialise(p programs, dir string) []string {
	return []string{
		p.initialise, "--pgdata", filepath.Join(dir, "data"), "--username=postgres",
		"--auth=trust", "--no-locale", "--encoding=UTF8",
		"--no-sync", // the files need not survive; commits of tests are synced
	}
}

func (postgresEngine) serve(p programs, dir string, port int) []string {
	return []string{
		p.serve, "-D", filepath.Join(dir, "data"), "-p", strconv.Itoa(port),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
		// Not in /dev/shm, where a killed server would leave them.
		"-c", "dynamic_shared_memory_type=mmap",
	}
}

func (postgresEngine) generous() []string { return []string{"-c", "max_connections=1000"} }

// stop uses SIGINT: at SIGTERM Postgres waits for its clients to leave.
func (postgresEngine) stop(w *supervisor.Supervisor, pid int) error { return w.Interrupt(pid) }

func (postgresEngine) isVersion(version string) bool {
	return strings.HasPrefix(version, "PostgreSQL ")
}

func (postgresEngine) home(context.Context, *sql.DB) (string, error) { return "postgres", nil }

// create copies template0, to which no session can be connected that would be in the way.
func (e postgresEngine) create(ctx context.Context, db *sql.DB, database string) error {
	return e.copy(ctx, db, "template0", database)
}

func (postgresEngine) copy(ctx context.Context, db *sql.DB, from, to string) error {
	_, err := db.ExecContext(ctx, "CREATE DATABASE "+to+" TEMPLATE "+from)
	return err
}

// drop does not use WITH (FORCE), which Postgres 12 lacks.
func (postgresEngine) drop(ctx context.Context, db *sql.DB, database string) error {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		_, err := db.ExecContext(ctx,
			"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", database)
		if err == nil {
			_, err = db.ExecContext(ctx, "DROP DATABASE "+database)
		}
		if err == nil || !isInUse(err) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("somebody connects again and again: %w", err)
		}
	}
}

// isInUse reports object_in_use: a terminated session is not gone at once.
func isInUse(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "55006"
}
