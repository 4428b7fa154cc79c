package deadlock_test

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/sqllock/sqllock/driver"

	"github.com/sqllock/sqllock/internal/deadlock"
)

// all reports that each wait may be ended.
func all(driver.ID) bool { return true }

// numbered returns the i-th of IDs that differ.
func numbered(i int) (id driver.ID) {
	binary.BigEndian.PutUint64(id[:], uint64(i)+1)
	return id
}

// waits for holder while it carries what it has.
func waitFor(i int, since int64, carries, holders []driver.ID) driver.Waiter {
	return driver.Waiter{Acq: numbered(1_000_000 + i), Since: since, Carries: carries, Holders: holders}
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
		waits := make([]driver.Waiter, n)
		for i := range waits {
			waits[i] = waitFor(i, int64(i), []driver.ID{numbered(i)}, []driver.ID{numbered(test.holder(i))})
		}
		victims, steps := deadlock.Find(waits, all)
		if len(victims) != test.victims || steps > 10*n {
			t.Errorf("%s: %d of %d waits are ended, want %d; %d steps", test.what, len(victims), n, test.victims, steps)
		}
	}
}

func TestADeadlockCheckOfManyCyclesIsBounded(t *testing.T) {
	const n = 5_000 // goroutines that carry one lease wait for a name whose holder waits for that
	a, b := []driver.ID{numbered(1)}, []driver.ID{numbered(2)}
	waits := []driver.Waiter{waitFor(0, 0, b, a)}
	for i := range n {
		waits = append(waits, waitFor(i+1, int64(i+1), a, b))
	}
	victims, steps := deadlock.Find(waits, all)
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
		waits := make([]driver.Waiter, n)
		for i := range waits {
			waits[i] = waitFor(i, int64(r.IntN(6)), some(r, 2, n), some(r, 3, 2*n))
		}
		var want []driver.ID
		byAge := slices.SortedFunc(slices.Values(waits), func(a, b driver.Waiter) int {
			return cmp.Or(cmp.Compare(a.Since, b.Since), bytes.Compare(a.Acq[:], b.Acq[:]))
		})
		for i, w := range byAge {
			if closes(byAge[:i], w) {
				want = append(want, w.Acq)
			}
		}
		found, _ := deadlock.Find(waits, all)
		var got []driver.ID
		for _, d := range found {
			cycle := d.Cycle
			got = append(got, d.Acq)
			if cycle[0].Acq != d.Acq {
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

func TestAWaitForAPermitIsInADeadlockOnlyIfEachHolderIs(t *testing.T) {
	a, b, c := numbered(1), numbered(2), numbered(3)
	one := func(i int, since int64, carries driver.ID, holders ...driver.ID) driver.Waiter {
		return waitFor(i, since, []driver.ID{carries}, holders)
	}
	permit := func(i int, since int64, carries driver.ID, holders ...driver.ID) driver.Waiter {
		w := one(i, since, carries, holders...)
		w.Kind = driver.KindPermit
		return w
	}
	for name, test := range map[string]struct {
		waits []driver.Waiter
		want  []int
	}{
		"another holder goes on":             {[]driver.Waiter{permit(0, 0, a, a, b)}, nil},
		"each holder wants a second permit":  {[]driver.Waiter{permit(0, 0, a, a, b), permit(1, 1, b, a, b)}, []int{1}},
		"the only holder wants a second one": {[]driver.Waiter{permit(0, 0, a, a)}, []int{0}},
		"another holder waits for one who goes on": {
			[]driver.Waiter{permit(0, 0, a, a, b), one(1, 1, b, c)}, nil},
		"another holder waits for the first": {
			[]driver.Waiter{permit(0, 0, a, a, b), one(1, 1, b, a)}, []int{1}},
		"a writer waits for all permits": {[]driver.Waiter{one(0, 0, a, a, b)}, []int{0}},
		"one victim is enough": {
			[]driver.Waiter{permit(0, 0, a, a, b, c), permit(1, 1, b, a, b, c), permit(2, 2, c, a, b, c)}, []int{2}},
		"the other cycle stays": {
			[]driver.Waiter{permit(0, 0, a, a, b), permit(1, 3, b, a, b), one(2, 1, c, numbered(4)), one(3, 2, numbered(4), c)},
			[]int{1, 3}},
	} {
		found, _ := deadlock.Find(test.waits, all)
		var got, want []driver.ID
		for _, d := range found {
			got = append(got, d.Acq)
		}
		for _, i := range test.want {
			want = append(want, test.waits[i].Acq)
		}
		order := func(a, b driver.ID) int { return bytes.Compare(a[:], b[:]) }
		slices.SortFunc(got, order)
		slices.SortFunc(want, order)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v are ended, want %v", name, got, want)
		}
	}
}

// blocks reports whether b carries what w waits for.
func blocks(b, w driver.Waiter) bool {
	return slices.ContainsFunc(w.Holders, func(acq driver.ID) bool { return slices.Contains(b.Carries, acq) })
}

// closes reports whether w waits for itself by way of others.
func closes(waits []driver.Waiter, w driver.Waiter) bool {
	reached := []driver.Waiter{w}
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
