package workload

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/bench/internal/contender"
	"github.com/sqllock/sqllock/bench/internal/report"
	"github.com/sqllock/sqllock/bench/internal/server"
)

const (
	idleLocks   = 10_000
	idleWaiters = 1_000
	idleCallers = 256 // that take the locks
	// settle is how long connections may take to be closed that are not needed.
	settle = 4 * time.Second
	// waitingLabel is appended to the names of contenders with waiting callers.
	waitingLabel = "@waiting"
)

// idle holds many locks and does nothing else. Then many callers wait for one name.
// Contenders whose server cannot distinguish them are measured one after the other, all
// others together.
func (b *Bench) idle(ctx context.Context) error {
	list, err := b.entries(ctx, func(c contender.Contender) bool {
		return strings.HasPrefix(c.Name, "sqllock/") && !strings.HasSuffix(c.Name, "/forupdate")
	})
	if err != nil {
		return err
	}
	for _, e := range list {
		e.site.Count, e.site.Shrink = true, true
	}
	for _, group := range groups(list) {
		if err := b.idleGroup(ctx, group); err != nil {
			return err
		}
		if b.Quick {
			break // the other contender on MariaDB would take as long again
		}
	}
	return nil
}

// groups puts at most one contender on MariaDB, which counts for the whole server,
// into each group.
func groups(list []*entry) [][]*entry {
	var all [][]*entry
	put := 0
	for _, e := range list {
		i := 0
		if e.Server == server.MariaDB {
			i, put = put, put+1
		}
		for len(all) <= i {
			all = append(all, nil)
		}
		all[i] = append(all[i], e)
	}
	return all
}

// idleLocker is an entry with the locks that it holds.
type idleLocker struct {
	*entry
	counter *counter
	locks   []contender.Lock
	sample  report.Sample
}

func (b *Bench) idleGroup(ctx context.Context, list []*entry) error {
	var all []*idleLocker
	defer func() {
		for _, h := range all {
			if err := h.end(); err != nil {
				b.Say("%s: %v", h.label, err)
			}
		}
	}()
	for _, e := range list {
		b.Say("%d locks are taken by %s", idleLocks, e.label)
		h, err := lockAll(ctx, e)
		if err != nil {
			b.Say("%s: %v", e.label, err)
			continue
		}
		all = append(all, h)
	}
	if err := b.watch(ctx, all); err != nil {
		return err
	}
	for _, h := range all {
		b.Results.Add(h.key(report.Idle, idleLocks), h.Durable, h.sample)
	}
	b.wait(ctx, slices.DeleteFunc(slices.Clone(all), func(h *idleLocker) bool { return h.counter == nil }))
	return nil
}

// wait has callers of all entries wait at the same time.
func (b *Bench) wait(ctx context.Context, all []*idleLocker) {
	samples, errs := make([]report.Sample, len(all)), make([]error, len(all))
	var wg sync.WaitGroup
	for i, h := range all {
		wg.Go(func() { samples[i], errs[i] = h.waiting(ctx) })
	}
	wg.Wait()
	for i, h := range all {
		k := report.Key{Workload: report.Idle, Contender: h.label + waitingLabel, Callers: idleWaiters}
		if errs[i] != nil {
			b.Say("%s: %v", k.Contender, errs[i])
			continue
		}
		b.Results.Add(k, h.Durable, samples[i])
	}
}

// lockAll takes the locks.
func lockAll(ctx context.Context, e *entry) (*idleLocker, error) {
	h := &idleLocker{entry: e, locks: make([]contender.Lock, idleLocks)}
	before := heap()
	var err error
	if h.client, err = e.Open(ctx, e.site); err != nil {
		return nil, err
	}
	err = each(idleLocks, func(i int) (err error) {
		h.locks[i], err = h.client.Lock(ctx, i%idleCallers, fmt.Sprintf("held-%d", i))
		return err
	})
	if err == nil {
		h.counter, err = newCounter(ctx, e)
	}
	if err != nil {
		return nil, errors.Join(err, h.end())
	}
	h.sample.Heap = max(0, heap()-before) / idleLocks
	return h, nil
}

// end frees the locks.
func (h *idleLocker) end() error {
	err := each(len(h.locks), func(i int) error {
		if h.locks[i] == nil {
			return nil
		}
		return h.locks[i].Unlock(context.Background())
	})
	if h.counter != nil {
		err = errors.Join(err, h.counter.close())
	}
	return errors.Join(err, h.client.Close())
}

// each calls f for 0 to n-1 from a number of goroutines and returns the first
// error of each.
func each(n int, f func(i int) error) error {
	errs := make([]error, idleCallers)
	var wg sync.WaitGroup
	for c := range idleCallers {
		wg.Go(func() {
			for i := c; i < n && errs[c] == nil; i += idleCallers {
				errs[c] = f(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// watch counts statements and connections of all idle entries at the same time. The
// window is a multiple of the renewal interval of 10 s.
func (b *Bench) watch(ctx context.Context, all []*idleLocker) error {
	window := 30 * time.Second
	if b.Quick {
		window = 10 * time.Second
	}
	time.Sleep(settle)
	var wg sync.WaitGroup
	errs := make([]error, len(all))
	for i, h := range all {
		if h.counter == nil {
			continue
		}
		wg.Go(func() {
			statements, err := h.counter.during(ctx, func() { time.Sleep(window) })
			conns, err2 := h.counter.conns(ctx)
			h.sample.Rate, h.sample.Conns = statements/window.Seconds(), conns
			errs[i] = errors.Join(err, err2)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// waiting has callers wait for a name that another client holds. The connections
// are those that they cost beyond the ones that their client had before.
func (h *idleLocker) waiting(ctx context.Context) (s report.Sample, err error) {
	lock, err := h.client.Lock(ctx, 0, "awaited")
	if err != nil {
		return s, err
	}
	defer func() { _ = lock.Unlock(context.Background()) }()
	client, err := h.Open(ctx, h.site)
	if err != nil {
		return s, err
	}
	defer func() { _ = client.Close() }()
	own, err := client.Lock(ctx, 0, "of its own") // opens the connections of a holder
	if err != nil {
		return s, err
	}
	defer func() { _ = own.Unlock(context.Background()) }()
	time.Sleep(settle)
	base, err := h.counter.conns(ctx)
	if err != nil {
		return s, err
	}
	waiting, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var granted atomic.Int64 // must remain 0
	for c := range idleWaiters {
		wg.Go(func() {
			if _, err := client.Lock(waiting, c, "awaited"); err == nil {
				granted.Add(1)
			}
		})
	}
	defer wg.Wait()
	defer cancel()
	time.Sleep(settle)
	const window = 5 * time.Second
	statements, err := h.counter.during(ctx, func() { time.Sleep(window) })
	conns, err2 := h.counter.conns(ctx)
	s.Rate, s.Conns, s.Failures = statements/window.Seconds(), conns-base, int(granted.Load())
	return s, errors.Join(err, err2)
}
