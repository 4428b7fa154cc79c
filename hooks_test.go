package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/testlog"
)

// contention are hooks that write down who waits, who is skipped and who is next. They run on
// one goroutine, and are read when their Locker is closed.
type contention struct{ events []string }

func (c *contention) add(format string, args ...any) {
	c.events = append(c.events, fmt.Sprintf(format, args...))
}

func (c *contention) options() *sqllock.UniqueOptions {
	return &sqllock.UniqueOptions{TTL: ttl, Label: "label", Hooks: &sqllock.Hooks{
		Waiting: func(e sqllock.WaitingEvent) {
			c.add("waiting %s %s %v for %s", e.Owner, e.Name, e.Shared, e.Held.Owner)
		},
		Skipped:  func(e sqllock.SkippedEvent) { c.add("skipped %s %s %v by %s", e.Owner, e.Name, e.Shared, e.Held.Owner) },
		Acquired: func(e sqllock.AcquiredEvent) { c.add("acquired %s after %v, queued %v", e.Owner, e.Waited, e.Queued) },
		HandedOver: func(e sqllock.HandedOverEvent) {
			c.add("handed over by %s to %d", e.Owner, e.Waiters)
		},
	}}
}

func (c *contention) want(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(c.events, want) {
		t.Errorf("hooks told %q, want %q", c.events, want)
	}
}

// lockAs locks as an owner, in the background.
func (b *bench) lockAs(owner, name string, shared bool) <-chan *sqllock.Lease {
	b.t.Helper()
	got := make(chan *sqllock.Lease, 1)
	ctx := sqllock.WithOwner(b.t.Context(), owner)
	lock := b.Lock
	if shared {
		lock = b.RLock
	}
	go func() {
		lease, err := lock(ctx, name)
		if err != nil {
			b.t.Error(err)
		}
		got <- lease
	}()
	time.Sleep(50 * time.Millisecond) // until it waits
	return got
}

func TestHooksTellWhoWaitsForHowLongAndWhoIsNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c contention
		b := newBench(t, newFake(), c.options())
		first := <-b.lockAs("first", "a", false)
		second := b.lockAs("second", "a", false)
		third, fourth := b.lockAs("third", "a", true), b.lockAs("fourth", "a", true)
		time.Sleep(time.Second)
		b.unlock(first)
		time.Sleep(time.Second)
		b.unlock(<-second)
		for _, reader := range []<-chan *sqllock.Lease{third, fourth} {
			b.unlock(<-reader)
		}
		b.close()
		slices.Sort(c.events) // two readers enter in any order
		c.want(t, "acquired first after 0s, queued 0s", "acquired fourth after 2.05s, queued 2.05s", "acquired second after 1.15s, queued 1.15s",
			"acquired third after 2.1s, queued 2.1s", "handed over by first to 1", "handed over by second to 2",
			"waiting fourth a true for first", "waiting second a false for first", "waiting third a true for first")
	})
}

func TestHooksTellThatAnotherLockerIsNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c, other contention
		db := newFake()
		b, x := newBench(t, db, c.options()), newBench(t, db, other.options())
		lease := <-b.lockAs("first", "a", false)
		next := x.lockAs("second", "a", false)
		time.Sleep(time.Hour) // it waits, and says so once
		b.unlock(lease)
		b.close()
		x.unlock(<-next)
		x.close()
		c.want(t, "acquired first after 0s, queued 0s", "handed over by first to 1")
		if len(other.events) != 2 || other.events[0] != "waiting second a false for first" {
			t.Errorf("of the other Locker hooks told %q", other.events)
		}
	})
}

func TestHooksTellOfCallsThatFailAndOfRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []string
		add := func(format string, args ...any) { events = append(events, fmt.Sprintf(format, args...)) }
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl, Hooks: &sqllock.Hooks{
			Waiting: func(e sqllock.WaitingEvent) { add("waiting %s", e.Name) },
			Skipped: func(e sqllock.SkippedEvent) { add("skipped %s", e.Name) },
			Failed: func(e sqllock.FailedEvent) {
				add("failed %s %v held %v canceled %v", e.Name, e.Queued, errors.Is(e.Err, sqllock.ErrHeld), errors.Is(e.Err, context.Canceled))
			},
			Renewed: func(e sqllock.RenewedEvent) { add("renewed %s", e.Name) },
		}})
		lease := b.lock("a")
		if _, err := b.Lock(t.Context(), "a", sqllock.Wait(time.Second)); !errors.Is(err, sqllock.ErrHeld) {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.RLock(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		canceled, cancelNow := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancelNow)
		if _, err := b.Lock(canceled, "a"); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if _, err := b.TryLock(t.Context(), "a"); !errors.Is(err, sqllock.ErrHeld) {
			t.Error(err)
		}
		time.Sleep(ttl / 2) // the lease is 3 seconds old
		db.set(func(f *fake) { f.before = failing("grant", errDenied) })
		if _, err := b.TryLock(t.Context(), "c"); err == nil {
			t.Error("no error")
		}
		db.set(func(f *fake) { f.before = nil })
		b.unlock(lease)
		b.close()
		renewals := 0
		events = slices.DeleteFunc(events, func(e string) bool {
			if e == "renewed a" {
				renewals++
			}
			return e == "renewed a"
		})
		want := []string{
			"waiting a", "failed a 1s held true canceled false", "waiting a", "failed a 1s held false canceled false",
			"waiting a", "failed a 1s held false canceled true", "skipped a", "failed c 0s held false canceled false",
		}
		if !slices.Equal(events, want) || renewals < 1 || renewals != db.count("renew") {
			t.Errorf("hooks told %q, want %q; %d renewals of %d", events, want, renewals, db.count("renew"))
		}
	})
}

func TestACallThatAsksAgainAndAgainReportsItsWaitOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c contention
		o := c.options()
		o.Barging = true
		b := newBench(t, newFake(), o)
		holder := newBench(t, b.db, nil)
		lease := holder.lock("a")
		next := b.lockAs("second", "a", false)
		for range 100 {
			time.Sleep(lease.Remaining() / 2)
		}
		b.unlock(lease)
		holder.close()
		b.unlock(<-next)
		b.close()
		if len(c.events) != 2 || c.events[0] != "waiting second a false for "+lease.Owner() {
			t.Errorf("hooks told %q", c.events)
		}
	})
}

func TestACallThatDoesNotWaitIsReportedAsSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c contention
		b := newBench(t, newFake(), c.options())
		lease := <-b.lockAs("holder", "a", false)
		ctx := sqllock.WithOwner(t.Context(), "late")
		if _, err := b.TryLock(ctx, "a"); !errors.Is(err, sqllock.ErrHeld) {
			t.Error(err)
		}
		if _, err := b.TryRLock(ctx, "a"); !errors.Is(err, sqllock.ErrHeld) {
			t.Error(err)
		}
		if ran, err := b.TryDo(ctx, "a", func(context.Context, *sqllock.Lease) error { return nil }); ran || err != nil {
			t.Error(ran, err)
		}
		again, err := b.TryLock(lease.Context(), "a") // a re-entry
		if err != nil {
			t.Fatal(err)
		}
		b.unlock(again)
		b.unlock(lease)
		b.unlock(b.lock("a"))
		b.close()
		skipped := "skipped late a false by holder"
		c.want(t, "acquired holder after 0s, queued 0s", skipped, "skipped late a true by holder", skipped, c.events[len(c.events)-1])
	})
}

func TestAHookOfAWaiterThatBlocksOrPanicsDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		hooks := &sqllock.Hooks{
			Waiting:    func(sqllock.WaitingEvent) { <-release },
			Skipped:    func(sqllock.SkippedEvent) { panic("hook") },
			HandedOver: func(sqllock.HandedOverEvent) { panic("hook") },
		}
		b := newBench(t, newFake(), &sqllock.UniqueOptions{TTL: ttl, Hooks: hooks, Logger: slog.New(slog.DiscardHandler)})
		lease := b.lock("a")
		next := queuedWaiter(t, b, t.Context(), "a")
		for range 10 {
			if _, err := b.TryLock(t.Context(), "a"); !errors.Is(err, sqllock.ErrHeld) {
				t.Error(err)
			}
			time.Sleep(ttl)
		}
		if lease.Remaining() <= 0 {
			t.Error("the lease was lost")
		}
		began := time.Now()
		b.unlock(lease)
		b.unlock(<-next)
		if took := time.Since(began); took > 0 {
			t.Errorf("the next one got the name after %v", took)
		}
		close(release)
		b.close()
	})
}

// skip calls TryLock of a name that is held.
func (b *bench) skip(name string, times int) {
	b.t.Helper()
	for range times {
		if _, err := b.TryLock(b.t.Context(), name); !errors.Is(err, sqllock.ErrHeld) {
			b.t.Fatal(err)
		}
	}
}

func TestEventsBeyondThoseThatMayWaitAreDroppedAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mayWait, dropped = 16384, 7
		var log testlog.Text
		calls, release := 0, make(chan struct{})
		b := newBench(t, newFake(), &sqllock.UniqueOptions{
			TTL: time.Hour, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Hooks: &sqllock.Hooks{Skipped: func(sqllock.SkippedEvent) {
				if calls++; calls == 1 || calls == 51 {
					<-release
				}
			}},
		})
		lease := b.lock("a")
		b.skip("a", 1)
		synctest.Wait() // the hook runs
		b.skip("a", 100)
		release <- struct{}{}
		synctest.Wait() // the hook runs again, and 50 events wait
		b.skip("a", mayWait-50+dropped)
		release <- struct{}{}
		synctest.Wait()
		b.skip("a", 1)
		b.unlock(lease)
		b.close()
		if want := 101 + mayWait - 50 + 1; calls != want {
			t.Errorf("the hook was called %d times, want %d", calls, want)
		}
		if text := log.String(); strings.Count(text, "events dropped") != 1 || !strings.Contains(text, fmt.Sprint("count=", dropped)) {
			t.Errorf("logged: %s", text)
		}
	})
}

func TestCloseCallsTheHooksOfTheEventsThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, release := 0, make(chan struct{})
		b := newBench(t, newFake(), &sqllock.UniqueOptions{TTL: time.Hour, Hooks: &sqllock.Hooks{Skipped: func(sqllock.SkippedEvent) {
			calls++
			<-release
		}}})
		lease := b.lock("a")
		b.skip("a", 1)
		synctest.Wait() // the hook runs, and the next two events wait
		if calls != 1 {
			t.Errorf("the hook was called %d times for one event", calls)
		}
		b.skip("a", 2)
		b.unlock(lease)
		time.AfterFunc(time.Second, func() { close(release) })
		b.close()
		if calls != 3 {
			t.Errorf("the hook was called %d times, want 3", calls)
		}
	})
}

func TestHooksOfManyCallersAreCalledInTheOrderOfTheirEvents(t *testing.T) {
	const callers, cycles = 32, 50
	last, n := make(map[string]int64), 0
	b := newBench(t, newFake(), &sqllock.UniqueOptions{TTL: time.Hour, Hooks: &sqllock.Hooks{
		Acquired: func(e sqllock.AcquiredEvent) {
			if n++; last[e.Name] != 0 {
				t.Errorf("acquired %s with the token %d before the Unlock of %d was told", e.Name, e.Token, last[e.Name])
			}
			last[e.Name] = e.Token
		},
		Unlocked: func(e sqllock.UnlockedEvent) {
			if n++; last[e.Name] != e.Token {
				t.Errorf("unlocked %s with the token %d, the last one acquired was %d", e.Name, e.Token, last[e.Name])
			}
			last[e.Name] = 0
		},
	}})
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for range cycles {
				b.unlock(b.lock(fmt.Sprint(caller)))
			}
		})
	}
	wg.Wait()
	b.close() // delivers what waits
	if n != 2*callers*cycles {
		t.Errorf("%d events were told, want %d", n, 2*callers*cycles)
	}
}

func TestHooksOfACycleAllocateNothing(t *testing.T) {
	allocs := func(hooks *sqllock.Hooks) float64 {
		b := newBench(t, newFake(), &sqllock.UniqueOptions{TTL: time.Hour, Hooks: hooks})
		defer b.close()
		return testing.AllocsPerRun(2000, func() { b.unlock(b.lock("a")) })
	}
	hooks := &sqllock.Hooks{Acquired: func(sqllock.AcquiredEvent) {}, Unlocked: func(sqllock.UnlockedEvent) {}}
	if without, with := allocs(nil), allocs(hooks); with > without+0.9 { // AllocsPerRun rounds down
		t.Errorf("a cycle with hooks allocates %.0f times, without %.0f times", with, without)
	}
}

// Three calls of one owner wait for a stranger, one of them to share the name. The first is granted
// the name, and the others re-enter.
func TestEachWaitThatHooksHearOfEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		occupy(db, "a", time.Second)
		waits, ends := make(map[bool]int), make(map[bool]int) // by whether the event says shared
		reentered := 0
		end := func(shared bool, queued time.Duration) {
			if queued > 0 {
				ends[shared]++
			}
		}
		b := newBench(t, db, &sqllock.UniqueOptions{Hooks: &sqllock.Hooks{
			Waiting:   func(e sqllock.WaitingEvent) { waits[e.Shared]++ },
			Acquired:  func(e sqllock.AcquiredEvent) { end(e.Shared, e.Queued) },
			Reentered: func(e sqllock.ReenteredEvent) { reentered++; end(e.Shared, e.Queued) },
			Failed:    func(e sqllock.FailedEvent) { end(e.Shared, e.Queued) },
		}})
		first, second, third := b.lockAs("x", "a", false), b.lockAs("x", "a", false), b.lockAs("x", "a", true)
		for _, lease := range []*sqllock.Lease{<-first, <-second, <-third} {
			b.unlock(lease)
		}
		b.close()
		want := map[bool]int{false: 2, true: 1}
		if !maps.Equal(waits, want) || !maps.Equal(ends, want) || reentered != 2 {
			t.Errorf("waits %v and ends %v, want %v; %d re-entries", waits, ends, want, reentered)
		}
	})
}
