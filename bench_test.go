package sqllock_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockmysql"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
)

// BenchmarkHotName has thousands wait for one name and lets them have it one after the
// other. The target is 500 hand-overs a second with 10,000 on Postgres.
func BenchmarkHotName(b *testing.B) {
	for _, engine := range testdb.All() {
		for _, n := range []int{1_000, 10_000} {
			b.Run(fmt.Sprint(engine, "/", n), func(b *testing.B) { benchmarkHotName(b, engine, n) })
		}
	}
}

func benchmarkHotName(b *testing.B, engine string, n int) {
	db := testdb.New(b, engine).Open(b)
	db.SetMaxOpenConns(20)
	database := withPrefix(engine, db, "t_")
	if err := migrations.Up(b.Context(), database); err != nil {
		b.Fatal(err)
	}
	locks, err := sqllock.NewUnique(b.Context(), database, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = locks.Close(context.Background()) }()
	for b.Loop() {
		first, err := locks.Lock(b.Context(), "a")
		if err != nil {
			b.Fatal(err)
		}
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() {
				lease, err := locks.Lock(b.Context(), "a")
				if err != nil {
					b.Errorf("Lock: %v", err)
					return
				}
				if err := lease.Unlock(b.Context()); err != nil {
					b.Errorf("Unlock: %v", err)
				}
			})
		}
		for claims := 0; claims < n; time.Sleep(20 * time.Millisecond) {
			if err := db.QueryRow(`SELECT count(*) FROM t_claim`).Scan(&claims); err != nil {
				b.Fatal(err)
			}
		}
		began := time.Now()
		_ = first.Unlock(b.Context())
		wg.Wait()
		b.ReportMetric(float64(n)/time.Since(began).Seconds(), "hand-overs/s")
		b.ReportMetric(0, "ns/op")
	}
}

// BenchmarkPurge has 8 callers lock and unlock before, while and after a million
// idle rows are purged. It reports the ratio of the 99th percentiles of Lock with
// its Unlock while the purge works, and before and after.
func BenchmarkPurge(b *testing.B) {
	for _, engine := range testdb.All() {
		b.Run(engine, func(b *testing.B) { benchmarkPurge(b, engine) })
	}
}

func benchmarkPurge(b *testing.B, engine string) {
	const rows, pause = 1_000_000, 10 * time.Second
	db := testdb.New(b, engine).Open(b)
	db.SetMaxIdleConns(purgeCallers + 2)
	database := withPrefix(engine, db, "t_")
	if err := migrations.Up(b.Context(), database); err != nil {
		b.Fatal(err)
	}
	fill(b, engine, db, "t_lock", rows)
	locks, err := sqllock.NewUnique(b.Context(), database, &sqllock.UniqueOptions{Reaper: &sqllock.ReaperOptions{Off: true, Retention: time.Hour}})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = locks.Close(context.Background()) }()
	for b.Loop() {
		before := busy(b, locks, func() { time.Sleep(pause) })
		var rep sqllock.ReapReport
		during := busy(b, locks, func() { rep, err = locks.Reaper().Reap(b.Context()) })
		if err != nil || rep.Purged < rows {
			b.Fatalf("Reap purged %d of %d rows: %v", rep.Purged, rows, err)
		}
		after := busy(b, locks, func() { time.Sleep(pause) })
		without := p99(append(before, after...))
		b.ReportMetric(float64(p99(during))/float64(without), "p99-with/without")
		b.ReportMetric(float64(without.Microseconds()), "µs/p99-without")
		b.ReportMetric(rep.Took.Seconds(), "s/purge")
		b.ReportMetric(0, "ns/op")
	}
}

const purgeCallers = 8

// busy has the callers lock and unlock until f returns, and says how long each
// cycle took.
func busy(b *testing.B, locks *sqllock.Locker, f func()) []time.Duration {
	var over atomic.Bool
	var wg sync.WaitGroup
	took := make([][]time.Duration, purgeCallers)
	for c := range took {
		wg.Go(func() {
			for name := fmt.Sprint("caller ", c); !over.Load(); {
				began := time.Now()
				cycle(b, locks, name)
				took[c] = append(took[c], time.Since(began))
			}
		})
	}
	f()
	over.Store(true)
	wg.Wait()
	return slices.Concat(took...)
}

func p99(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)*99/100]
}

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

// BenchmarkLargeTable has the reaper make passes over a million rows that need nothing, and reads
// pages of a hundred names anywhere in them. It reports the median of both.
func BenchmarkLargeTable(b *testing.B) {
	for _, engine := range testdb.All() {
		b.Run(engine, func(b *testing.B) { benchmarkLargeTable(b, engine) })
	}
}

func benchmarkLargeTable(b *testing.B, engine string) {
	const rows, passes, pages = 1_000_000, 5, 100
	db := testdb.New(b, engine).Open(b)
	database := withPrefix(engine, db, "t_")
	if err := migrations.Up(b.Context(), database); err != nil {
		b.Fatal(err)
	}
	fill(b, engine, db, "t_lock", rows)
	// They were used just now.
	if _, err := db.ExecContext(b.Context(), fmt.Sprintf("UPDATE t_lock SET expires_at = %d", time.Now().UnixMicro())); err != nil {
		b.Fatal(err)
	}
	locks, err := sqllock.NewUnique(b.Context(), database, &sqllock.UniqueOptions{Reaper: &sqllock.ReaperOptions{Off: true}})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = locks.Close(context.Background()) }()
	var pass, page []time.Duration
	for b.Loop() {
		for range passes {
			rep, err := locks.Reaper().Reap(b.Context())
			if err != nil || rep.Seen < rows || rep.Purged > 0 {
				b.Fatalf("a pass saw %d rows and deleted %d of %d: %v", rep.Seen, rep.Purged, rows, err)
			}
			pass = append(pass, rep.Took)
		}
		for range pages {
			began, n := time.Now(), 0
			for _, err := range locks.List(b.Context(), sqllock.IncludeFree(), sqllock.After(fmt.Sprint(1+rand.IntN(rows/2))), sqllock.Limit(100)) {
				if n++; err != nil {
					b.Fatal(err)
				}
			}
			if n != 100 {
				b.Fatalf("a page of %d names", n)
			}
			page = append(page, time.Since(began))
		}
	}
	b.ReportMetric(median(pass).Seconds(), "s/pass")
	b.ReportMetric(float64(median(page).Microseconds())/1000, "ms/page")
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
