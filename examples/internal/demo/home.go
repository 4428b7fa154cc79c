package demo

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/lockmysql"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/locksqlite"
)

// home is where the tables of one run are: a file, a schema or a database of
// its own, which goes away with everything in it.
type home struct {
	where  string // for people
	create func(context.Context) error
	remove func() error

	open  func() (*sql.DB, error) // a new handle
	locks func(*sql.DB) locks
	text  func(string) string // writes a statement as the database wants it
}

// locks is a database that keeps locks.
type locks interface {
	driver.UniqueDatabase
	driver.Migratable
}

func newHome(dsn string) (*home, error) {
	name := "sqllock_example_" + strings.ToLower(rand.Text()[:10])
	scheme, _, _ := strings.Cut(dsn, ":")
	switch scheme {
	case "":
		return inFile(name), nil
	case "postgres", "postgresql":
		return inSchema(dsn, name)
	case "mysql", "mariadb":
		return inDatabase(dsn, name)
	}
	return nil, errDSN
}

// errDSN repeats neither the DSN nor the error of its parser: both may contain a
// password.
var errDSN = errors.New("the DSN cannot be read: it must look like " + dsnForms)

func inFile(name string) *home {
	dir := filepath.Join(os.TempDir(), name)
	path := filepath.ToSlash(filepath.Join(dir, "example.db"))
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // file:///C:/…
	}
	pragmas := "_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)"
	uri := url.URL{Scheme: "file", Path: path, RawQuery: pragmas}
	return &home{
		where:  "SQLite in " + dir,
		create: func(context.Context) error { return os.Mkdir(dir, 0o700) },
		remove: func() error { return os.RemoveAll(dir) },
		open:   func() (*sql.DB, error) { return sql.Open("sqlite", uri.String()) },
		locks:  func(db *sql.DB) locks { return locksqlite.DB(db) },
		text:   asIs,
	}
}

func inSchema(dsn, name string) (*home, error) {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, errDSN
	}
	cfg.RuntimeParams["search_path"] = name
	open := func() (*sql.DB, error) { return stdlib.OpenDB(*cfg), nil }
	return &home{
		where:  "Postgres in schema " + name,
		create: func(ctx context.Context) error { return statement(ctx, open, "CREATE SCHEMA "+name) },
		remove: lastly(open, "DROP SCHEMA IF EXISTS "+name+" CASCADE"),
		open:   open,
		locks:  func(db *sql.DB) locks { return lockpg.DB(db) },
		text:   numbered,
	}, nil
}

func inDatabase(dsn, name string) (*home, error) {
	cfg, err := mysqlConfig(dsn)
	if err != nil {
		return nil, errDSN
	}
	open := func(database string) func() (*sql.DB, error) {
		cfg := cfg.Clone()
		cfg.DBName = database
		return func() (*sql.DB, error) {
			connector, err := mysql.NewConnector(cfg)
			if err != nil {
				return nil, err
			}
			return sql.OpenDB(connector), nil
		}
	}
	outside := open(cfg.DBName)
	return &home{
		where:  "MySQL or MariaDB in database " + name,
		create: func(ctx context.Context) error { return statement(ctx, outside, "CREATE DATABASE "+name) },
		remove: lastly(outside, "DROP DATABASE IF EXISTS "+name),
		open:   open(name),
		locks:  func(db *sql.DB) locks { return lockmysql.DB(db) },
		text:   asIs,
	}, nil
}

// mysqlConfig reads a URL. Its parameters are those of the driver, and "socket".
func mysqlConfig(dsn string) (*mysql.Config, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return nil, err
	}
	params := u.Query()
	socket := params.Get("socket")
	params.Del("socket")
	cfg, err := mysql.ParseDSN("/?" + params.Encode())
	if err != nil {
		return nil, err
	}
	cfg.User = u.User.Username()
	cfg.Passwd, _ = u.User.Password()
	cfg.DBName = strings.TrimPrefix(u.Path, "/")
	cfg.Net, cfg.Addr = "tcp", u.Host
	switch {
	case socket != "":
		cfg.Net, cfg.Addr = "unix", socket
	case u.Port() == "":
		cfg.Addr = net.JoinHostPort(u.Hostname(), "3306")
	}
	cfg.ClientFoundRows = true // as the other databases count
	return cfg, nil
}

// lastly returns a function that runs a statement, whatever has ended.
func lastly(open func() (*sql.DB, error), text string) func() error {
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		return statement(ctx, open, text)
	}
}

// statement runs one statement on a new handle.
func statement(ctx context.Context, open func() (*sql.DB, error), text string) error {
	db, err := open()
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if _, err := db.ExecContext(ctx, text); err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	return nil
}
