package contender

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/sqllock/sqllock/bench/internal/delay"
	"github.com/sqllock/sqllock/bench/internal/server"
)

// shrinkAfter is the idle time after which [Site.Shrink] closes a connection.
const shrinkAfter = time.Second

// conns is how many connections a pool opens at most.
func (s Site) conns() int { return cmp.Or(s.Conns, sqlConns) }

// OpenPostgres opens a pool as all contenders on Postgres have it. It gets larger
// as it is used, and keeps its connections.
func OpenPostgres(ctx context.Context, s Site) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(server.PostgresDSN(s.Addrs[server.Postgres], s.Database))
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(s.conns())
	config.ConnConfig.DialFunc = delay.Dialer(s.Delay)
	if s.Count {
		config.ConnConfig.RuntimeParams["options"] = "-c pg_stat_statements.track=top"
	}
	if s.Flush > 0 { // who flushes for a group of commits sleeps first, also without a group
		config.ConnConfig.RuntimeParams["commit_siblings"] = "0"
		config.ConnConfig.RuntimeParams["commit_delay"] = strconv.FormatInt(s.Flush.Microseconds(), 10)
	}
	if s.Shrink {
		config.MaxConnIdleTime, config.HealthCheckPeriod = shrinkAfter, shrinkAfter/2
	}
	return pgxpool.NewWithConfig(ctx, config)
}

// OpenMariaDB opens a handle as all contenders on MariaDB have it.
func OpenMariaDB(s Site) (*sql.DB, error) {
	config, err := mysql.ParseDSN(server.MariaDBDSN(s.Addrs[server.MariaDB], s.Database))
	if err != nil {
		return nil, err
	}
	config.InterpolateParams = true // one round trip for each statement
	config.DialFunc = delay.Dialer(s.Delay)
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	return pooled(sql.OpenDB(connector), s), nil
}

// OpenSQLite opens the file of a database.
func OpenSQLite(s Site) (*sql.DB, error) {
	file := filepath.Join(s.Addrs[server.SQLite], s.Database+".db")
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		return nil, err
	}
	return pooled(db, s), nil
}

func pooled(db *sql.DB, s Site) *sql.DB {
	db.SetMaxOpenConns(s.conns())
	db.SetMaxIdleConns(s.conns())
	if s.Shrink {
		db.SetConnMaxIdleTime(shrinkAfter)
	}
	return db
}

// createDatabase makes the contender's database, unless it is there already.
func createDatabase(ctx context.Context, engine string, s Site) error {
	driver, dsn := "pgx", server.PostgresDSN(s.Addrs[engine], "postgres")
	if engine == server.MariaDB {
		driver, dsn = "mysql", server.MariaDBDSN(s.Addrs[engine], "")
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	_, err = db.ExecContext(ctx, "CREATE DATABASE "+s.Database)
	if err != nil && strings.Contains(err.Error(), "exists") {
		return nil
	}
	if err != nil {
		return fmt.Errorf("create database %s: %w", s.Database, err)
	}
	return nil
}
