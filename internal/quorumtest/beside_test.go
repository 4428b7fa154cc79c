//go:build unix

package quorumtest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/testdb"
)

// BenchmarkBesideOneMember has 64 callers lock and unlock names of their own, on a quorum of three
// databases of Postgres and on one such database, each with 5 ms added to its round trips. One iteration
// takes about 20 seconds. It reports
//
//	throughput   that of the quorum, of that of one
//	processor    the client's time per grant, of three times that with one; the proxies are part of it
//	raises       statements that raise, per grant
func BenchmarkBesideOneMember(b *testing.B) {
	nodes := newNodes(b, testdb.Postgres, testdb.Postgres, testdb.Postgres, testdb.Postgres)
	for _, n := range nodes {
		n.proxy.Latency(2500 * time.Microsecond) // each way
	}
	all := newLocker(b, nodes[:3], nil)
	one, err := sqllock.NewUnique(b.Context(), nodes[3].UniqueDatabase, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = one.Close(b.Context()) })
	cycles(b, all, time.Second)
	cycles(b, one, time.Second)
	var quorum, single work
	before := raises(nodes)
	for b.Loop() {
		for range 3 {
			quorum.add(cycles(b, all, 3*time.Second))
			single.add(cycles(b, one, 3*time.Second))
		}
	}
	b.ReportMetric(quorum.rate()/single.rate(), "throughput")
	b.ReportMetric(quorum.cost()/single.cost()/3, "processor")
	b.ReportMetric(float64(raises(nodes)-before)/float64(quorum.grants), "raises")
	b.Logf("grants per second: quorum %.0f, one %.0f", quorum.rate(), single.rate())
}

// work is what callers have done.
type work struct {
	grants          int64
	took, processor time.Duration
}

func (w *work) add(o work) {
	w.grants, w.took, w.processor = w.grants+o.grants, w.took+o.took, w.processor+o.processor
}

func (w *work) rate() float64 { return float64(w.grants) / w.took.Seconds() }
func (w *work) cost() float64 { return w.processor.Seconds() / float64(w.grants) }

// cycles has 64 callers lock and unlock for some time.
func cycles(b *testing.B, l *sqllock.Locker, d time.Duration) work {
	b.Helper()
	var grants atomic.Int64
	var callers sync.WaitGroup
	began, used := time.Now(), processorTime(b)
	for c := range 64 {
		callers.Go(func() {
			for time.Since(began) < d {
				lease, err := l.Lock(b.Context(), fmt.Sprint("name ", c))
				if err != nil {
					b.Error(err)
					return
				}
				if err := lease.Unlock(b.Context()); err != nil {
					b.Error(err)
				}
				grants.Add(1)
			}
		})
	}
	callers.Wait()
	return work{grants.Load(), time.Since(began), processorTime(b) - used}
}

// processorTime is what this process has used.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
