package sqllock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/testdb"
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
		for tickets := 0; tickets < n; time.Sleep(20 * time.Millisecond) {
			if err := db.QueryRow(`SELECT count(*) FROM t_ticket`).Scan(&tickets); err != nil {
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
