package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
)

// standing has somebody wait for a name, after all who wait for it already. The lease
// comes on the channel.
func queuedWaiter(t *testing.T, b *bench, ctx context.Context, name string) <-chan *sqllock.Lease {
	t.Helper()
	got := make(chan *sqllock.Lease, 1)
	before := b.db.waiters(name)
	go func() {
		lease, err := b.Lock(ctx, name)
		if err != nil && ctx.Err() == nil {
			t.Errorf("Lock(%q): %v", name, err)
		}
		got <- lease
	}()
	for b.db.waiters(name) == before {
		time.Sleep(time.Millisecond)
	}
	return got
}

func TestWaitersOfAllProcessesAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		all := []*bench{newBench(t, db, nil), newBench(t, db, nil), newBench(t, db, nil)}
		for _, b := range all {
			defer b.close()
		}
		first := all[0].lock("a")
		var mu sync.Mutex
		var served []int
		var wg sync.WaitGroup
		for i := range 30 {
			b := all[i*i%3]
			got := queuedWaiter(t, b, t.Context(), "a")
			wg.Go(func() {
				lease := <-got
				mu.Lock()
				served = append(served, i)
				mu.Unlock()
				time.Sleep(10 * time.Millisecond)
				b.unlock(lease)
			})
		}
		all[0].unlock(first)
		wg.Wait()
		if !slices.IsSorted(served) || len(served) != 30 {
			t.Errorf("served in the order %v", served)
		}
	})
}

func TestAReleaseHandsOverToAWaiterOfItsProcessAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: 30 * time.Second})
		defer b.close()
		lease := b.lock("a")
		next := queuedWaiter(t, b, t.Context(), "a")
		before := db.count("line")
		began := time.Now()
		b.unlock(lease)
		second := <-next
		if took := time.Since(began); took != 0 {
			t.Errorf("the hand-over took %v", took)
		}
		if n := db.count("line") - before; n != 0 {
			t.Errorf("the waiter asked %d times", n)
		}
		if left := second.Remaining(); left > 5*time.Second {
			t.Errorf("the lease lasts %v, the row 5s", left)
		}
		time.Sleep(time.Minute) // it is renewed from then on
		if err := second.Context().Err(); err != nil || second.Token() <= lease.Token() {
			t.Errorf("token %d after %d: %v", second.Token(), lease.Token(), err)
		}
		b.unlock(second)
	})
}

// A caller that was handed a name and locks it again at once expects others before it. If there
// are none, the next time it does not.
func TestACallerThatWasHandedANameLooksForItsQueueFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b, other := newBench(t, db, nil), newBench(t, db, nil)
		defer b.close()
		defer other.close()
		held := other.lock("a")
		mine := queuedWaiter(t, b, t.Context(), "a")
		last := queuedWaiter(t, other, t.Context(), "a")
		other.unlock(held)
		lease := <-mine
		b.unlock(lease)
		// locks has b lock the name, which takes so many statements of each kind.
		locks := func(grants, entries int) <-chan *sqllock.Lease {
			t.Helper()
			got := make(chan *sqllock.Lease, 1)
			before, entered := db.count("grant"), db.count("line")
			go func() { got <- b.lock("a") }()
			synctest.Wait()
			if g, e := db.count("grant")-before, db.count("line")-entered; g != grants || e != entries {
				t.Errorf("Lock took %d grants and %d entries, want %d and %d", g, e, grants, entries)
			}
			return got
		}
		again := locks(0, 1)
		other.unlock(<-last)
		b.unlock(<-again)
		b.unlock(<-locks(0, 1)) // nobody waits any more
		b.unlock(<-locks(1, 0))
		other.unlock(other.lock("b"))
		time.Sleep(time.Second)
		b.unlock(<-locks(1, 0))
	})
}

func TestThePollSlowsDownWhileNothingChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b, holder := newBench(t, db, &sqllock.UniqueOptions{TTL: time.Hour}), newBench(t, db, &sqllock.UniqueOptions{TTL: time.Hour})
		defer b.close()
		defer holder.close()
		lease := holder.lock("a")
		var waiting []<-chan *sqllock.Lease
		for range 20 {
			waiting = append(waiting, queuedWaiter(t, b, t.Context(), "a"))
		}
		time.Sleep(10 * time.Second)
		looks, queues := db.count("look"), db.count("line")
		time.Sleep(time.Minute)
		if n := db.count("look") - looks; n > 121 {
			t.Errorf("20 waiters looked %d times in a minute", n)
		}
		if n := db.count("line") - queues; n > 60 {
			t.Errorf("20 tickets were renewed by %d statements in a minute", n)
		}
		holder.unlock(lease)
		for _, next := range waiting {
			b.unlock(<-next)
		}
	})
}

func TestAWaiterThatGivesUpLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b, other := newBench(t, db, nil), newBench(t, db, nil)
		defer b.close()
		defer other.close()
		lease := b.lock("a")
		ctx, cancel := context.WithCancel(t.Context())
		gone := queuedWaiter(t, b, ctx, "a")
		next := queuedWaiter(t, other, t.Context(), "a")
		cancel()
		if <-gone != nil {
			t.Error("a waiter that gave up got the name")
		}
		synctest.Wait()
		if n := db.waiters("a"); n != 1 {
			t.Errorf("%d stand in line", n)
		}
		b.unlock(lease)
		other.unlock(<-next)
		abandoned := db.count("abandon")
		time.Sleep(time.Hour)
		if n := db.count("abandon"); n != abandoned {
			t.Errorf("the ticket was taken away %d times more", n-abandoned)
		}
	})
}

func TestAClaimIsWantedWhileItsWaiterStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, nil)
		defer b.close()
		lease := b.lock("a")
		ctx, cancel := context.WithCancel(t.Context())
		gone, next := queuedWaiter(t, b, ctx, "a"), queuedWaiter(t, b, t.Context(), "a")
		leaves, stays := db.row("a").claims[0].Acq, db.row("a").claims[1].Acq
		db.set(func(f *fake) { f.before = failing("line", errDown) })
		time.Sleep(time.Hour) // for long nobody can ask for it
		if !b.Wants(leaves) || !b.Wants(stays) {
			t.Error("a claim is not wanted although somebody waits")
		}
		cancel()
		<-gone
		if b.Wants(leaves) || !b.Wants(stays) {
			t.Errorf("who has left is wanted: %v; who waits: %v", b.Wants(leaves), b.Wants(stays))
		}
		db.set(func(f *fake) { f.before = nil })
		b.unlock(lease)
		second := <-next
		if b.Wants(stays) {
			t.Error("who holds the name is wanted to wait for it")
		}
		b.unlock(second)
	})
}

func TestAWaiterWhoseClaimGotNoReplyIsGrantedOnce(t *testing.T) {
	for what, when := range map[string]string{"when it entered": "line", "when it was granted": "granted"} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := newFake()
				b := newBench(t, db, &sqllock.UniqueOptions{TTL: 30 * time.Second})
				defer b.close()
				lease := b.lock("a")
				silent := func(context.Context, string) error { return nil }
				if when == "line" {
					silent = failing("line", errNoReply)
				}
				db.set(func(f *fake) { f.after = silent })
				got := queuedWaiter(t, b, t.Context(), "a")
				if when == "granted" {
					db.set(func(f *fake) { f.after = failing("release", errNoReply) })
					go func() { _ = lease.Unlock(t.Context()) }()
					for db.waiters("a") > 0 {
						time.Sleep(time.Millisecond)
					}
				}
				db.set(func(f *fake) { f.after = nil })
				if when == "line" {
					b.unlock(lease)
				}
				second := <-got
				if row := db.row("a"); row.version != second.Token() {
					t.Errorf("the token is %d, that of the row %d", second.Token(), row.version)
				}
				time.Sleep(time.Minute)
				if err := second.Context().Err(); err != nil {
					t.Errorf("the lease is over: %v", context.Cause(second.Context()))
				}
				b.unlock(second)
				time.Sleep(time.Minute)
				if db.held("a") || db.waiters("a") > 0 {
					t.Error("something was left")
				}
			})
		})
	}
}

// What is undone again and again, in case a packet comes late, is undone with growing
// pauses.
func TestAWaiterLeavesTheQueueAtOnceDuringACleanup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b, other := newBench(t, db, nil), newBench(t, db, nil)
		defer b.close()
		defer other.close()
		db.set(func(f *fake) { f.after = failing("grant", errNoReply) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.Lock(ctx, "unclear"); err == nil {
			t.Fatal("it was granted without a reply")
		}
		db.set(func(f *fake) { f.after = nil })
		lease := other.lock("a")
		for range 10 {
			ctx, cancel := context.WithCancel(t.Context())
			gone := queuedWaiter(t, b, ctx, "a")
			time.Sleep(300 * time.Millisecond)
			cancel()
			<-gone
			time.Sleep(10 * time.Millisecond)
			if n := db.waiters("a"); n != 0 {
				t.Errorf("%d stand in line though nobody waits", n)
			}
		}
		other.unlock(lease)
	})
}

func TestADeadWaiterBlocksTheQueueForTheLifeOfItsClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b, dead := newBench(t, db, nil), newBench(t, db, nil)
		defer b.close()
		lease := b.lock("a")
		ctx, cancel := context.WithCancel(t.Context())
		gone := queuedWaiter(t, dead, ctx, "a")
		next := queuedWaiter(t, b, t.Context(), "a")
		db.set(func(f *fake) { f.before = failing("abandon", errDown) }) // as if it had been killed
		cancel()
		<-gone
		began := time.Now()
		b.unlock(lease)
		second := <-next
		if took := time.Since(began); took > 2*5*time.Second {
			t.Errorf("the next one waited for %v", took)
		}
		db.set(func(f *fake) { f.before = nil })
		b.unlock(second)
		dead.close()
	})
}

func TestAWaiterTellsOfTheCrashByWhichItGetsTheName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		var crashes atomic.Int32
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: time.Minute, Hooks: &sqllock.Hooks{Crashed: func(e sqllock.CrashedEvent) {
			if e.Name == "a" {
				crashes.Add(1)
			}
		}}})
		defer b.close()
		dead := newBench(t, db, &sqllock.UniqueOptions{TTL: 10 * time.Second})
		db.set(func(f *fake) { f.before = failing("renew", errDown) })
		lease := dead.lock("a")
		b.unlock(<-queuedWaiter(t, b, t.Context(), "a"))
		synctest.Wait()
		if n := crashes.Load(); n != 1 {
			t.Errorf("the crash was told of %d times", n)
		}
		db.set(func(f *fake) { f.before = nil })
		_ = lease.Unlock(t.Context())
		dead.close()
	})
}

func TestABargingWaiterHasNoClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{Barging: true})
		defer b.close()
		lease := b.lock("a")
		got := make(chan *sqllock.Lease)
		go func() { got <- b.lock("a") }()
		time.Sleep(time.Second)
		b.unlock(lease)
		b.unlock(<-got)
		if n := db.count("line"); n != 0 {
			t.Errorf("it stood in line %d times", n)
		}
	})
}

// holding locks a name and returns a context that carries the lease.
func holding(t *testing.T, b *bench, name string) (context.Context, *sqllock.Lease) {
	t.Helper()
	lease := b.lock(name)
	return lease.Context(), lease
}

func TestADeadlockEndsTheYoungestWaiter(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		t.Run(fmt.Sprint(n, " in the cycle"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := newFake()
				all := []*bench{newBench(t, db, nil), newBench(t, db, nil)}
				type result struct {
					who   int
					lease *sqllock.Lease
					err   error
				}
				results := make(chan result, n)
				leases := make([]*sqllock.Lease, n)
				ctxs := make([]context.Context, n)
				for i := range n {
					ctxs[i], leases[i] = holding(t, all[i%2], fmt.Sprint("name ", i))
				}
				if n == 1 { // else it would re-enter
					ctxs[0] = sqllock.WithoutOwner(ctxs[0])
				}
				var closed time.Time
				for i := range n {
					go func() {
						lease, err := all[i%2].Lock(ctxs[i], fmt.Sprint("name ", (i+1)%n))
						results <- result{i, lease, err}
					}()
					time.Sleep(time.Second)
					closed = time.Now()
				}
				if took := time.Since(closed); took > 0 {
					t.Fatal(took)
				}
				for i := range n {
					r := <-results
					if i == 0 {
						if r.who != n-1 || !errors.Is(r.err, sqllock.ErrDeadlock) {
							t.Errorf("caller %d: %v; want that the youngest is told of the deadlock", r.who, r.err)
						}
						for k := range n {
							if !strings.Contains(fmt.Sprint(r.err), fmt.Sprintf("%q", fmt.Sprint("name ", k))) {
								t.Errorf("%v: does not name all of the cycle", r.err)
							}
						}
						if commas := strings.Count(fmt.Sprint(r.err), ", "); commas != n { // between them, and before the end
							t.Errorf("%v: %d commas", r.err, commas)
						}
					} else if r.err != nil {
						t.Errorf("caller %d: %v", r.who, r.err)
					}
					if r.lease != nil {
						all[r.who%2].unlock(r.lease)
					}
					all[r.who%2].unlock(leases[r.who])
				}
				for _, b := range all {
					b.close()
				}
			})
		})
	}
}

func TestADeadlockIsFoundWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, nil)
		defer b.close()
		ctx, lease := holding(t, b, "a")
		began := time.Now()
		_, err := b.Lock(sqllock.WithoutOwner(ctx), "a")
		if took := time.Since(began); took > time.Second || !errors.Is(err, sqllock.ErrDeadlock) {
			t.Errorf("after %v: %v", took, err)
		}
		b.unlock(lease)
	})
}

func TestOneDeadlockCheckRunsAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, nil)
		defer b.close()
		ctx, lease := holding(t, b, "a")
		var looking, most atomic.Int32
		db.set(func(f *fake) {
			f.before = func(ctx context.Context, kind string) error {
				if kind != "waits" {
					return nil
				}
				most.Store(max(most.Load(), looking.Add(1)))
				time.Sleep(3 * time.Second)
				looking.Add(-1)
				return nil
			}
		})
		if _, err := b.Lock(sqllock.WithoutOwner(ctx), "a"); !errors.Is(err, sqllock.ErrDeadlock) {
			t.Error(err)
		}
		if most.Load() != 1 {
			t.Errorf("%d looks at a time", most.Load())
		}
		b.unlock(lease)
	})
}

func TestAWaitWithoutACycleGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, nil)
		defer b.close()
		ctx, one := holding(t, b, "a")
		other := b.lock("b")
		got := make(chan *sqllock.Lease)
		go func() { // waits for b, whose holder waits for nothing
			lease, err := b.Lock(ctx, "b")
			if err != nil {
				t.Error(err)
			}
			got <- lease
		}()
		third := make(chan *sqllock.Lease)
		go func() { third <- b.lock("a") }() // waits for a, and carries nothing
		time.Sleep(time.Minute)
		b.unlock(other)
		b.unlock(<-got)
		b.unlock(one)
		b.unlock(<-third)
	})
}

func TestHandOversOfManyWaitersTakeNoMoreStatementsThanThoseOfFew(t *testing.T) {
	per := func(n int) (statements float64) {
		synctest.Test(t, func(t *testing.T) {
			db := newFake()
			b := newBench(t, db, &sqllock.UniqueOptions{TTL: time.Hour})
			defer b.close()
			lease := b.lock("a")
			var waiting []<-chan *sqllock.Lease
			for range n {
				waiting = append(waiting, queuedWaiter(t, b, t.Context(), "a"))
			}
			before := db.all()
			b.unlock(lease)
			for _, next := range waiting {
				b.unlock(<-next)
			}
			statements = float64(db.all()-before) / float64(n)
		})
		return statements
	}
	if few, many := per(5), per(500); many > 1.1*few || many > 4 {
		t.Errorf("%v statements for a hand-over to one of 500, %v to one of 5", many, few)
	}
}

// all returns how many statements have run.
func (f *fake) all() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range f.sent {
		n += k
	}
	return n
}

func TestALateRequestLeavesNoClaim(t *testing.T) {
	for what, end := range map[string]func(b *bench, lease *sqllock.Lease, cancel func(), got <-chan *sqllock.Lease){
		"when the name was handed over, used and given back": func(b *bench, lease *sqllock.Lease, _ func(), got <-chan *sqllock.Lease) {
			b.unlock(lease)
			b.unlock(<-got)
		},
		"when the waiter has gone": func(b *bench, lease *sqllock.Lease, cancel func(), got <-chan *sqllock.Lease) {
			cancel()
			<-got
			b.unlock(lease)
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := newFake()
				b := newBench(t, db, &sqllock.UniqueOptions{TTL: 30 * time.Second})
				defer b.close()
				lease := b.lock("a")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				got := queuedWaiter(t, b, ctx, "a")
				sent := db.count("line")
				db.set(func(f *fake) { f.before = after("line", time.Second) })
				time.Sleep(2 * time.Second) // now the ticket is asked for again, and the request is on its way
				if n := db.count("line") - sent; n != 0 {
					t.Fatalf("%d requests have arrived", n)
				}
				end(b, lease, cancel, got)
				time.Sleep(1500 * time.Millisecond) // it has arrived
				if db.waiters("a") > 0 || db.held("a") {
					t.Errorf("%d stand in line, held: %v", db.waiters("a"), db.held("a"))
				}
			})
		})
	}
}

func TestARequestThatWaitsForAnotherKeepsNobody(t *testing.T) {
	for what, leaves := range map[string]bool{"when the name is handed over": false, "when the waiter leaves": true} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := newFake()
				b, other := newBench(t, db, &sqllock.UniqueOptions{TTL: 30 * time.Second}), newBench(t, db, nil)
				defer b.close()
				defer other.close()
				lease, busy := b.lock("a"), other.lock("busy")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				got := queuedWaiter(t, b, ctx, "a")
				time.Sleep(1600 * time.Millisecond)
				db.set(func(f *fake) { f.before = after("line", time.Second) })
				next := make(chan *sqllock.Lease)
				go func() {
					lease, _ := b.Lock(t.Context(), "busy")
					next <- lease
				}()
				time.Sleep(400 * time.Millisecond) // the ticket is to be asked for again, behind the slow request
				sent := db.count("line")
				if began := time.Now(); leaves {
					cancel()
					<-got
					b.unlock(lease)
				} else {
					b.unlock(lease)
					second := <-got
					if took := time.Since(began); took > 0 {
						t.Errorf("handed over after %v", took)
					}
					b.unlock(second)
				}
				time.Sleep(1500 * time.Millisecond)
				if n := db.count("line") - sent; n != 1 || db.waiters("a") > 0 || db.held("a") {
					t.Errorf("%d requests, %d stand in line, held: %v", n, db.waiters("a"), db.held("a"))
				}
				other.unlock(busy)
				b.unlock(<-next)
			})
		})
	}
}

func TestAGrantToAClaimWhoseReplyWasLostIsConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: 30 * time.Second})
		defer b.close()
		db.set(func(f *fake) { // somebody who has died
			f.rows["a"] = &row{acq: driver.ID{1}, version: f.now(), until: f.now() + time.Second.Microseconds()}
		})
		got := queuedWaiter(t, b, t.Context(), "a")
		lost := 0
		db.set(func(f *fake) {
			f.after = func(_ context.Context, kind string) error {
				if kind == "line" && lost == 0 {
					lost++
					return errNoReply
				}
				return nil
			}
		})
		lease := <-got
		if n := db.count("renew alone"); lost != 1 || n != 1 {
			t.Errorf("%d replies were lost, the grant was confirmed %d times", lost, n)
		}
		b.unlock(lease)
	})
}

func TestThePollFindsAGrantWithoutAPush(t *testing.T) {
	others := map[driver.ID]*reader{{2}: {version: 7, until: 1 << 60}}
	for what, c := range map[string]struct {
		shared bool
		row    row           // as the waiter finds it
		change func(x *row)  // what somebody does who hands nothing over
		within time.Duration // shorter than the time between two renewals of a ticket
	}{
		"a name that is free": {false, row{acq: driver.ID{1}, version: 7, until: 1 << 60},
			func(x *row) { x.acq, x.version = driver.ID{}, 8 }, 600 * time.Millisecond},
		"readers that may be entered with": {true, row{acq: driver.ID{1}, version: 6, until: 1 << 60},
			func(x *row) { x.acq, x.version, x.readers = driver.ID{}, 7, others }, 600 * time.Millisecond},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := newFake()
				b := newBench(t, db, &sqllock.UniqueOptions{TTL: 30 * time.Second})
				defer b.close()
				db.set(func(f *fake) { f.rows["a"] = &c.row })
				got := make(chan *sqllock.Lease)
				lock := b.lock
				if c.shared {
					lock = func(name string, _ ...sqllock.LockOption) *sqllock.Lease { return b.rlock(t.Context(), name) }
				}
				go func() { got <- lock("a") }()
				time.Sleep(1680 * time.Millisecond) // the ticket was just renewed
				db.set(func(f *fake) { c.change(f.rows["a"]) })
				began := time.Now()
				lease := <-got
				if took := time.Since(began); took > c.within {
					t.Errorf("it took %v", took)
				}
				b.unlock(lease)
			})
		})
	}
}

func TestThePollIsQuickAgainAfterAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: 30 * time.Second})
		defer b.close()
		db.set(func(f *fake) { f.rows["a"] = &row{acq: driver.ID{1}, version: 7, until: 1 << 60} })
		ctx, cancel := context.WithCancel(t.Context())
		got := queuedWaiter(t, b, ctx, "a")
		time.Sleep(10 * time.Second)
		db.set(func(f *fake) { f.rows["a"].acq, f.rows["a"].version = driver.ID{2}, 8 })
		looks := db.count("look")
		for db.count("look") == looks { // which sees it
			time.Sleep(time.Millisecond)
		}
		time.Sleep(40 * time.Millisecond)
		if n := db.count("look") - looks; n < 4 {
			t.Errorf("%d looks in 40ms after a change", n)
		}
		cancel()
		<-got
	})
}

func TestAClaimThatTheDatabaseRefusesIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, nil)
		defer b.close()
		lease := b.lock("a")
		db.set(func(f *fake) { f.before = failing("line", errDenied) })
		if _, err := b.Lock(t.Context(), "a"); !errors.Is(err, errDenied) {
			t.Errorf("Lock = %v", err)
		}
		db.set(func(f *fake) { f.before = nil })
		b.unlock(lease)
	})
}
