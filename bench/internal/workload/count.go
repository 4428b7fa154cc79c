package workload

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/sqllock/sqllock/bench/internal/contender"
	"github.com/sqllock/sqllock/bench/internal/server"
)

// counter asks a server how many statements it has got, and how many connections
// it has.
type counter struct {
	statements func(ctx context.Context) (float64, error)
	conns      func(ctx context.Context) (float64, error)
	own        float64 // statements that counting costs
	close      func() error
}

// newCounter returns the counter of an entry, or nil if its server has no counter.
func newCounter(ctx context.Context, e *entry) (*counter, error) {
	switch e.Server {
	case server.Postgres:
		admin := e.site
		admin.Database = "postgres"
		return sqlCounter(ctx, e, admin, postgresExtension, postgresStatements, postgresConns)
	case server.MariaDB:
		admin := e.site
		admin.Database = ""
		return sqlCounter(ctx, e, admin, "", mariadbStatements, mariadbConns)
	case server.Redis, server.RedisAlways:
		return redisCounter(e), nil
	}
	return nil, nil
}

func sqlCounter(ctx context.Context, e *entry, admin contender.Site, setup, statements, conns string) (*counter, error) {
	db, err := contender.SQL(ctx, e.Server, admin)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	if setup != "" {
		if _, err := db.ExecContext(ctx, setup); err != nil {
			return nil, fmt.Errorf("%s: %w", setup, err)
		}
	}
	c := &counter{conns: queryFloat(db, conns, e.site.Database), close: db.Close}
	if e.Server == server.MariaDB {
		c.statements, c.own = queryFloat(db, statements), 1
	} else {
		c.statements = queryFloat(db, statements, e.site.Database)
	}
	return c, nil
}

func queryFloat(db *sql.DB, query string, args ...any) func(context.Context) (float64, error) {
	return func(ctx context.Context) (n float64, err error) {
		err = db.QueryRowContext(ctx, query, args...).Scan(&n)
		return n, err
	}
}

func redisCounter(e *entry) *counter {
	client := goredis.NewClient(&goredis.Options{Addr: e.site.Addrs[e.Server], PoolSize: 1})
	info := func(section, name string) func(context.Context) (float64, error) {
		return func(ctx context.Context) (float64, error) {
			text, err := client.Info(ctx, section).Result()
			if err != nil {
				return 0, err
			}
			_, after, _ := strings.Cut(text, name+":")
			value, _, _ := strings.Cut(after, "\r")
			return strconv.ParseFloat(value, 64)
		}
	}
	return &counter{
		statements: info("stats", "total_commands_processed"), own: 1,
		conns: info("clients", "connected_clients"), close: client.Close,
	}
}

// during returns how many statements the server got while f ran.
func (c *counter) during(ctx context.Context, f func()) (float64, error) {
	if c == nil {
		f()
		return 0, nil
	}
	before, err := c.statements(ctx)
	if err != nil {
		return 0, err
	}
	f()
	after, err := c.statements(ctx)
	return max(0, after-before-c.own), err
}
