package workload

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/sqllock/sqllock/bench/internal/contender"
	"github.com/sqllock/sqllock/bench/internal/report"
	"github.com/sqllock/sqllock/bench/internal/server"
)

// counter asks a server what it has done so far for an entry, and how many connections it
// has.
type counter struct {
	load  func(ctx context.Context) (load, error)
	conns func(ctx context.Context) (float64, error)
	own   float64       // statements that load costs, and conns
	delay time.Duration // after which the server has counted a row
	close func() error

	// Redis has none of these.
	countRows func(ctx context.Context, on bool) error // switches the counting of rows
	kill      func(ctx context.Context) error          // ends the entry's sessions
}

// load is what a server has done.
type load struct {
	statements float64
	rows       float64 // written
	log        float64 // bytes of it
}

// perSecond sets the rates of a sample.
func (l load) perSecond(s *report.Sample, d time.Duration) {
	s.Rate, s.RowRate, s.LogRate = l.statements/d.Seconds(), l.rows/d.Seconds(), l.log/d.Seconds()
}

// newCounter returns the counter of an entry, or nil if its server has no counter.
func newCounter(ctx context.Context, e *entry) (*counter, error) {
	switch e.Server {
	case server.Postgres:
		admin := e.site
		admin.Database = "postgres"
		return sqlCounter(ctx, e, admin, postgresTexts)
	case server.MariaDB:
		admin := e.site
		admin.Database = ""
		return sqlCounter(ctx, e, admin, mariadbTexts)
	case server.Redis, server.RedisAlways:
		return redisCounter(e), nil
	}
	return nil, nil
}

// countTexts are the statements of a counter. The database is the parameter of load, conns
// and sessions. MariaDB counts rows only between rowsOn and rowsOff.
type countTexts struct{ setup, load, conns, rowsOn, rowsOff, sessions, kill string }

func sqlCounter(ctx context.Context, e *entry, admin contender.Site, texts countTexts) (*counter, error) {
	db, err := contender.SQL(ctx, e.Server, admin)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	run := func(ctx context.Context, text string) error {
		if text == "" {
			return nil
		}
		if _, err := db.ExecContext(ctx, text); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
		return nil
	}
	if err := run(ctx, texts.setup); err != nil {
		return nil, err
	}
	c := &counter{close: db.Close}
	c.countRows = func(ctx context.Context, on bool) error {
		if on {
			return run(ctx, texts.rowsOn)
		}
		return run(ctx, texts.rowsOff)
	}
	c.conns = func(ctx context.Context) (n float64, err error) {
		err = db.QueryRowContext(ctx, texts.conns, e.site.Database).Scan(&n)
		return n, err
	}
	switch e.Server {
	case server.MariaDB:
		c.own = 1
	case server.Postgres:
		c.delay = postgresDelay
	}
	c.load = func(ctx context.Context) (l load, err error) {
		err = db.QueryRowContext(ctx, texts.load, e.site.Database).Scan(&l.statements, &l.rows, &l.log)
		return l, err
	}
	c.kill = func(ctx context.Context) error { return killSessions(ctx, db, texts, e.site.Database) }
	return c, nil
}

// killSessions ends all sessions of a database.
func killSessions(ctx context.Context, db *sql.DB, texts countTexts, database string) error {
	rows, err := db.QueryContext(ctx, texts.sessions, database)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	var ids []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return err
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, id := range ids {
		if _, err := db.ExecContext(ctx, texts.kill, id); err != nil {
			return err
		}
	}
	return nil
}

func redisCounter(e *entry) *counter {
	client := goredis.NewClient(&goredis.Options{Addr: e.site.Addrs[e.Server], PoolSize: 1})
	info := func(ctx context.Context, section, name string) (float64, error) {
		text, err := client.Info(ctx, section).Result()
		if err != nil {
			return 0, err
		}
		_, after, _ := strings.Cut(text, name+":")
		value, _, _ := strings.Cut(after, "\r")
		return strconv.ParseFloat(value, 64)
	}
	return &counter{
		load: func(ctx context.Context) (l load, err error) {
			l.statements, err = info(ctx, "stats", "total_commands_processed")
			return l, err
		},
		own:   1,
		conns: func(ctx context.Context) (float64, error) { return info(ctx, "clients", "connected_clients") },
		close: client.Close,
	}
}

const (
	// postgresDelay is a second longer than a session of Postgres may take to report its rows.
	postgresDelay = 11 * time.Second
	// connsInterval is how often connections are counted. No pool closes one sooner than that.
	connsInterval = 250 * time.Millisecond
)

// count returns what a database server did in a time, rows included, and the most connections
// that it had meanwhile. The load must be steady. By the first reading the server has counted what
// was done before it. The last reading is as late as the first one.
func (c *counter) count(ctx context.Context, d time.Duration) (did load, most float64, err error) {
	on := c.countRows(ctx, true)
	time.Sleep(c.delay)
	did, most, err = c.watch(ctx, d)
	return did, most, errors.Join(on, err, c.countRows(ctx, false))
}

// watch returns what the server did in a time, without rows of MariaDB, and the most
// connections that it had meanwhile.
func (c *counter) watch(ctx context.Context, d time.Duration) (did load, most float64, err error) {
	var failed error
	queries := 0
	did, err = c.during(ctx, func() {
		for end := time.Now().Add(d); time.Now().Before(end); queries++ {
			n, err := c.conns(ctx)
			most, failed = max(most, n), firstError(failed, err)
			time.Sleep(min(connsInterval, time.Until(end)))
		}
	})
	did.statements = max(0, did.statements-c.own*float64(queries))
	return did, most, errors.Join(err, failed)
}

// during returns what the server did while f ran, without rows of MariaDB.
func (c *counter) during(ctx context.Context, f func()) (load, error) {
	if c == nil {
		f()
		return load{}, nil
	}
	before, err := c.load(ctx)
	if err != nil {
		return load{}, err
	}
	f()
	after, err := c.load(ctx)
	return load{
		statements: max(0, after.statements-before.statements-c.own),
		rows:       after.rows - before.rows, log: after.log - before.log,
	}, err
}
