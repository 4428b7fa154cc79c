package sqllock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/migrations"
)

// BenchmarkPurge has 8 callers lock and unlock before, while and after a million
// idle rows are purged. It reports the ratio of the 99th percentiles of Lock with
// its Unlock while the purge works, and before and after.
func BenchmarkPurge(b *testing.B) {
	for _, engine := range testdb.All() {
		b.Run(engine, func(b *testing.B) { benchmarkPurge(b, engine) })
	}
}

func benchmarkPurge(b *testing.B, engine string) {
	const rows, calm = 1_000_000, 10 * time.Second
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
		before := busy(b, locks, func() { time.Sleep(calm) })
		var rep sqllock.ReapReport
		during := busy(b, locks, func() { rep, err = locks.Reaper().Reap(b.Context()) })
		if err != nil || rep.Purged < rows {
			b.Fatalf("Reap purged %d of %d rows: %v", rep.Purged, rows, err)
		}
		after := busy(b, locks, func() { time.Sleep(calm) })
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
