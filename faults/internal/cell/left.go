//go:build linux

package cell

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sqllock/sqllock/faults/internal/check"
	"github.com/sqllock/sqllock/faults/internal/client"
	"github.com/sqllock/sqllock/faults/internal/history"
	"github.com/sqllock/sqllock/faults/internal/server"
)

// leftover is something that must not be in the database when all clients have ended.
type leftover struct{ what, query string }

var leftovers = map[string][]leftover{
	server.Postgres: {
		{"sessions", `SELECT count(*) FROM pg_stat_activity WHERE datname = 'faults' AND pid <> pg_backend_pid()`},
		{"transactions", `SELECT count(*) FROM pg_stat_activity WHERE xact_start IS NOT NULL AND datname = 'faults' AND pid <> pg_backend_pid()`},
		{"prepared transactions", `SELECT count(*) FROM pg_prepared_xacts`},
		{"advisory locks", `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'`},
	},
	server.MariaDB: {
		{"sessions", `SELECT count(*) FROM information_schema.processlist WHERE db = 'faults' AND id <> connection_id()`},
		{"transactions", `SELECT count(*) FROM information_schema.innodb_trx WHERE trx_mysql_thread_id NOT IN (0, connection_id())`},
	},
}

func init() { leftovers[server.Galera] = leftovers[server.MariaDB] } // on the first node

// inTables are rows that must not be left in the tables.
var inTables = []leftover{
	{"waiting claims", `SELECT count(*) FROM sqllock_claim WHERE state = 0`},
	{"holders", `SELECT count(*) FROM sqllock_lock WHERE acq IS NOT NULL`},
	{"readers", `SELECT count(*) FROM sqllock_claim WHERE state = 1`},
}

// leftovers returns what the clients have left in the database. It waits until the server
// has noticed which clients are gone. The reaper first removes the rows of killed
// clients.
func (s *site) leftovers(ctx context.Context) ([]check.Failure, error) {
	if found, err := s.unreleased(ctx); err != nil || len(found) > 0 {
		return found, err
	}
	if err := s.reap(ctx); err != nil {
		return nil, err
	}
	if err := s.srv.EndPooler(); err != nil { // with the sessions that it keeps
		return nil, err
	}
	return s.count(ctx, slices.Concat(leftovers[s.Database], inTables), s.grace()+5*time.Second)
}

// arrival is how long a statement may still run when its client has ended.
const arrival = 3 * time.Second

// unreleased returns what clients that have all ended in order have left in the tables, before a
// reaper removes it. It judges only cells in which nothing but Unlock has ended a lease.
func (s *site) unreleased(ctx context.Context) ([]check.Failure, error) {
	if s.Mode != client.Unique || s.Use == client.Options || !check.Undisturbed(s.events, s.rules()) {
		return nil, nil
	}
	found, err := s.count(ctx, inTables, arrival)
	for i := range found {
		found[i].What += ", though all clients had ended in order"
	}
	return found, err
}

// count returns those that are in the database, as soon as there is none, or when the time is over.
func (s *site) count(ctx context.Context, all []leftover, within time.Duration) (found []check.Failure, err error) {
	for deadline := time.Now().Add(within); ; time.Sleep(100 * time.Millisecond) {
		found = found[:0]
		for _, l := range all {
			var n int
			if err := s.admin.QueryRowContext(ctx, l.query).Scan(&n); err != nil {
				return nil, fmt.Errorf("count the %s: %w", l.what, err)
			}
			if n > 0 {
				found = append(found, check.Failure{Check: check.Left, T: history.Now(), What: fmt.Sprintf("%d %s", n, l.what)})
			}
		}
		if len(found) == 0 || time.Now().After(deadline) {
			return found, nil
		}
	}
}

// reap waits until the leases of crashed clients have expired, and runs a reaper on its
// own connections.
func (s *site) reap(ctx context.Context) error {
	if err := s.outlast(ctx); err != nil {
		return err
	}
	// The claims of a dead Locker, which block nobody, are kept for a minute.
	if _, err := s.admin.ExecContext(ctx, "UPDATE sqllock_waiter SET expires_at = expires_at - 61000000"); err != nil {
		return err
	}
	db, err := sql.Open(s.srv.Driver(), s.srv.DSN(""))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	locks, err := client.Locker(ctx, client.Config{
		Mode: s.Mode, Database: s.Database, TTL: s.ttl(), Poll: poll, Proc: "reaper",
	}, db)
	if err != nil {
		return err
	}
	_, err = locks.Reaper().Reap(ctx)
	return errors.Join(err, locks.Close(ctx))
}

// outlast waits until what dead clients may have left has expired.
func (s *site) outlast(ctx context.Context) error {
	if s.Use != client.Options {
		time.Sleep(s.ttl() + delay)
		return nil
	}
	deadline := time.Now().Add(client.LongestTTL + client.LongestDelay)
	for {
		var until int64
		err := s.admin.QueryRowContext(ctx, `SELECT coalesce(max(e), 0) FROM (SELECT max(expires_at) AS e FROM sqllock_lock WHERE acq IS NOT NULL
			UNION ALL SELECT max(expires_at) FROM sqllock_claim WHERE state = 1) AS held`).Scan(&until)
		if err != nil {
			return err
		}
		if now := time.Now(); until < now.UnixMicro() || now.After(deadline) {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
}
