package sqllock_test

import (
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/netproxy"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/migrations"
)

// BenchmarkCost prints what an operation costs a database: round trips, commits that are flushed,
// rows that are written, and bytes of the log. Nothing else may use the servers. It counts, and
// measures no time.
func BenchmarkCost(b *testing.B) {
	fmt.Println("\n| database | operation | callers | round trips | flushes | rows | log bytes |\n|---|---|---|---|---|---|---|")
	for _, engine := range testdb.All() {
		b.Run(engine, func(b *testing.B) {
			for b.Loop() {
				newCosts(b, engine).operations(b)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// costs measures on one database.
type costs struct {
	engine   string
	db       *sql.DB // for what is counted
	path     string  // of SQLite
	proxy    *netproxy.Proxy
	database database
	renewals atomic.Int64
	last     counts
}

func newCosts(b *testing.B, engine string) *costs {
	d := testdb.New(b, engine)
	c := &costs{engine: engine, db: d.Open(b)}
	var used *sql.DB
	if engine == testdb.SQLite { // whose log is read as long as it is not moved into the file
		used, c.path = d.Open(b, "_pragma=journal_mode(wal)", "_pragma=wal_autocheckpoint(0)"), d.Path()
	} else {
		c.proxy = netproxy.New(b, d.Addr())
		used = d.OpenVia(b, c.proxy.Addr())
	}
	used.SetMaxIdleConns(64)
	c.database = withPrefix(engine, used, "t_")
	if err := migrations.Up(b.Context(), c.database); err != nil {
		b.Fatal(err)
	}
	if engine == testdb.Postgres { // a vacuum in the middle would write to the log, too
		if _, err := c.db.ExecContext(b.Context(), `ALTER TABLE t_lock SET (autovacuum_enabled = off)`); err != nil {
			b.Fatal(err)
		}
	}
	return c
}

func (c *costs) locker(b *testing.B, ttl time.Duration) *sqllock.Locker {
	b.Helper()
	l, err := sqllock.NewUnique(b.Context(), c.database, &sqllock.UniqueOptions{
		TTL: ttl, Reaper: &sqllock.ReaperOptions{Off: true}, Hooks: &sqllock.Hooks{Renewed: func(sqllock.RenewedEvent) { c.renewals.Add(1) }},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close(context.Background()) })
	return l
}

// counts are round trips, flushes, rows that were written, and bytes of the log.
type counts [4]int64

// unknown is what a database does not count.
const unknown = -1

func (c *costs) now(b *testing.B) (n counts) {
	b.Helper()
	if c.path != "" {
		commits, bytes := readLog(b, c.path+"-wal")
		return counts{unknown, commits, unknown, bytes}
	}
	var query string
	if c.engine == testdb.Postgres {
		time.Sleep(11 * time.Second) // sessions tell what they did within ten seconds
		query = `SELECT w.wal_sync, d.tup_inserted + d.tup_updated + d.tup_deleted, pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint
			FROM pg_stat_wal w, pg_stat_database d WHERE d.datname = current_database()`
	} else {
		time.Sleep(3 * time.Second) // what was overwritten is removed in the background
		query = `SELECT -1, ` + statusOf("Handler_write") + ` + ` + statusOf("Handler_update") + ` + ` + statusOf("Handler_delete") + `, ` + statusOf("Innodb_lsn_current")
	}
	if err := c.db.QueryRowContext(b.Context(), query).Scan(&n[1], &n[2], &n[3]); err != nil {
		b.Fatal(err)
	}
	n[0] = int64(c.proxy.RoundTrips())
	return n
}

// statusOf is a counter of MariaDB as a number.
func statusOf(name string) string {
	return `CAST((SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = '` + name + `') AS SIGNED)`
}

// readLog counts the commits in a write-ahead log of SQLite, each of which it flushes, and its
// bytes.
func readLog(b *testing.B, path string) (commits, bytes int64) {
	b.Helper()
	log, err := os.ReadFile(path)
	if err != nil {
		b.Fatal(err)
	}
	page := int(binary.BigEndian.Uint32(log[8:]))
	for at := 32; at+24 <= len(log); at += 24 + page {
		if binary.BigEndian.Uint32(log[at+4:]) != 0 { // the last page of a commit
			commits++
		}
	}
	return commits, int64(len(log))
}

// costOps is how many operations a figure is the mean of.
const costOps = 512

// operations prints what single operations cost, of one caller and of many.
func (c *costs) operations(b *testing.B) {
	leases := make([]*sqllock.Lease, costOps)
	l := c.locker(b, time.Hour)
	lock := func(i int) (err error) {
		leases[i], err = l.Lock(b.Context(), fmt.Sprint("name ", i))
		return err
	}
	unlock := func(i int) error { return leases[i].Unlock(b.Context()) }
	each(b, 64, lock) // so that the rows are there
	each(b, 64, unlock)
	c.last = c.now(b)
	for _, callers := range []int{1, 64} {
		c.cost(b, "lock", callers, func() int { return each(b, callers, lock) })
		c.cost(b, "unlock", callers, func() int { return each(b, callers, unlock) })
	}
	c.cost(b, "inspect", 1, func() int {
		return each(b, 1, func(i int) error {
			_, err := l.Inspect(b.Context(), fmt.Sprint("name ", i))
			return err
		})
	})
	c.handOvers(b)
	c.renew(b)
}

// handOvers has two callers of two Lockers have one name in turn.
func (c *costs) handOvers(b *testing.B) {
	callers := []*sqllock.Locker{c.locker(b, time.Hour), c.locker(b, time.Hour)}
	for _, l := range callers {
		cycle(b, l, "hot")
	}
	c.last = c.now(b)
	c.cost(b, "unlock that hands over, with the lock", 2, func() int {
		return each(b, len(callers), func(i int) error {
			lease, err := callers[i%len(callers)].Lock(b.Context(), "hot")
			if err != nil {
				return err
			}
			time.Sleep(5 * time.Millisecond) // so that the other waits
			return lease.Unlock(b.Context())
		})
	})
}

// renew has a Locker renew its leases, all at the same time. It counts between two renewals: there
// is enough time before the next one.
func (c *costs) renew(b *testing.B) {
	const ttl = time.Minute
	l := c.locker(b, ttl)
	leases := make([]*sqllock.Lease, costOps)
	each(b, 64, func(i int) (err error) {
		leases[i], err = l.Lock(b.Context(), fmt.Sprint("renewed ", i))
		return err
	})
	renewed := func() int {
		want := c.renewals.Load() + costOps
		for end := time.Now().Add(2 * ttl); c.renewals.Load() < want; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				b.Fatal("the leases were not renewed")
			}
		}
		return costOps
	}
	renewed()
	c.last = c.now(b)
	c.cost(b, fmt.Sprintf("renewal of %d leases, each", costOps), 1, renewed)
	each(b, 64, func(i int) error { return leases[i].Unlock(b.Context()) })
}

// each runs costOps operations, shared by callers.
func each(b *testing.B, callers int, do func(i int) error) int {
	b.Helper()
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := c; i < costOps; i += callers {
				if err := do(i); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	return costOps
}

// cost prints the mean of what n operations cost.
func (c *costs) cost(b *testing.B, what string, callers int, do func() (n int)) {
	before := c.last
	n := do()
	c.last = c.now(b)
	row := []string{c.engine, what, fmt.Sprint(callers)}
	for i, format := range []string{"%.2f", "%.2f", "%.2f", "%.0f"} {
		if c.last[i] == unknown {
			row = append(row, "-")
			continue
		}
		row = append(row, fmt.Sprintf(format, float64(c.last[i]-before[i])/float64(n)))
	}
	fmt.Println("| " + strings.Join(row, " | ") + " |")
}
