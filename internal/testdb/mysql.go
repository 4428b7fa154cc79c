package testdb

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/internal/testdb/supervisor"
)

// mysqlEngine is MariaDB or MySQL, by name.
type mysqlEngine struct{ engine string }

var _ engine = mysqlEngine{}

func (e mysqlEngine) name() string    { return e.engine }
func (mysqlEngine) driver() string    { return "mysql" }
func (mysqlEngine) account() []string { return []string{"nobody"} }
func (mysqlEngine) directory() string { return "SELECT @@datadir" }

func (mysqlEngine) open(dsn string) (*sql.DB, error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	cfg.Logger = &mysql.NopLogger{} // a server that is starting breaks connections
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

func (mysqlEngine) dsn(base, addr, database string, params []string) string {
	cfg, err := mysql.ParseDSN(base)
	if err != nil {
		panic("bug: a DSN was not checked: " + err.Error())
	}
	if addr != "" {
		cfg.Net, cfg.Addr = "tcp", addr
	}
	cfg.DBName = database
	dsn := cfg.FormatDSN()
	if len(params) == 0 {
		return dsn
	}
	separator := "?"
	if strings.Contains(dsn[strings.LastIndex(dsn, "/"):], "?") {
		separator = "&"
	}
	return dsn + separator + query(params)
}

func (mysqlEngine) addr(dsn string) string {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return ""
	}
	return cfg.Addr
}

func (mysqlEngine) local(addr string) string { return "root@tcp(" + addr + ")/" }

func (e mysqlEngine) find() (programs, error) {
	if e.engine == MySQL {
		return findMySQL()
	}
	return findMariaDB()
}

func (e mysqlEngine) initialise(p programs, dir string) []string {
	if e.engine == MySQL {
		return []string{p.initialise, "--no-defaults", "--initialize-insecure", "--datadir=" + filepath.Join(dir, "data")}
	}
	return []string{
		p.initialise, "--no-defaults", "--datadir=" + filepath.Join(dir, "data"),
		"--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve",
	}
}

func (e mysqlEngine) serve(p programs, dir string, port int) []string {
	args := []string{
		p.serve, "--no-defaults", "--datadir=" + filepath.Join(dir, "data"),
		"--socket=" + filepath.Join(dir, "socket"), "--pid-file=" + filepath.Join(dir, "pid"),
		"--tmpdir=" + dir, "--port=" + strconv.Itoa(port), "--bind-address=127.0.0.1",
	}
	if e.engine == MariaDB {
		return append(args, "--skip-name-resolve")
	}
	// MySQL's root comes from localhost. The options spare 400 MB, another port, and a binary log.
	return append(args, "--mysqlx=OFF", "--performance-schema=OFF", "--skip-log-bin")
}

func (mysqlEngine) generous() []string { return []string{"--max-connections=1000"} }

func (mysqlEngine) stop(w *supervisor.Supervisor, pid int) error { return w.Terminate(pid) }

func (e mysqlEngine) isVersion(version string) bool {
	return strings.Contains(version, "MariaDB") == (e.engine == MariaDB)
}

func (e mysqlEngine) home(ctx context.Context, db *sql.DB) (string, error) {
	const database = "sqllock"
	return database, e.create(ctx, db, database)
}

func (mysqlEngine) create(ctx context.Context, db *sql.DB, database string) error {
	_, err := db.ExecContext(ctx, "CREATE DATABASE "+database)
	return err
}

// drop ends the sessions first. DROP DATABASE would wait for their metadata locks.
func (e mysqlEngine) drop(ctx context.Context, db *sql.DB, database string) error {
	ids, err := e.sessions(ctx, db, database)
	for _, id := range ids {
		if err == nil {
			err = kill(ctx, db, id)
		}
	}
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, "DROP DATABASE "+database)
	return err
}

// sessions returns the sessions that use the database as their default.
func (mysqlEngine) sessions(ctx context.Context, db *sql.DB, database string) (ids []int64, err error) {
	rows, err := db.QueryContext(ctx,
		"SELECT id FROM information_schema.processlist WHERE db = ?", database)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

func kill(ctx context.Context, db *sql.DB, id int64) error {
	_, err := db.ExecContext(ctx, "KILL CONNECTION "+strconv.FormatInt(id, 10))
	var e *mysql.MySQLError
	if errors.As(err, &e) && e.Number == 1094 { // no such thread: it left by itself
		return nil
	}
	return err
}
