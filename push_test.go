package sqllock_test

import (
	"context"
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockpg"
)

// pushed returns the median of how long hand-overs from one Locker to the other take.
// Neither looks by itself; a ticket is asked for again after a second and a half.
func pushed(t *testing.T, db *sql.DB, from, to *sqllock.Locker) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var took []time.Duration
	for range 9 {
		lease, err := from.Lock(ctx, "pushed")
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan *sqllock.Lease, 1)
		go func() {
			lease, err := to.Lock(ctx, "pushed")
			if err != nil {
				t.Error(err)
			}
			got <- lease
		}()
		for n := 0; n == 0; time.Sleep(time.Millisecond) {
			if err := db.QueryRowContext(ctx, `SELECT count(*) FROM sqllock_ticket`).Scan(&n); err != nil {
				t.Fatal(err)
			}
		}
		start := time.Now()
		if err := lease.Unlock(ctx); err != nil {
			t.Fatal(err)
		}
		next := <-got
		took = append(took, time.Since(start))
		if next == nil {
			t.FailNow()
		}
		if err := next.Unlock(ctx); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(took)
	return took[len(took)/2]
}

func TestPostgresTellsWaitersOfTheirTurn(t *testing.T) {
	onEngines(t, func(name string) bool { return name == testdb.Postgres }, func(t *testing.T, _ *engine, d *testdb.Database) {
		db := d.Open(t)
		pool, err := pgxpool.New(t.Context(), d.DSN())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		never := sqllock.UniqueOptions{RetryMin: time.Hour, RetryMax: time.Hour}
		through := map[string]*sqllock.Locker{
			"database/sql": newLocks(t, lockpg.DB(db), never),
			"pgxpool":      newLocks(t, lockpg.Pool(pool), never),
		}
		const quick = 700 * time.Millisecond // on a machine that is busy
		for what, to := range through {
			for other, from := range through {
				if took := pushed(t, db, from, to); took > quick {
					t.Errorf("from a Locker on %s to one on %s: %v", other, what, took)
				}
			}
		}
		if n := listening(t, db); n != 2 {
			t.Errorf("two Lockers listen on %d connections", n)
		}
		// What listens is ended: it comes back by itself.
		if _, err := db.ExecContext(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND `+listens); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if took := pushed(t, db, through["pgxpool"], through["database/sql"]); took > quick {
			t.Errorf("after the connection that listened was ended: %v", took)
		}
	})
}

// listens says that a session was last used to listen, or to ask whether it still does.
const listens = `(query LIKE 'LISTEN %' OR query = '-- ping')`

func listening(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid() AND `+listens).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
