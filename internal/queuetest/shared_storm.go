package queuetest

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
)

const (
	sharedClients = 4
	sharedRounds  = 50 // of each
)

func sharedStorm(t *testing.T, s *suite, name string) {
	w := sharedWatch{Fixture: &s.Fixture, t: t, names: []string{name + "1", name + "2", name + "3"}, holders: make(map[string]*holders)}
	for _, n := range w.names {
		w.holders[n] = &holders{shared: make(map[int64]bool), exclusive: make(map[int64]bool)}
	}
	var wg sync.WaitGroup
	for i := range sharedClients {
		c := sharedClient{sharedWatch: &w, store: s.open(t), rnd: rand.New(rand.NewPCG(uint64(i), 7))}
		wg.Go(c.run)
	}
	wg.Wait()
	for _, n := range w.names {
		if c := s.count(t, n); c.live > c.holding {
			t.Errorf("%s: %+v", n, c)
		}
	}
	time.Sleep(2 * neverReleased)
	s.crashed(t, name)
	for _, n := range w.names {
		if c := s.count(t, n); c != (count{}) {
			t.Errorf("%s, when all is quiet: %+v", n, c)
		}
		s.take(t, writer(n))
	}
	if w.granted < sharedClients*sharedRounds/4 || w.denied == 0 {
		t.Errorf("%d were granted and %d were not", w.granted, w.denied)
	}
}

// neverReleased is the TTL of leases that nobody releases.
const neverReleased = 30 * time.Millisecond

// sharedWatch checks that nobody holds a name beside a writer.
type sharedWatch struct {
	*Fixture
	t     *testing.T
	names []string

	mu              sync.Mutex
	holders         map[string]*holders
	granted, denied int
}

// holders of a name: those now whose leases are long, and the versions of all.
type holders struct {
	readers, writers  int
	shared, exclusive map[int64]bool
}

// begin checks a grant. A long lease is counted until end.
func (w *sharedWatch) begin(h held, long bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.granted++
	k := w.holders[h.Name]
	if k.exclusive[h.Version] || !h.Shared && k.shared[h.Version] {
		w.t.Errorf("%s: version %d for more than one term", h.Name, h.Version)
	}
	if h.Shared {
		k.shared[h.Version] = true
	} else {
		k.exclusive[h.Version] = true
	}
	if k.writers > 0 || k.readers > 0 && !h.Shared {
		w.t.Errorf("%s: granted, shared %v, beside %d writers and %d readers", h.Name, h.Shared, k.writers, k.readers)
	}
	if long {
		w.end(h, 1)
	}
}

func (w *sharedWatch) end(h held, n int) {
	if h.Shared {
		w.holders[h.Name].readers += n
	} else {
		w.holders[h.Name].writers += n
	}
}

// sharedClient does at random what clients do.
type sharedClient struct {
	*sharedWatch
	store driver.Store
	rnd   *rand.Rand
	mine  []held
}

func (c *sharedClient) run() {
	for range sharedRounds {
		c.try()
		for len(c.mine) > 0 && c.rnd.IntN(3) > 0 {
			c.end()
		}
		if c.rnd.IntN(10) == 0 {
			c.call(func(ctx context.Context) error {
				_, err := c.store.Sweep(ctx, driver.SweepRequest{Limit: 10_000, Retention: time.Hour})
				return err
			})
		}
	}
	for len(c.mine) > 0 {
		c.end()
	}
}

// try requests a name, for a long lease or one that may never be released.
func (c *sharedClient) try() {
	req := reader(c.names[c.rnd.IntN(len(c.names))])
	req.Shared = c.rnd.IntN(4) > 0
	long := c.rnd.IntN(4) > 0
	if !long {
		req.TTL = neverReleased
	}
	var res []driver.AcquireResult
	c.call(func(ctx context.Context) (err error) {
		res, err = c.store.Acquire(ctx, []driver.AcquireRequest{atOnce(req)})
		return err
	})
	if len(res) == 0 || !res[0].Granted {
		c.mu.Lock()
		c.denied++
		c.mu.Unlock()
		return
	}
	h := held{req, res[0]}
	c.begin(h, long)
	if long {
		c.mine = append(c.mine, h)
	} else if c.rnd.IntN(2) == 0 { // perhaps too late
		time.Sleep(time.Duration(c.rnd.IntN(60)) * time.Millisecond)
		c.call(func(ctx context.Context) error {
			_, err := c.store.Release(ctx, []driver.ReleaseRequest{h.release()})
			return err
		})
	}
}

// end releases a lease, and may renew it before.
func (c *sharedClient) end() {
	i := c.rnd.IntN(len(c.mine))
	h := c.mine[i]
	c.mine = slices.Delete(c.mine, i, i+1)
	if c.rnd.IntN(2) == 0 {
		c.call(func(ctx context.Context) error {
			res, err := c.store.Renew(ctx, []driver.RenewRequest{h.renew(2 * minute)}, true)
			if err == nil && res.Status[0] != driver.Renewed {
				c.t.Errorf("a lease that is held was not renewed: %v", res.Status[0])
			}
			return err
		})
	}
	c.mu.Lock()
	c.sharedWatch.end(h, -1)
	c.mu.Unlock()
	c.call(func(ctx context.Context) error {
		freed, err := c.store.Release(ctx, []driver.ReleaseRequest{h.release()})
		if err == nil && !freed[0].Freed {
			c.t.Errorf("a lease that was held was not released")
		}
		return err
	})
}

// call is retry.
func (c *sharedClient) call(f func(context.Context) error) { c.retry(c.t, c.rnd, f) }
