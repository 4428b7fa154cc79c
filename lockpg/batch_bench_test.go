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

// batches are the sizes that the benchmarks of this file measure.
var batches = []int{1, 16, 256}

// BenchmarkUniqueBatch grants and releases so many names of its own, one statement
// each, on a connection.
func BenchmarkUniqueBatch(b *testing.B) {
	for _, n := range batches {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			db := testdb.New(b, testdb.Postgres).Open(b)
			if err := migrations.Up(b.Context(), lockpg.DB(db)); err != nil {
				b.Fatal(err)
			}
			store, err := lockpg.DB(db).OpenUnique(b.Context(), driver.Client{Instance: driver.ID{1}, Label: "test"})
			if err != nil {
				b.Fatal(err)
			}
			grants, releases := batch(n)
			measure(b, n, func() {
				res, err := store.Acquire(b.Context(), grants)
				if err != nil {
					b.Fatal(err)
				}
				for i := range res {
					releases[i].Version = res[i].Version
				}
			}, func() {
				res, err := store.Release(b.Context(), releases)
				if err != nil || !res[0].Freed {
					b.Fatal(res, err)
				}
			})
		})
	}
}

// BenchmarkAdvisoryBatch is the same with locks of a session.
func BenchmarkAdvisoryBatch(b *testing.B) {
	for _, n := range batches {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			db := testdb.New(b, testdb.Postgres).Open(b)
			if err := migrations.Up(b.Context(), lockpg.DB(db)); err != nil {
				b.Fatal(err)
			}
			client := driver.Client{Instance: driver.ID{1}, Label: "test"}
			store, err := lockpg.DB(db).OpenAdvisory(b.Context(), client, driver.SessionOptions{TTL: time.Minute})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = store.Close() }()
			session, err := store.Session(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = session.Close() }()
			grants, releases := batch(n)
			measure(b, n, func() {
				res, err := session.Grant(b.Context(), grants)
				if err != nil || !res[n-1].Granted {
					b.Fatal(res, err)
				}
			}, func() {
				if _, err := session.Release(b.Context(), releases); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}

func batch(n int) ([]driver.AcquireRequest, []driver.ReleaseRequest) {
	grants, releases := make([]driver.AcquireRequest, n), make([]driver.ReleaseRequest, n)
	for i := range grants {
		name := fmt.Sprintf("bench/%06d", i)
		acq := driver.ID{byte(i >> 8), byte(i), 1}
		grants[i] = driver.AcquireRequest{Name: name, Acq: acq, Owner: acq.String(), TTL: time.Minute}
		releases[i] = driver.ReleaseRequest{Name: name, Acq: acq}
	}
	return grants, releases
}

// measure tells what both took, by name.
func measure(b *testing.B, n int, grant, release func()) {
	b.ReportAllocs()
	var took [2]time.Duration
	for b.Loop() {
		began := time.Now()
		grant()
		between := time.Now()
		release()
		took[0], took[1] = took[0]+between.Sub(began), took[1]+time.Since(between)
	}
	for i, unit := range []string{"µs/grant", "µs/release"} {
		b.ReportMetric(float64(took[i].Nanoseconds())/1000/float64(b.N*n), unit)
	}
}
