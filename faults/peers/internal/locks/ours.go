//go:build linux

package locks

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/faults/internal/client"
	"github.com/sqllock/sqllock/faults/internal/server"
	"github.com/sqllock/sqllock/migrations"
)

// conns is how many connections a client process may open.
const conns = 8

// ours returns the locks of this project, with the overlaps that docs/guarantees.md and
// docs/modes.md own up to: the names of the rows are theirs.
func ours() []System {
	rows := map[string]string{"clock-step": "D5"}
	sessions := map[string]string{"clock-step": "M5", "server-kill": "M6"}
	return []System{
		our(client.Unique, server.Postgres, rows),
		our(client.Unique, server.MariaDB, rows),
		our(client.Advisory, server.Postgres, sessions),
	}
}

// sqlite needs no server, and so is for tests.
func sqlite() System { return our(client.Unique, server.SQLite, nil) }

// clocks ask a database for its time, in seconds since the epoch.
var clocks = map[string]string{
	server.Postgres: `SELECT extract(epoch FROM clock_timestamp())::float8`,
	server.MariaDB:  `SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) AS DOUBLE)`,
}

func our(mode, database string, overlap map[string]string) System {
	return System{
		Name: "sqllock-" + mode + "/" + database, Server: database, Ours: true, Overlap: overlap,
		Token: "`Lease.Token`", Knows: "`Lease.Context`, which has a deadline of its own",
		Claims: claims(overlap),
		Prepare: func(ctx context.Context, s Site) error {
			return withDB(s, func(db *sql.DB) error { return migrations.Up(ctx, client.Database(database, db)) })
		},
		Open: func(ctx context.Context, s Site) (Client, error) { return openOurs(ctx, s, mode, database) },
		Clock: func(ctx context.Context, s Site) (t time.Time, err error) {
			err = withDB(s, func(db *sql.DB) error {
				var seconds float64
				err := db.QueryRowContext(ctx, clocks[database]).Scan(&seconds)
				t = time.UnixMilli(int64(seconds * 1000))
				return err
			})
			return t, err
		},
	}
}

// claims returns the promise of a mode under the faults of this comparison.
func claims(overlap map[string]string) string {
	text := "who looks holds alone"
	if len(overlap) > 0 {
		var rows []string
		for fault, row := range overlap {
			rows = append(rows, fault+" ("+row+")")
		}
		slices.Sort(rows)
		text += ", but for " + strings.Join(rows, " and ")
	}
	return text + "; tokens rise always"
}

func withDB(s Site, fn func(db *sql.DB) error) error {
	db, err := sql.Open(s.Driver, s.DSN)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	return fn(db)
}

type ourClient struct {
	db    *sql.DB
	locks *sqllock.Locker
}

// openOurs leaves all options at their defaults but the TTL.
func openOurs(ctx context.Context, s Site, mode, database string) (Client, error) {
	db, err := sql.Open(s.Driver, s.DSN)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(conns)
	locks, err := client.Locker(ctx, client.Config{Mode: mode, Database: database, TTL: s.TTL, Proc: s.Proc}, db)
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	return &ourClient{db, locks}, nil
}

func (c *ourClient) Lock(ctx context.Context, _ int, name string) (Held, error) {
	lease, err := c.locks.Lock(ctx, name)
	if err != nil {
		return nil, err
	}
	return ourLease{lease}, nil
}

func (c *ourClient) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := c.locks.Close(ctx); err != nil {
		return fmt.Errorf("close the Locker: %w", err)
	}
	return c.db.Close()
}

type ourLease struct{ *sqllock.Lease }

func (l ourLease) Holds(context.Context) bool { return l.Context().Err() == nil }
