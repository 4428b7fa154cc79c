//go:build linux

package client

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"time"

	_ "github.com/lib/pq" // the driver "postgres"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/lockmysql"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/locksqlite"
)

// The modes by name.
const (
	Unique    = "unique"
	ForUpdate = "forupdate"
	Advisory  = "advisory"
)

// The paths to a database, beside the usual one.
const (
	Pgbouncer = "pgbouncer" // in transaction mode
	LibPQ     = "libpq"     // another driver than pgx, of which the library knows nothing
)

// Database returns a handle as a database of the library.
func Database(name string, db *sql.DB) driver.Migratable {
	switch name {
	case "postgres":
		return lockpg.DB(db)
	case "mariadb", "galera":
		return lockmysql.DB(db)
	}
	return locksqlite.DB(db)
}

// Locker makes a Locker. Its reaper runs often, so that it works during the faults.
func Locker(ctx context.Context, cfg Config, db *sql.DB) (*sqllock.Locker, error) {
	return locker(ctx, cfg, db, func(d driver.UniqueDatabase) driver.UniqueDatabase { return d })
}

// locker is Locker, with what stands between it and the database.
func locker(ctx context.Context, cfg Config, db *sql.DB, through func(driver.UniqueDatabase) driver.UniqueDatabase) (*sqllock.Locker, error) {
	database := Database(cfg.Database, db)
	reaper := &sqllock.ReaperOptions{Interval: 500 * time.Millisecond}
	silent := slog.New(slog.DiscardHandler) // losses are wanted here, and are in the history
	switch cfg.Mode {
	case Unique:
		opts := sqllock.UniqueOptions{TTL: cfg.TTL}
		if cfg.Use == Options {
			opts = users[cfg.User].locker
		}
		opts.Label, opts.RetryMax, opts.Reaper, opts.Logger = cfg.Proc, cfg.Poll, reaper, silent
		return sqllock.NewUnique(ctx, through(database.(driver.UniqueDatabase)), &opts)
	case ForUpdate:
		return sqllock.NewForUpdate(ctx, database.(driver.ForUpdateDatabase), &sqllock.ForUpdateOptions{
			TTL: cfg.TTL, Label: cfg.Proc, RetryMax: cfg.Poll, Reaper: reaper, Logger: silent,
		})
	case Advisory:
		return sqllock.NewAdvisory(ctx, database.(driver.AdvisoryDatabase), &sqllock.AdvisoryOptions{
			TTL: cfg.TTL, Label: cfg.Proc, RetryMax: cfg.Poll, Reaper: reaper, Logger: silent,
		})
	}
	return nil, fmt.Errorf("no mode is named %q", cfg.Mode)
}
