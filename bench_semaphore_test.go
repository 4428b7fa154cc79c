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

// BenchmarkSemaphore compares cycles of Acquire and Unlock of a permit with cycles of Lock and
// Unlock, of as many callers of one Locker, each with a name of its own or all with one. Rounds
// take turns; it reports the median of their ratios, and its quartiles.
func BenchmarkSemaphore(b *testing.B) {
	for _, engine := range testdb.All() {
		for _, permits := range []int{1, 64} {
			for _, callers := range []int{1, 16, 64} {
				for _, names := range []string{"own names", "one name"} {
					if callers == 1 && names == "one name" { // the same as a name of its own
						continue
					}
					b.Run(fmt.Sprintf("%s/%d permits/%d callers/%s", engine, permits, callers, names), func(b *testing.B) {
						benchmarkSemaphore(b, engine, permits, callers, names == "one name")
					})
				}
			}
		}
	}
}

func benchmarkSemaphore(b *testing.B, engine string, permits, callers int, oneName bool) {
	db := testdb.New(b, engine).Open(b)
	db.SetMaxIdleConns(10)
	db.SetMaxOpenConns(10)
	database := withPrefix(engine, db, "t_")
	if err := migrations.Up(b.Context(), database); err != nil {
		b.Fatal(err)
	}
	locks, err := sqllock.NewUnique(b.Context(), database, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = locks.Close(context.Background()) }()
	name := func(caller int) string {
		if oneName {
			return "one"
		}
		return fmt.Sprint("caller ", caller)
	}
	lock := func(ctx context.Context, caller int) (*sqllock.Lease, error) { return locks.Lock(ctx, name(caller)) }
	semaphores := make([]*sqllock.Semaphore, callers)
	for i := range semaphores {
		if semaphores[i], err = locks.Semaphore("permit "+name(i), permits, nil); err != nil {
			b.Fatal(err)
		}
	}
	acquire := func(ctx context.Context, caller int) (*sqllock.Lease, error) { return semaphores[caller].Acquire(ctx) }
	const rounds = 41 // short ones: a machine that is busy otherwise is so in both halves of most
	cyclesOf(b, callers, lock)
	cyclesOf(b, callers, acquire) // what is done once is done
	for b.Loop() {
		var ratios []float64
		for i := range rounds {
			halves := []func(context.Context, int) (*sqllock.Lease, error){lock, acquire}
			var cycles [2]int64
			for k := range halves {
				half := (k + i) % 2
				cycles[half] = cyclesOf(b, callers, halves[half])
			}
			ratios = append(ratios, float64(cycles[1])/float64(cycles[0]))
		}
		slices.Sort(ratios)
		b.ReportMetric(ratios[rounds/2], "semaphore/lock")
		b.ReportMetric(ratios[rounds/4], "quarter")
		b.ReportMetric(ratios[rounds*3/4], "three-quarters")
		b.ReportMetric(0, "ns/op")
	}
}

// cyclesOf returns how many cycles callers have done in a fixed time.
func cyclesOf(b *testing.B, callers int, lock func(ctx context.Context, caller int) (*sqllock.Lease, error)) int64 {
	b.Helper()
	const long = 50 * time.Millisecond
	var cycles atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for caller := range callers {
		wg.Go(func() {
			for time.Since(began) < long {
				lease, err := lock(b.Context(), caller)
				if err == nil {
					err = lease.Unlock(b.Context())
				}
				if err != nil {
					b.Error(err)
					return
				}
				cycles.Add(1)
			}
		})
	}
	wg.Wait()
	return cycles.Load()
}
