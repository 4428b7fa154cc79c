package queuetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// stormTests are about many clients at a time.
var stormTests = map[string]func(*testing.T, *suite, string){
	"random clients of a queue never hold a name beside others":   queueStorm,
	"random readers and writers leave the right count of readers": sharedStorm,
}

const (
	queueClients = 8 // of two stores
	lasting      = 3 * time.Second
	longest      = minute / 2            // on a machine that has much else to do
	short        = 40 * time.Millisecond // of requests that are never repeated
)

func queueStorm(t *testing.T, s *suite, name string) {
	w := queueWatch{Fixture: &s.Fixture, t: t, names: []string{name + "1", name + "2", name + "3"}, terms: make(map[string]*term), began: time.Now()}
	for _, n := range w.names {
		w.terms[n] = &term{}
	}
	var wg sync.WaitGroup
	third := s.open(t)
	for i := range queueClients {
		store := s.store
		if i%2 == 1 {
			store = s.other
		}
		c := queueClient{queueWatch: &w, store: store, third: third, rnd: rand.New(rand.NewPCG(uint64(i), 11))}
		wg.Go(c.run)
	}
	for ; !w.over(); time.Sleep(2 * short) {
		s.consistent(t, name)
	}
	wg.Wait()
	time.Sleep(2 * short)
	for _, n := range w.names {
		s.drain(t, n)
	}
	t.Logf("%d were granted, %d of them had waited", w.granted, w.waited)
	if w.granted < queueClients || w.waited == 0 {
		t.Error("there was too little contention")
	}
}

// drain waits for a name behind everybody, and checks that nobody else waits but the dead.
func (s *suite) drain(t *testing.T, name string) {
	t.Helper()
	last := writer(name)
	for began := time.Now(); ; time.Sleep(short) {
		res, err := s.store.Acquire(t.Context(), []driver.AcquireRequest{last})
		if err == nil && res[0].Granted {
			break
		}
		if time.Since(began) > longest {
			t.Fatalf("%s: nobody is granted the name when all is over, %v: %s", name, err, s.dump(t, name))
		}
	}
	abandon(t, s.store, last)
	const claims = `SELECT count(*) FROM {claim} c JOIN {waiter} w ON w.locker = c.locker WHERE c.state = 0 AND c.name = '`
	if n := s.number(t, claims+name+`' AND w.expires_at > {now}`); n > 0 {
		t.Errorf("%s: %d claims are alive: %s", name, n, s.dump(t, name))
	}
	s.exec(t, `UPDATE {waiter} SET expires_at = {now} - 61000000 WHERE expires_at < {now}`)
	s.sweep(t)
	s.quiet(t, name)
}

// queueWatch checks that nobody holds a name beside a writer.
type queueWatch struct {
	*Fixture
	t     *testing.T
	names []string
	began time.Time

	mu              sync.Mutex
	terms           map[string]*term
	granted, waited int
}

// term is the last term of a name that has begun.
type term struct {
	version          int64
	shared           bool
	readers, writers int
}

// over reports that it is time to end: there was enough contention, or too little for long.
func (w *queueWatch) over() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	took := time.Since(w.began)
	return took > longest || took > lasting && w.granted > 4*queueClients && w.waited > 0
}

func (w *queueWatch) begin(h held) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.granted++
	if h.Found {
		w.waited++
	}
	k := w.terms[h.Name]
	if k.writers > 0 || k.readers > 0 && !h.Shared {
		w.t.Errorf("%s: granted, shared %v, beside %d writers and %d readers", h.Name, h.Shared, k.writers, k.readers)
	}
	if h.Version < k.version || h.Version == k.version && !(h.Shared && k.shared) {
		w.t.Errorf("%s: version %d, shared %v, after %d, shared %v", h.Name, h.Version, h.Shared, k.version, k.shared)
	}
	k.version, k.shared = h.Version, h.Shared
	w.count(h, 1)
}

func (w *queueWatch) end(h held) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count(h, -1)
}

func (w *queueWatch) count(h held, n int) {
	if h.Shared {
		w.terms[h.Name].readers += n
	} else {
		w.terms[h.Name].writers += n
	}
}

// queueClient does at random what clients do.
type queueClient struct {
	*queueWatch
	store driver.Store
	third driver.Store // whose Locker dies and comes back again and again
	rnd   *rand.Rand
}

func (c *queueClient) run() {
	for !c.over() && !c.t.Failed() {
		req := writer(c.names[c.rnd.IntN(len(c.names))])
		req.Shared = c.rnd.IntN(3) == 0
		switch c.rnd.IntN(20) {
		case 0: // and never comes back
			req.TTL, req.Life, req.Handed = short, short, short
			third := *c
			third.store = c.third
			third.enqueue(req)
		case 1, 2, 3:
			if h, ok := c.try(req); ok {
				c.keep(h)
			}
		default:
			c.wait(req)
		}
	}
}

// wait waits in the queue until it is granted, or gives up.
func (c *queueClient) wait(req driver.AcquireRequest) {
	for {
		h, ok := c.enqueue(req)
		if ok {
			c.keep(h)
			return
		}
		if c.rnd.IntN(30) == 0 || c.over() {
			c.abandon(req)
			return
		}
		time.Sleep(time.Duration(c.rnd.IntN(3000)) * time.Microsecond)
	}
}

func (c *queueClient) keep(h held) {
	c.begin(h)
	time.Sleep(time.Duration(c.rnd.IntN(1000)) * time.Microsecond)
	c.end(h)
	if c.rnd.IntN(6) == 0 {
		c.abandon(h.AcquireRequest)
		return
	}
	r := h.release()
	r.Awaited = c.rnd.IntN(2) == 0
	unknown := c.call(func(ctx context.Context) error {
		res, err := c.store.Release(ctx, []driver.ReleaseRequest{r})
		if err == nil && !res[0].Freed {
			c.t.Errorf("%s: a lease that was held was not released", h.Name)
		}
		return err
	})
	if unknown {
		c.abandon(h.AcquireRequest)
	}
}

// enqueue is Acquire of one request, repeated until its outcome is known.
func (c *queueClient) enqueue(req driver.AcquireRequest) (h held, ok bool) {
	c.call(func(ctx context.Context) error {
		res, err := c.store.Acquire(ctx, []driver.AcquireRequest{req})
		if err == nil {
			h, ok = held{req, res[0]}, res[0].Granted
		}
		return err
	})
	return h, ok
}

func (c *queueClient) try(req driver.AcquireRequest) (h held, ok bool) {
	c.call(func(ctx context.Context) error {
		res, err := c.store.Acquire(ctx, []driver.AcquireRequest{atOnce(req)})
		if err == nil {
			h, ok = held{req, res[0]}, res[0].Granted
		}
		return err
	})
	return h, ok
}

func (c *queueClient) abandon(req driver.AcquireRequest) {
	c.call(func(ctx context.Context) error {
		_, err := c.store.Release(ctx, []driver.ReleaseRequest{{Name: req.Name, Acq: req.Acq, Shared: req.Shared}})
		return err
	})
}

// call is retry.
func (c *queueClient) call(f func(context.Context) error) (unknown bool) {
	return c.retry(c.t, c.rnd, f)
}

// retry repeats a call as long as the database says that it may. It reports whether it gave up,
// because the outcome is unknown.
func (f *Fixture) retry(t *testing.T, rnd *rand.Rand, call func(context.Context) error) (unknown bool) {
	for tries := 0; ; tries++ {
		err := call(context.Background())
		if err == nil {
			return false
		}
		if fault := f.Classify(err); fault != driver.Again || tries == 200 {
			t.Error(fmt.Errorf("after %d tries, fault %d: %w", tries, fault, err))
			return true
		}
		time.Sleep(time.Duration(rnd.IntN(5)+1) * time.Millisecond)
	}
}
