package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
)

// crowd has n callers lock a name of their own at one time, and returns how long that
// took them all.
func (b *bench) manyCallers(n int) (took time.Duration, leases []*sqllock.Lease) {
	b.t.Helper()
	began := time.Now()
	leases = make([]*sqllock.Lease, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			var err error
			if leases[i], err = b.Lock(b.t.Context(), fmt.Sprint("name ", i)); err != nil {
				b.t.Errorf("Lock: %v", err)
			}
		})
	}
	wg.Wait()
	return time.Since(began), leases
}

func TestRequestsThatComeWhileStatementsAreUnderWayLeaveTogether(t *testing.T) {
	for what, c := range map[string]struct {
		opts       sqllock.UniqueOptions
		statements int
	}{
		"one statement under way": {sqllock.UniqueOptions{MaxInFlight: 1}, 1 + 1},
		"several":                 {sqllock.UniqueOptions{MaxInFlight: 3}, 1 + 1},
		"small batches":           {sqllock.UniqueOptions{MaxInFlight: 1, MaxBatch: 10}, 1 + 10},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 100
				db := newFake()
				db.before = after("grant", 10*time.Millisecond)
				c.opts.TTL = time.Hour
				b := newBench(t, db, &c.opts)
				defer b.close()
				_, leases := b.manyCallers(n)
				if got := db.count("grant"); got > c.statements {
					t.Errorf("%d grants took %d statements, want %d at most", n, got, c.statements)
				}
				if limit := c.opts.MaxBatch; limit > 0 && db.largest["grant"] > limit {
					t.Errorf("%d requests came in one statement", db.largest["grant"])
				}
				db.set(func(f *fake) { f.before = after("release", 10*time.Millisecond) })
				var wg sync.WaitGroup
				for _, lease := range leases {
					wg.Go(func() { b.unlock(lease) })
				}
				wg.Wait()
				if got := db.count("release"); got > c.statements {
					t.Errorf("%d releases took %d statements, want %d at most", n, got, c.statements)
				}
			})
		})
	}
}

// A slow statement of one kind must not cost those of another their time, nor a
// time-out that is short for one cut off another.
func TestRequestsOfDifferentKindsDoNotShareAStatement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		db.before = after("grant", 10*time.Millisecond)
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: 10 * time.Second, MaxInFlight: 1})
		defer b.close()
		kinds := [][]sqllock.LockOption{nil, {sqllock.Value([]byte("v"))}, {sqllock.TTL(time.Second)}}
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				lock, opts := b.Lock, kinds[i%3]
				if i%4 == 3 {
					lock, opts = b.RLock, nil
				}
				lease, err := lock(t.Context(), fmt.Sprint("name ", i), opts...)
				if err != nil {
					t.Error(err)
					return
				}
				b.unlock(lease)
			})
		}
		wg.Wait()
		if db.mixed {
			t.Error("they do")
		}
	})
}

func TestOneCallerWaitsForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: time.Hour})
		defer b.close()
		began := time.Now()
		for range 10 {
			b.unlock(b.lock("a"))
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("ten cycles took %v longer than their statements", took)
		}
	})
}

func TestANameThatSpoilsItsBatchFailsNobodyElse(t *testing.T) {
	for what, poison := range map[string]error{"refused": errDenied, "deadlock": errDeadlock, "no reply": errNoReply} {
		for _, n := range []int{20, 200} {
			t.Run(fmt.Sprint(what, " of ", n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { oneIsSpoilt(t, poison, n) })
			})
		}
	}
}

// oneIsSpoilt has n callers try to lock at once, the request of one of whom fails whatever it
// is sent with. In parts it is found without sending each request by itself.
func oneIsSpoilt(t *testing.T, poison error, n int) {
	const part = 32
	db := newFake()
	db.before = after("grant", 10*time.Millisecond)
	b := newBench(t, db, &sqllock.UniqueOptions{TTL: time.Hour, MaxInFlight: 1})
	defer b.close()
	b.unlock(b.lock("warm"))
	db.poison["name 17"] = poison
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			name := fmt.Sprint("name ", i)
			lease, err := b.TryLock(t.Context(), name)
			switch {
			case i == 17 && !errors.Is(err, poison):
				t.Errorf("TryLock(%q) = %v", name, err)
			case i != 17 && err != nil:
				t.Errorf("TryLock(%q) = %v, as the spoilt one", name, err)
			case i != 17:
				b.unlock(lease)
			}
		})
	}
	wg.Wait()
	db.set(func(f *fake) { delete(f.poison, "name 17") }) // so that it can be undone
	inParts := !errors.Is(poison, errNoReply)             // which says nothing of any part
	if sent := db.count("grant"); inParts && sent > 2+n/part+part {
		t.Errorf("%d grants went through for %d callers", sent, n)
	}
}

func TestAReleaseThatSpoilsItsBatchFailsNobodyElse(t *testing.T) {
	for what, poison := range map[string]error{"refused": errDenied, "no reply": errNoReply} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := newFake()
				b := newBench(t, db, &sqllock.UniqueOptions{TTL: 10 * time.Second, MaxInFlight: 1})
				defer b.close()
				_, leases := b.manyCallers(50)
				db.set(func(f *fake) {
					f.before = after("release", 10*time.Millisecond)
					f.poison["name 7"] = poison
				})
				var wg sync.WaitGroup
				for i, lease := range leases {
					wg.Go(func() {
						if err := lease.Unlock(t.Context()); (err != nil) != (i == 7) {
							t.Errorf("Unlock(%q) = %v", lease.Name(), err)
						}
					})
				}
				wg.Wait()
				db.set(func(f *fake) { delete(f.poison, "name 7") }) // else Close says that it is left
			})
		})
	}
}

func TestACallerThatLeavesBeforeItsRequestWasSentSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		db.before = after("grant", time.Second)
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: time.Hour, MaxInFlight: 1})
		defer b.close()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				if _, err := b.Lock(ctx, fmt.Sprint("name ", i)); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Lock = %v", err)
				}
			})
			synctest.Wait() // so the first is under way
		}
		wg.Wait()
		time.Sleep(time.Minute)
		if n := db.count("grant"); n != 1 {
			t.Errorf("%d grants were sent, want that of the first alone", n)
		}
		for i := range 3 {
			if db.held(fmt.Sprint("name ", i)) {
				t.Errorf("name %d is held by nobody", i)
			}
		}
	})
}

func TestAStatementThatHangsHoldsUpNobodyElseForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		var inFlight, most atomic.Int32
		hang := func(d time.Duration) {
			db.set(func(f *fake) {
				f.before = func(ctx context.Context, kind string) error {
					if kind != "grant" {
						return nil
					}
					most.Store(max(most.Load(), inFlight.Add(1)))
					defer inFlight.Add(-1)
					return after("grant", d)(ctx, kind)
				}
			})
		}
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: time.Hour, MaxInFlight: 3, MaxBatch: 1})
		defer b.close()
		var wg sync.WaitGroup
		background := func(name string) {
			wg.Go(func() { b.unlock(b.lock(name)) })
			synctest.Wait()
		}
		hang(time.Second)
		background("first")
		hang(time.Millisecond)
		began := time.Now()
		b.unlock(b.lock("second"))
		if took := time.Since(began); took > 50*time.Millisecond {
			t.Errorf("the second waited %v for the first", took)
		}
		for i := range 20 { // who keep the second statement busy until the first is back, and after
			wg.Go(func() {
				for range 500 {
					b.unlock(b.lock(fmt.Sprint("name ", i)))
				}
			})
		}
		time.Sleep(1100 * time.Millisecond)
		most.Store(0)
		wg.Wait()
		if n := most.Load(); n > 1 {
			t.Errorf("%d statements left beside each other that were not late", n)
		}

		hang(time.Second)
		most.Store(0)
		for i := range 6 {
			background(fmt.Sprint("late ", i))
			time.Sleep(50 * time.Millisecond)
		}
		wg.Wait()
		if n := most.Load(); n != 3 {
			t.Errorf("%d late statements were under way at most, want MaxInFlight", n)
		}
	})
}

func TestBatchOptionsAreChecked(t *testing.T) {
	for _, o := range []sqllock.UniqueOptions{{MaxBatch: -1}, {MaxBatch: 10_001}, {MaxInFlight: -1}} {
		if _, err := sqllock.NewUnique(t.Context(), nil, &o); !errors.Is(err, sqllock.ErrInvalidOption) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestRequestsForOneNameShareAStatement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 400
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: 3 * time.Second, MaxInFlight: 1})
		defer b.close()
		writer := b.lock("held")
		db.set(func(f *fake) {
			f.before = func(ctx context.Context, kind string) error {
				return errors.Join(after("grant", 10*time.Millisecond)(ctx, kind), after("release", 10*time.Millisecond)(ctx, kind))
			}
		})
		each := func(kind string, call func(i int)) {
			t.Helper()
			before := db.count(kind)
			var wg sync.WaitGroup
			for i := range n {
				wg.Go(func() { call(i) })
			}
			wg.Wait()
			if got := db.count(kind) - before; got > 3 {
				t.Errorf("%d calls for one name took %d statements of kind %s", n, got, kind)
			}
		}
		each("grant", func(int) {
			if _, err := b.TryLock(t.Context(), "held"); !errors.Is(err, sqllock.ErrHeld) {
				t.Errorf("TryLock of a name that is held = %v", err)
			}
		})
		b.unlock(writer)
		var got atomic.Int32
		each("grant", func(int) {
			lease, err := b.TryLock(t.Context(), "held")
			switch {
			case err == nil:
				got.Add(1)
				time.Sleep(time.Second)
				b.unlock(lease)
			case !errors.Is(err, sqllock.ErrHeld):
				t.Errorf("TryLock = %v", err)
			}
		})
		if got.Load() != 1 {
			t.Errorf("%d callers hold a name alone", got.Load())
		}
		leases := make([]*sqllock.Lease, n)
		each("grant", func(i int) {
			var err error
			if leases[i], err = b.TryRLock(t.Context(), "shared"); err != nil {
				t.Errorf("TryRLock: %v", err)
			}
		})
		each("release", func(i int) { b.unlock(leases[i]) })
	})
}

func TestALeaseIsRenewedUntilItsReleaseIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 400
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: 3 * time.Second, StatementTimeout: 5 * time.Second, MaxInFlight: 1, MaxBatch: 1})
		defer b.close()
		var leases []*sqllock.Lease
		for i := range n {
			lease, err := b.TryRLock(t.Context(), fmt.Sprint("name ", i))
			if err != nil {
				t.Fatal(err)
			}
			leases = append(leases, lease)
		}
		db.set(func(f *fake) { f.before = after("release", 20*time.Millisecond) })
		var wg sync.WaitGroup
		for _, lease := range leases { // the last waits for 8 s
			wg.Go(func() { b.unlock(lease) })
		}
		wg.Wait()
	})
}

// Values may be large: a statement with as many of them as there are names in others
// would be larger than servers take.
func TestFewRequestsWithAValueShareAStatement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const few = 16
		db := newFake()
		db.before = after("grant", 10*time.Millisecond)
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: time.Hour, MaxInFlight: 1})
		defer b.close()
		var wg sync.WaitGroup
		for i := range 5 * few {
			wg.Go(func() {
				lease, err := b.Lock(t.Context(), fmt.Sprint("name ", i), sqllock.Value([]byte("v")))
				if err != nil {
					t.Error(err)
					return
				}
				b.unlock(lease)
			})
		}
		wg.Wait()
		if n := db.largest["grant"]; n != few {
			t.Errorf("%d of them came in one statement, want %d", n, few)
		}
	})
}
