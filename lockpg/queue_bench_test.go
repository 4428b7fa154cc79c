package lockpg_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/migrations"
)

// BenchmarkHandOver hands one name over within a process, to the head of a queue of so
// many, and lets the former holder enter at its end. Both are one visit.
func BenchmarkHandOver(b *testing.B) {
	for _, waiters := range []int{5, 500} {
		b.Run(fmt.Sprint(waiters), func(b *testing.B) {
			db := testdb.New(b, testdb.Postgres).Open(b)
			if err := migrations.Up(b.Context(), lockpg.DB(db)); err != nil {
				b.Fatal(err)
			}
			store, err := lockpg.DB(db).OpenUnique(b.Context(), driver.Client{Instance: driver.ID{1}, Label: "test"})
			if err != nil {
				b.Fatal(err)
			}
			reqs := make([]driver.AcquireRequest, 1+waiters)
			for i := range reqs {
				reqs[i] = waiter("a", 1+i)
			}
			res, err := store.Acquire(b.Context(), reqs)
			if err != nil || !res[0].Granted {
				b.Fatal(res, err)
			}
			version := res[0].Version
			var release, enter time.Duration
			for i := 0; b.Loop(); i++ {
				mine := reqs[i%len(reqs)]
				began := time.Now()
				res, err := store.Release(b.Context(), []driver.ReleaseRequest{{Name: "a", Acq: mine.Acq, Version: version, Awaited: true}})
				if err != nil || len(res[0].Next) != 1 {
					b.Fatal(res, err)
				}
				version = res[0].Next[0].Version
				between := time.Now()
				if res, err := store.Acquire(b.Context(), []driver.AcquireRequest{mine}); err != nil || res[0].Granted {
					b.Fatal(res, err)
				}
				release, enter = release+between.Sub(began), enter+time.Since(between)
			}
			b.ReportMetric(float64(release.Microseconds())/float64(b.N), "µs/release")
			b.ReportMetric(float64(enter.Microseconds())/float64(b.N), "µs/enter")
		})
	}
}

// BenchmarkNotify tells nobody anything, beside so many sessions that listen to other channels. The
// server wakes each of them each time, up to version 18.
func BenchmarkNotify(b *testing.B) {
	for _, listeners := range []int{0, 8, 64} {
		b.Run(fmt.Sprint(listeners), func(b *testing.B) {
			db := testdb.New(b, testdb.Postgres).Open(b, "synchronous_commit=off")
			for i := range listeners {
				conn, err := db.Conn(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { _ = conn.Close() })
				if _, err := conn.ExecContext(b.Context(), fmt.Sprintf(`LISTEN "another %d"`, i)); err != nil {
					b.Fatal(err)
				}
			}
			b.SetParallelism(2)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := db.ExecContext(b.Context(), `SELECT pg_notify('a channel', '')`); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
