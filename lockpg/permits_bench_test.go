package lockpg_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/migrations"
)

// BenchmarkPermits compares the statements of a permit with those of a lock, of so many names at a
// time: the grant, the release, the hand-over within a process and the entry into the queue. Nothing is flushed.
func BenchmarkPermits(b *testing.B) {
	for _, names := range []int{1, 16, 64} {
		b.Run(fmt.Sprint(names), func(b *testing.B) { benchmarkPermits(b, names) })
	}
}

func benchmarkPermits(b *testing.B, names int) {
	db := testdb.New(b, testdb.Postgres).Open(b)
	if err := migrations.Up(b.Context(), lockpg.DB(db)); err != nil {
		b.Fatal(err)
	}
	store := open(b, db)
	const what = 4
	var took [2][what][]time.Duration
	id := 0
	round := func(kind int) {
		var times [what]time.Duration
		reqs, waits := make([]driver.AcquireRequest, names), make([]driver.AcquireRequest, names)
		for i := range reqs {
			id += 2
			reqs[i], waits[i] = request(fmt.Sprintf("%d %02d", kind, i), id, time.Minute), waiter(fmt.Sprintf("%d %02d", kind, i), id+1)
			reqs[i].Permits, waits[i].Permits = kind, kind
		}
		measure := func(i int, f func()) {
			began := time.Now()
			f()
			times[i] += time.Since(began)
		}
		releases := make([]driver.ReleaseRequest, names)
		measure(0, func() {
			for i, r := range grantAll(b, store, reqs) {
				releases[i] = driver.ReleaseRequest{Name: reqs[i].Name, Acq: reqs[i].Acq, Version: r.Version, Shared: kind > 0, Permit: kind > 0, Awaited: true}
			}
		})
		measure(1, func() {
			if _, err := store.Acquire(b.Context(), waits); err != nil {
				b.Fatal(err)
			}
		})
		next := slices.Clone(releases)
		measure(2, func() {
			res, err := store.Release(b.Context(), releases)
			for i := range res {
				if err != nil || len(res[i].Next) != 1 {
					b.Fatal(res[i], err)
				}
				next[i].Acq, next[i].Version, next[i].Awaited = res[i].Next[0].Acq, res[i].Next[0].Version, false
			}
		})
		measure(3, func() {
			res, err := store.Release(b.Context(), next)
			if err != nil || !res[names-1].Freed {
				b.Fatal(res, err)
			}
		})
		for i := range times {
			took[kind][i] = append(took[kind][i], times[i])
		}
	}
	for b.Loop() {
		round(0)
		round(1)
	}
	for i, unit := range []string{"grant", "enter", "hand-over", "release"} {
		slices.Sort(took[0][i])
		slices.Sort(took[1][i])
		n := len(took[0][i])
		b.ReportMetric(float64(took[1][i][n/2])/float64(took[0][i][n/2]), unit)
		b.ReportMetric(float64(took[1][i][n/2].Microseconds()), "µs/"+unit)
	}
	b.ReportMetric(0, "ns/op")
}

func grantAll(b *testing.B, store driver.Store, reqs []driver.AcquireRequest) []driver.AcquireResult {
	res, err := store.Acquire(b.Context(), reqs)
	if err != nil || !res[len(res)-1].Granted {
		b.Fatal(res, err)
	}
	return res
}
