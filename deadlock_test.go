package sqllock_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
)

// numbered returns the i-th of IDs that differ.
func numbered(i int) (id driver.ID) {
	binary.BigEndian.PutUint64(id[:], uint64(i)+1)
	return id
}

// waits for holder while it carries what it has.
func waitFor(i int, since int64, carries, holders []driver.ID) driver.Wait {
	return driver.Wait{Acq: numbered(1_000_000 + i), Since: since, Carries: carries, Holders: holders}
}

func TestADeadlockCheckTakesStepsInProportionToTheWaits(t *testing.T) {
	const n = 20_000
	for _, test := range []struct {
		what    string
		holder  func(i int) int
		victims int
	}{
		{"a chain without an end", func(i int) int { return i + 1 }, 0},
		{"all wait for a stranger", func(int) int { return 5_000_000 }, 0},
		{"one cycle of all", func(i int) int { return (i + 1) % n }, 1},
		{"cycles of two", func(i int) int { return i ^ 1 }, n / 2},
	} {
		waits := make([]driver.Wait, n)
		for i := range waits {
			waits[i] = waitFor(i, int64(i), []driver.ID{numbered(i)}, []driver.ID{numbered(test.holder(i))})
		}
		victims, _, steps := sqllock.FindDeadlocks(waits)
		if len(victims) != test.victims || steps > 10*n {
			t.Errorf("%s: %d of %d waits are ended, want %d; %d steps", test.what, len(victims), n, test.victims, steps)
		}
	}
}

func TestADeadlockCheckOfManyCyclesIsBounded(t *testing.T) {
	const n = 5_000 // goroutines that carry one lease wait for a name whose holder waits for that
	a, b := []driver.ID{numbered(1)}, []driver.ID{numbered(2)}
	waits := []driver.Wait{waitFor(0, 0, b, a)}
	for i := range n {
		waits = append(waits, waitFor(i+1, int64(i+1), a, b))
	}
	victims, _, steps := sqllock.FindDeadlocks(waits)
	if len(victims) == 0 || steps > 5_000_000 {
		t.Errorf("%d waits are ended after %d steps", len(victims), steps)
	}
}

func TestADeadlockEndsTheYoungestWaitOfEachCycle(t *testing.T) {
	some := func(r *rand.Rand, most, of int) (ids []driver.ID) {
		for range 1 + r.IntN(most) {
			ids = append(ids, numbered(r.IntN(of)))
		}
		return ids
	}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 11))
		n := 1 + r.IntN(12)
		waits := make([]driver.Wait, n)
		for i := range waits {
			waits[i] = waitFor(i, int64(r.IntN(6)), some(r, 2, n), some(r, 3, 2*n))
		}
		var want []driver.ID
		byAge := slices.SortedFunc(slices.Values(waits), func(a, b driver.Wait) int {
			return cmp.Or(cmp.Compare(a.Since, b.Since), bytes.Compare(a.Acq[:], b.Acq[:]))
		})
		for i, w := range byAge {
			if closes(byAge[:i], w) {
				want = append(want, w.Acq)
			}
		}
		got, cycles, _ := sqllock.FindDeadlocks(waits)
		for i, cycle := range cycles {
			if cycle[0].Acq != got[i] {
				t.Errorf("seed %d: the cycle of a wait begins with another one", seed)
			}
			for k, w := range cycle {
				if !blocks(cycle[(k+1)%len(cycle)], w) {
					t.Errorf("seed %d: what is told is no cycle", seed)
				}
			}
		}
		order := func(a, b driver.ID) int { return bytes.Compare(a[:], b[:]) }
		slices.SortFunc(want, order)
		slices.SortFunc(got, order)
		if !slices.Equal(got, want) {
			t.Errorf("seed %d: of %d waits %v are ended, want %v", seed, n, got, want)
		}
	}
}

// blocks reports whether b carries what w waits for.
func blocks(b, w driver.Wait) bool {
	return slices.ContainsFunc(w.Holders, func(acq driver.ID) bool { return slices.Contains(b.Carries, acq) })
}

// closes reports whether w waits for itself by way of others.
func closes(waits []driver.Wait, w driver.Wait) bool {
	reached := []driver.Wait{w}
	seen := make([]bool, len(waits))
	for at := 0; at < len(reached); at++ {
		if blocks(w, reached[at]) {
			return true
		}
		for i, next := range waits {
			if !seen[i] && blocks(next, reached[at]) {
				seen[i] = true
				reached = append(reached, next)
			}
		}
	}
	return false
}

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
