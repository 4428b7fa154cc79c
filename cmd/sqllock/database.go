package main

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/urfave/cli/v3"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/lockmysql"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/locksqlite"
)

// maxConns is how many connections one process opens at most: one that renews,
// and one for whatever else.
const maxConns = 2

// locks is what the subcommands need of a database.
type locks interface {
	driver.UniqueDatabase
	driver.Migratable
}

// database is the database that the user named. It is opened when it is used
// first.
type database struct {
	locks
	handle *sql.DB
	file   string // of SQLite, which gets its tables by itself; "" on a server
}

// settings are the global flags.
type settings struct{ dsn, prefix, schema string }

func (a *app) settings(cmd *cli.Command) settings {
	get := func(flag, env string) string {
		if cmd.IsSet(flag) {
			return cmd.String(flag)
		}
		return a.getenv(env)
	}
	return settings{
		dsn:    get("dsn", "SQLLOCK_DSN"),
		prefix: get("table-prefix", "SQLLOCK_TABLE_PREFIX"),
		schema: get("schema", "SQLLOCK_SCHEMA"),
	}
}

// database returns the database that the flags and the environment name. It
// reaches for nothing yet, but makes the directory of the file that is the
// default.
func (a *app) database(cmd *cli.Command) (*database, error) {
	s := a.settings(cmd)
	if cmd.IsSet("dsn") && s.dsn == "" { // most likely from a variable that is not set
		return nil, fail(exitUsage, "--dsn is empty: the DSN must look like %s", dsnForms)
	}
	name, path := "sqlite", ""
	var err error
	if s.dsn == "" {
		path, err = a.embeddedFile()
	} else {
		name, path, err = product(s.dsn)
	}
	if err != nil {
		return nil, err
	}
	if s.schema != "" && name != "postgres" {
		return nil, fail(exitUsage, "a schema is for Postgres only; use a table prefix")
	}
	db, err := openers[name](s, path)
	if err != nil {
		return nil, err
	}
	db.handle.SetMaxOpenConns(maxConns)
	db.handle.SetMaxIdleConns(maxConns)
	return db, nil
}

var openers = map[string]func(s settings, path string) (*database, error){
	"postgres": openPostgres,
	"mysql":    openMySQL,
	"sqlite":   openSQLite,
}

func openPostgres(s settings, _ string) (*database, error) {
	cfg, err := postgresConfig(s.dsn)
	if err != nil {
		return nil, err
	}
	opts := optional(nil, s.prefix, lockpg.TablePrefix)
	opts = optional(opts, s.schema, lockpg.Schema)
	handle := stdlib.OpenDB(*cfg)
	return &database{locks: lockpg.DB(handle, opts...), handle: handle}, nil
}

func openMySQL(s settings, _ string) (*database, error) {
	cfg, err := mysqlConfig(s.dsn)
	if err != nil {
		return nil, err
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, malformed(s.dsn, err)
	}
	handle := sql.OpenDB(connector)
	return &database{locks: lockmysql.DB(handle, optional(nil, s.prefix, lockmysql.TablePrefix)...), handle: handle}, nil
}

func openSQLite(s settings, path string) (*database, error) {
	if err := sqliteFile(path); err != nil {
		return nil, err
	}
	uri, err := sqliteURI(path)
	if err != nil {
		return nil, err
	}
	handle, err := sql.Open("sqlite", uri)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return &database{locks: locksqlite.DB(handle, optional(nil, s.prefix, locksqlite.TablePrefix)...), handle: handle, file: path}, nil
}

// optional adds an option unless its value is empty.
func optional[O any](opts []O, value string, option func(string) O) []O {
	if value == "" {
		return opts
	}
	return append(opts, option(value))
}

// prepare switches an SQLite file to write-ahead logging, where it stays. SQLite
// does not wait for others who do the same at the same time, whatever the
// busy_timeout.
func (d *database) prepare(ctx context.Context) error {
	if d.file == "" {
		return nil
	}
	for {
		var mode string
		err := d.handle.QueryRowContext(ctx, "PRAGMA journal_mode = wal").Scan(&mode)
		switch {
		case err == nil:
			return nil
		case !d.busy(err) || pause(ctx) != nil:
			return fmt.Errorf("%s: %w", d.file, err)
		}
	}
}

// busy reports that others are using the database and that this passes.
func (d *database) busy(err error) bool {
	m, problem := d.Migration()
	if problem != nil {
		return false
	}
	defer func() { _ = m.Close() }()
	return m.Retryable(err)
}

// pause waits a little, at random, unless ctx ends.
func pause(ctx context.Context) error {
	t := time.NewTimer(10*time.Millisecond + rand.N(40*time.Millisecond))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// close ends the connections, but waits no longer than ctx for a server that
// does not hear: the end of the process ends them too.
func (d *database) close(ctx context.Context) {
	within(ctx, func() { _ = d.handle.Close() })
}

// within calls fn and waits for it no longer than ctx allows.
func within(ctx context.Context, fn func()) (done bool) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		fn()
	}()
	select {
	case <-ended:
		return true
	case <-ctx.Done():
		return false
	}
}
