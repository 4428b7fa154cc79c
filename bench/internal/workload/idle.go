package workload

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// idle holds many locks and does nothing else. Then many callers wait for one name. At last
// the sessions of advisory locks are ended, and how soon their loss is noticed is measured.
// Contenders whose server cannot distinguish them are measured one after the other, all
// others together.
func (b *Bench) idle(ctx context.Context) error {
	list, err := b.entries(ctx, func(c contender.Contender) bool {
		return strings.HasPrefix(c.Name, "sqllock/") && !strings.HasSuffix(c.Name, "/forupdate")
	})
	if err != nil {
		return err
	}
	for _, e := range counted(list) {
		e.site.Shrink = true
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
			b.note(e.key(report.Idle, idleLocks), e.Durable, dropped, err)
			continue
		}
		all = append(all, h)
	}
	if err := b.watch(ctx, all); err != nil {
		return err
	}
	b.wait(ctx, slices.DeleteFunc(slices.Clone(all), func(h *idleLocker) bool { return h.counter == nil }))
	for _, h := range all {
		err := h.endSessions(ctx)
		b.note(h.key(report.Idle, idleLocks), h.Durable, h.sample, err)
	}
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
			samples[i].Dropped = true
		}
		b.note(k, h.Durable, samples[i], errs[i])
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
	err = each(idleLocks, idleCallers, func(i int) (err error) {
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
	err := each(len(h.locks), idleCallers, func(i int) error {
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

// each calls f for 0 to n-1 from so many goroutines and returns the first error of each.
func each(n, goroutines int, f func(i int) error) error {
	errs := make([]error, goroutines)
	var wg sync.WaitGroup
	for c := range goroutines {
		wg.Go(func() {
			for i := c; i < n && errs[c] == nil; i += goroutines {
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
			did, conns, err := h.counter.count(ctx, window)
			did.perSecond(&h.sample, window)
			h.sample.Conns, errs[i] = conns, err
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
	return h.countWaiting(ctx, client)
}

// countWaiting has callers of a client wait, and counts meanwhile.
func (h *idleLocker) countWaiting(ctx context.Context, client contender.Client) (s report.Sample, err error) {
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
	did, conns, err := h.counter.watch(ctx, window)
	s.Rate = did.statements / window.Seconds() // rows are renewed, too
	s.Conns, s.Failures = conns-base, int(granted.Load())
	return s, err
}

// noticeTime is how long the loss of a session may take to be noticed.
const noticeTime = 10 * time.Second

// endSessions ends the sessions of an entry whose locks end with them, and notes how long
// the holder of one of its locks did not know.
func (h *idleLocker) endSessions(ctx context.Context) error {
	if h.Durable || h.counter == nil {
		return nil
	}
	lease, ok := h.locks[0].(interface{ Context() context.Context })
	if !ok {
		return nil
	}
	h.locks = nil // they cannot be unlocked
	logger := slog.Default()
	slog.SetDefault(slog.New(slog.DiscardHandler)) // each loss is an error
	defer slog.SetDefault(logger)
	ctx, cancel := context.WithTimeout(ctx, noticeTime)
	defer cancel()
	began := time.Now()
	if err := h.counter.kill(ctx); err != nil {
		return err
	}
	select {
	case <-lease.Context().Done():
		h.sample.Noticed = time.Since(began).Seconds() * 1000
		return nil
	case <-ctx.Done():
		return fmt.Errorf("nobody noticed in %v that the session was gone", noticeTime)
	}
}
