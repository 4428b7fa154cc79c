package sqllock_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockmysql"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
)

func withPrefix(engine string, db *sql.DB, prefix string) database {
	switch engine {
	case testdb.Postgres:
		return lockpg.DB(db, lockpg.TablePrefix(prefix))
	case testdb.SQLite:
		return locksqlite.DB(db, locksqlite.TablePrefix(prefix))
	}
	return lockmysql.DB(db, lockmysql.TablePrefix(prefix))
}

// fill inserts idle rows named 1 to n.
func fill(b *testing.B, engine string, db *sql.DB, table string, n int) {
	b.Helper()
	numbers := `WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < %d)`
	insert := `INSERT INTO %s (name, version) ` + numbers + ` SELECT n, n FROM s`
	var set []string
	switch engine {
	case testdb.Postgres:
		insert = `INSERT INTO %s (name, version) SELECT n::text, n FROM generate_series(1, %d) n`
	case testdb.MariaDB:
		set = []string{`SET max_recursive_iterations = 2000000`}
	case testdb.MySQL:
		set = []string{`SET cte_max_recursion_depth = 2000000`}
	}
	conn, err := db.Conn(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for _, statement := range append(set, fmt.Sprintf(insert, table, n)) {
		if _, err := conn.ExecContext(b.Context(), statement); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRows compares a cycle of Lock and Unlock in a table of a million rows
// with one in a table of a thousand. Rounds take turns; it reports the ratio of
// the medians.
func BenchmarkRows(b *testing.B) {
	for _, engine := range testdb.All() {
		b.Run(engine, func(b *testing.B) { benchmarkRows(b, engine) })
	}
}

func benchmarkRows(b *testing.B, engine string) {
	db := testdb.New(b, engine).Open(b)
	sizes := []int{1_000, 1_000_000}
	var lockers []*sqllock.Locker
	for _, n := range sizes {
		prefix := fmt.Sprintf("t%d_", n)
		database := withPrefix(engine, db, prefix)
		if err := migrations.Up(b.Context(), database); err != nil {
			b.Fatal(err)
		}
		fill(b, engine, db, prefix+"lock", n)
		locks, err := sqllock.NewUnique(b.Context(), database, nil)
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = locks.Close(context.Background()) }()
		lockers = append(lockers, locks)
	}
	const rounds, cycles = 15, 60
	took := make([][]time.Duration, len(sizes))
	for b.Loop() {
		for range rounds {
			for i, locks := range lockers {
				began := time.Now()
				for range cycles {
					cycle(b, locks, fmt.Sprint(1+rand.IntN(sizes[i])))
				}
				took[i] = append(took[i], time.Since(began)/cycles)
			}
		}
	}
	small, large := median(took[0]), median(took[1])
	b.ReportMetric(float64(large)/float64(small), "large/small")
	b.ReportMetric(float64(small.Microseconds()), "µs/cycle-small")
	b.ReportMetric(0, "ns/op")
}

func cycle(b *testing.B, locks *sqllock.Locker, name string) {
	lease, err := locks.Lock(b.Context(), name)
	if err != nil {
		b.Fatal(err)
	}
	if err := lease.Unlock(b.Context()); err != nil {
		b.Fatal(err)
	}
}

func median(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}
