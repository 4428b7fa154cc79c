package sqllock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
)

func TestAHandOverDoesNotWaitForADeadlockCheck(t *testing.T) {
	b := newBench(t, newFake(), &sqllock.UniqueOptions{TTL: time.Hour, Reaper: &sqllock.ReaperOptions{Off: true}})
	defer b.close()
	const n = 1_000
	ctx, stop := context.WithCancel(t.Context())
	leases := make([]*sqllock.Lease, n+1)
	for i := range leases {
		leases[i] = b.lock(fmt.Sprint("link ", i))
	}
	var wg sync.WaitGroup
	for i := range n { // each holds one and waits for the next: a chain, no cycle
		wg.Go(func() {
			bound, cancel := leases[i].Bind(ctx)
			defer cancel()
			if lease, err := b.Lock(bound, fmt.Sprint("link ", i+1)); err == nil {
				t.Error("a name that is held was acquired")
				b.unlock(lease)
			}
		})
	}
	var worst time.Duration
	for range 8 { // looks begin 150 ms after the waiters and are made every 300 ms
		first := b.lock("unrelated")
		got := make(chan *sqllock.Lease)
		go func() { got <- b.lock("unrelated") }()
		time.Sleep(100 * time.Millisecond)
		freed := time.Now()
		b.unlock(first)
		next := <-got
		worst = max(worst, time.Since(freed))
		b.unlock(next)
	}
	if worst > 2*time.Second { // 5 s and more when each look took a step for each pair of pairs
		t.Errorf("an unrelated name took %v to change hands beside a chain of %d waiters", worst, n)
	}
	stop()
	wg.Wait()
	for _, lease := range leases {
		b.unlock(lease)
	}
}
