// Package workload makes the contenders work, in turn and in short rounds, and
// measures them.
package workload

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/bench/internal/contender"
	"github.com/sqllock/sqllock/bench/internal/platform"
	"github.com/sqllock/sqllock/bench/internal/report"
	"github.com/sqllock/sqllock/bench/internal/stat"
)

// roundGrace is how much longer than planned a round may take.
const roundGrace = time.Minute

// The phases of a loop. Cycles that end in the first phase do not count: at first,
// callers run in step.
const (
	warming int32 = iota
	counting
	stopping
)

// loop is a number of callers that lock and unlock without a pause.
type loop struct {
	client  contender.Client
	callers int
	name    func(caller, cycle int) string
	pid     int           // of the server
	pause   time.Duration // after each cycle

	base     time.Time // of the spans
	phase    atomic.Int32
	failures atomic.Int64
	firstErr atomic.Pointer[error]
}

// newLoop returns a loop of callers with an entry's client.
func newLoop(e *entry, callers int, name func(caller, cycle int) string) *loop {
	return &loop{client: e.client, callers: callers, name: name, pid: e.pid}
}

// run works for a quarter of d unmeasured and then for d. The error is the first
// of those that calls returned; they count as failures.
func (l *loop) run(ctx context.Context, d time.Duration) (report.Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*d+roundGrace)
	defer cancel()
	runtime.GC() // collect the garbage of the round before
	spans := make([][]span, l.callers)
	l.base = time.Now()
	var wg sync.WaitGroup
	for c := range l.callers {
		spans[c] = make([]span, 0, 1024)
		wg.Go(func() { l.call(ctx, c, &spans[c]) })
	}
	time.Sleep(d / 4)
	atServer, before := platform.ProcessTime(l.pid), usageNow()
	window := span{began: time.Since(l.base)}
	l.phase.Store(counting)
	time.Sleep(d)
	l.phase.Store(stopping)
	window.ended = time.Since(l.base)
	used := usageNow().since(before)
	atServer = platform.ProcessTime(l.pid) - atServer
	wg.Wait()
	s := sample(spans, window)
	n := max(1, s.Cycles*(window.ended-window.began).Seconds())
	s.Allocs, s.Bytes, s.CPU = float64(used.allocs)/n, float64(used.bytes)/n, used.cpu.Seconds()*1e6/n
	s.ServerCPU = atServer.Seconds() * 1e6 / n
	s.Failures = int(l.failures.Load())
	if err := l.firstErr.Load(); err != nil {
		return s, *err
	}
	return s, nil
}

// call locks and unlocks until the end, and notes when the cycles were that were
// not over before counting began. After an error it pauses: a server that is gone answers quickly.
func (l *loop) call(ctx context.Context, caller int, spans *[]span) {
	for i := 0; ; i++ {
		began := time.Since(l.base)
		err := cycle(ctx, l.client, caller, l.name(caller, i))
		switch {
		case err != nil && ctx.Err() != nil:
			l.fail(err)
			return
		case err != nil:
			l.fail(err)
			time.Sleep(10 * time.Millisecond)
		case l.phase.Load() != warming:
			*spans = append(*spans, span{began, time.Since(l.base)})
		}
		if l.phase.Load() == stopping {
			return
		}
		if l.pause > 0 {
			time.Sleep(l.pause)
		}
	}
}

// warmUpTime is how long an entry works before its first round. A server in Java compiles its
// code meanwhile.
func (b *Bench) warmUpTime() time.Duration {
	if b.Quick {
		return 500 * time.Millisecond
	}
	return 2 * time.Second
}

// maxWarmUp limits the warm-up of each entry.
const maxWarmUp = 5 * time.Second

// warmUp makes each caller of each entry lock and unlock, once at least, to create sessions
// and rows. Callers that do not finish create them in the first round.
func (b *Bench) warmUp(ctx context.Context, list []*entry, callers int) {
	name := ownNames(callers)
	for _, e := range list {
		ctx, cancel := context.WithTimeout(ctx, maxWarmUp)
		end := time.Now().Add(b.warmUpTime())
		var wg sync.WaitGroup
		for c := range callers {
			wg.Go(func() {
				err := cycle(ctx, e.client, c, name(c, 0))
				for err == nil && time.Now().Before(end) { // a failure shows again in the rounds
					err = cycle(ctx, e.client, c, name(c, 0))
				}
			})
		}
		wg.Wait()
		cancel()
	}
}

func cycle(ctx context.Context, client contender.Client, caller int, name string) error {
	lock, err := client.Lock(ctx, caller, name)
	if err != nil {
		return err
	}
	return lock.Unlock(ctx)
}

func (l *loop) fail(err error) {
	l.failures.Add(1)
	l.firstErr.CompareAndSwap(nil, &err)
}

// span is when something was, since the base of its loop.
type span struct{ began, ended time.Duration }

// sample summarizes the cycles in a window. A cycle that is partly in the window counts
// in part. Otherwise contenders with long cycles would lose.
func sample(spans [][]span, window span) report.Sample {
	shares := make([]float64, len(spans))
	var took []int64
	var sum float64
	for c, cycles := range spans {
		for _, s := range cycles {
			overlap := min(s.ended, window.ended) - max(s.began, window.began)
			if overlap <= 0 || s.ended == s.began {
				continue
			}
			shares[c] += float64(overlap) / float64(s.ended-s.began)
			took = append(took, int64(s.ended-s.began))
		}
		sum += shares[c]
	}
	slices.Sort(took)
	return report.Sample{
		Cycles: sum / (window.ended - window.began).Seconds(),
		P50:    micros(stat.Percentile(took, 50)), P99: micros(stat.Percentile(took, 99)),
		Jain: stat.Jain(shares), Longest: micros(stat.Percentile(took, 100)) / 1000,
	}
}

func micros(ns int64) float64 { return float64(ns) / 1000 }

// usage is the resources that this process has used so far.
type usage struct {
	allocs, bytes uint64
	cpu           time.Duration
}

func usageNow() usage {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{m.Mallocs, m.TotalAlloc, platform.CPUTime()}
}

func (u usage) since(before usage) usage {
	return usage{u.allocs - before.allocs, u.bytes - before.bytes, u.cpu - before.cpu}
}
