package linetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// storms are many at a time.
var storms = map[string]func(*testing.T, *suite, string){
	"nobody holds beside others in a storm": storm,
}

const (
	clients = 8 // of two stores
	lasting = 3 * time.Second
	short   = 40 * time.Millisecond // the life of those who never come back
)

func storm(t *testing.T, s *suite, name string) {
	w := watch{t: t, names: []string{name + "1", name + "2", name + "3"}, terms: make(map[string]*term)}
	for _, n := range w.names {
		w.terms[n] = &term{}
	}
	var wg sync.WaitGroup
	until := time.Now().Add(lasting)
	for i := range clients {
		store := s.store
		if i%2 == 1 {
			store = s.other
		}
		c := client{watch: &w, store: store, rnd: rand.New(rand.NewPCG(uint64(i), 11))}
		wg.Go(func() { c.run(until) })
	}
	wg.Wait()
	for _, n := range w.names {
		// Who stands in line is served, and nobody is after it. Without that a newcomer
		// is kept off for as long as the longest ticket would have lasted, if one that
		// was shorter was the last and has died.
		last := writer(n)
		for began := time.Now(); ; time.Sleep(short) {
			res, err := s.store.Line(t.Context(), []driver.TicketRequest{last})
			if err == nil && res[0].Granted {
				break
			}
			if time.Since(began) > 100*short {
				t.Fatalf("%s: nobody is served when all is over, %v: %s", n, err, s.dump(t, n))
			}
		}
		if err := s.store.Abandon(t.Context(), []driver.AbandonRequest{{Name: n, Acq: last.Acq}}); err != nil {
			t.Fatal(err)
		}
		for began := time.Now(); !s.grant(t, writer(n)).Granted; time.Sleep(short) {
			if time.Since(began) > 100*short {
				t.Fatalf("%s: kept when all is over: %s", n, s.dump(t, n))
			}
		}
		var alive int
		row := s.DB.QueryRowContext(t.Context(), s.text(`SELECT count(*) FROM {ticket} WHERE name = '`+n+`' AND expires_at > {now}`))
		if err := row.Scan(&alive); err != nil || alive > 0 {
			t.Errorf("%s: %d tickets are alive, %v", n, alive, err)
		}
	}
	t.Logf("%d were granted, %d of them had waited", w.granted, w.waited)
	if w.granted < clients || w.waited == 0 {
		t.Error("it was no storm")
	}
}

// watch knows who must be alone.
type watch struct {
	t     *testing.T
	names []string

	mu              sync.Mutex
	terms           map[string]*term
	granted, waited int
}

// term is the last of a name that began.
type term struct {
	version          int64
	shared           bool
	readers, writers int
}

func (w *watch) begin(h held) {
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

func (w *watch) end(h held) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count(h, -1)
}

func (w *watch) count(h held, n int) {
	if h.Shared {
		w.terms[h.Name].readers += n
	} else {
		w.terms[h.Name].writers += n
	}
}

// client does at random what clients do.
type client struct {
	*watch
	store driver.LeaseStore
	rnd   *rand.Rand
}

func (c *client) run(until time.Time) {
	for time.Now().Before(until) && !c.t.Failed() {
		req := writer(c.names[c.rnd.IntN(len(c.names))])
		req.Shared = c.rnd.IntN(3) == 0
		switch c.rnd.IntN(20) {
		case 0: // and never comes back
			req.TTL, req.Life, req.Handed = short, short, short
			c.ask(req)
		case 1, 2, 3:
			if h, ok := c.try(req); ok {
				c.hold(h)
			}
		default:
			c.stand(req, until)
		}
	}
}

// stand waits in line until it is granted, or gives up.
func (c *client) stand(req driver.TicketRequest, until time.Time) {
	for {
		h, ok := c.ask(req)
		if ok {
			c.hold(h)
			return
		}
		if c.rnd.IntN(30) == 0 || time.Now().After(until) {
			c.abandon(req)
			return
		}
		time.Sleep(time.Duration(c.rnd.IntN(3000)) * time.Microsecond)
	}
}

func (c *client) hold(h held) {
	c.begin(h)
	time.Sleep(time.Duration(c.rnd.IntN(1000)) * time.Microsecond)
	c.end(h)
	if c.rnd.IntN(6) == 0 {
		c.abandon(h.TicketRequest)
		return
	}
	r := h.release()
	r.Awaited = c.rnd.IntN(2) == 0
	unclear := c.call(func(ctx context.Context) error {
		res, err := c.store.Release(ctx, []driver.ReleaseRequest{r})
		if err == nil && !res[0].Freed {
			c.t.Errorf("%s: a lease that was held was not released", h.Name)
		}
		return err
	})
	if unclear {
		c.abandon(h.TicketRequest)
	}
}

// ask is Line of one, repeated until its outcome is clear.
func (c *client) ask(req driver.TicketRequest) (h held, ok bool) {
	c.call(func(ctx context.Context) error {
		res, err := c.store.Line(ctx, []driver.TicketRequest{req})
		if err == nil {
			h, ok = held{req, res[0].GrantResult}, res[0].Granted
		}
		return err
	})
	return h, ok
}

func (c *client) try(req driver.TicketRequest) (h held, ok bool) {
	c.call(func(ctx context.Context) error {
		res, err := c.store.Grant(ctx, []driver.GrantRequest{req.GrantRequest})
		if err == nil {
			h, ok = held{req, res[0]}, res[0].Granted
		}
		return err
	})
	return h, ok
}

func (c *client) abandon(req driver.TicketRequest) {
	c.call(func(ctx context.Context) error {
		return c.store.Abandon(ctx, []driver.AbandonRequest{{Name: req.Name, Acq: req.Acq, Shared: req.Shared}})
	})
}

// call repeats what may be tried again. It reports that it did not come to that,
// because the outcome is unclear.
func (c *client) call(f func(context.Context) error) (unclear bool) {
	for tries := 0; ; tries++ {
		err := f(context.Background())
		if err == nil {
			return false
		}
		if fault := c.store.Classify(err); fault != driver.Again || tries == 200 {
			c.t.Error(fmt.Errorf("after %d tries, fault %d: %w", tries, fault, err))
			return true
		}
		time.Sleep(time.Duration(c.rnd.IntN(5)+1) * time.Millisecond)
	}
}
