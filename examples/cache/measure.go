package main

import (
	"context"
	"sync"
	"time"

	"github.com/sqllock/sqllock/examples/internal/demo"
)

const (
	writes  = 12                    // of one strategy
	between = 20 * time.Millisecond // two writes
	readers = 6
)

// measure lets the services read while one of them writes, and counts.
func measure(ctx context.Context, d *demo.Demo, way strategy) (sum tally, err error) {
	if _, err := d.DB.ExecContext(ctx, `UPDATE product SET price = 0`); err != nil {
		return sum, err
	}
	shared := service{cache: &cache{}, history: &history{}, keep: way.keep}
	shared.history.committed()
	over := make(chan struct{})
	var mu sync.Mutex
	err = demo.Together(ctx, 1+readers, func(ctx context.Context, i int) error {
		s := shared
		s.Worker = d.Workers[i%len(d.Workers)]
		if i == 0 {
			defer close(over)
			return s.writeAll(ctx, way)
		}
		t, err := s.readAll(ctx, way, over)
		mu.Lock()
		defer mu.Unlock()
		sum.add(t)
		return err
	})
	return sum, err
}

// writeAll makes the price 1, 2 and so on.
func (s *service) writeAll(ctx context.Context, way strategy) error {
	for price := 1; price <= writes; price++ {
		time.Sleep(between)
		if err := way.write(s, ctx, price); err != nil {
			return err
		}
	}
	time.Sleep(between)
	return nil
}

// readAll reads until it is over.
func (s *service) readAll(ctx context.Context, way strategy, over <-chan struct{}) (t tally, err error) {
	for {
		select {
		case <-over:
			return t, nil
		default:
		}
		newest, began := s.history.newest(), time.Now()
		price, err := way.read(s, ctx)
		if err != nil {
			return t, err
		}
		t.reads++
		if price < newest { // which was committed before the read began
			t.stale++
			t.longest = max(t.longest, began.Sub(s.history.end(price)))
		}
	}
}

// tally counts reads.
type tally struct {
	reads, stale int
	longest      time.Duration // that a price was read for after its end
}

func (t *tally) add(u tally) {
	t.reads += u.reads
	t.stale += u.stale
	t.longest = max(t.longest, u.longest)
}

// history is when each price was committed, from price 0 on. It is safe for
// concurrent use.
type history struct {
	mu sync.Mutex
	at []time.Time
}

// committed notes that the next price is in the database now.
func (h *history) committed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at = append(h.at, time.Now())
}

// newest returns the newest price.
func (h *history) newest() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.at) - 1
}

// end returns when a price was replaced.
func (h *history) end(price int) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.at[price+1]
}
