package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
)

func (b *bench) rlock(ctx context.Context, name string) *sqllock.Lease {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, testTimeout)
	defer cancel()
	lease, err := b.RLock(ctx, name)
	if err != nil {
		b.t.Fatalf("RLock(%q): %v", name, err)
	}
	return lease
}

// locking calls Lock on a goroutine of its own, and returns what waits for it.
func (b *bench) locking(name string) func() *sqllock.Lease {
	type result struct {
		lease *sqllock.Lease
		err   error
	}
	got := make(chan result, 1)
	go func() {
		ctx, cancel := context.WithTimeout(b.t.Context(), testTimeout)
		defer cancel()
		lease, err := b.Lock(ctx, name)
		got <- result{lease, err}
	}()
	return func() *sqllock.Lease {
		b.t.Helper()
		r := <-got
		if r.err != nil {
			b.t.Fatalf("Lock(%q): %v", name, r.err)
		}
		return r.lease
	}
}

// visitors are callers that come one after the other and stay for a second each.
type visitors struct {
	b       *bench
	wg      sync.WaitGroup
	mu      sync.Mutex
	holding []string
	groups  [][]string // who was in together, at most
}

// come lets a caller come: one whose name begins with r is a reader.
func (v *visitors) come(who string) {
	lock := v.b.Lock
	if strings.HasPrefix(who, "r") {
		lock = v.b.RLock
	}
	v.wg.Go(func() {
		ctx, cancel := context.WithTimeout(v.b.t.Context(), testTimeout)
		defer cancel()
		lease, err := lock(ctx, "a")
		if err != nil {
			v.b.t.Error(err)
			return
		}
		v.mu.Lock()
		v.holding = append(v.holding, who)
		v.serve(slices.Sorted(slices.Values(v.holding)))
		v.mu.Unlock()
		time.Sleep(time.Second)
		v.mu.Lock()
		v.holding = slices.DeleteFunc(v.holding, func(x string) bool { return x == who })
		v.mu.Unlock()
		v.b.unlock(lease)
	})
	synctest.Wait()
}

// serve notes who is in. Those who came in at one time have no order.
func (v *visitors) serve(holding []string) {
	if n := len(v.groups); n > 0 && !slices.ContainsFunc(v.groups[n-1], func(x string) bool { return !slices.Contains(holding, x) }) {
		v.groups = v.groups[:n-1]
	}
	v.groups = append(v.groups, holding)
}

func TestReadersAndWritersOfOneProcessAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newFake(), &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		v := visitors{b: b}
		first := b.lock("a")
		for _, who := range []string{"r1", "r2", "w3", "r4", "w5", "w6", "r7", "r8", "r9"} {
			v.come(who)
		}
		b.unlock(first)
		v.wg.Wait()
		want := "[[r1 r2] [w3] [r4] [w5] [w6] [r7 r8 r9]]"
		if got := fmt.Sprint(v.groups); got != want {
			t.Errorf("served %q, want %q", got, want)
		}
		if n := b.QueueLen(); n != 0 {
			t.Errorf("%d names are kept in memory when nobody holds or waits", n)
		}
	})
}

func TestReadersThatKeepComingDoNotStarveAWriterOfTheirProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newFake(), &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		v := visitors{b: b}
		v.come("r0")
		time.Sleep(time.Second / 2)
		v.come("w")
		for i := range 20 { // each comes before the one before it has gone
			v.come(fmt.Sprint("r", i+1))
			time.Sleep(time.Second / 10)
		}
		v.wg.Wait()
		if !slices.Equal(v.groups[1], []string{"w"}) {
			t.Errorf("served %v, want w second", v.groups)
		}
	})
}

func TestAWriterDoesNotAskWhileItsOwnProcessReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		one, two := b.rlock(t.Context(), "a"), b.rlock(t.Context(), "a")
		writer := b.locking("a")
		synctest.Wait()
		sent := db.count("grant")
		time.Sleep(ttl)
		b.unlock(one)
		time.Sleep(ttl)
		if n := db.count("grant") - sent; n != 0 {
			t.Errorf("%d requests were sent", n)
		}
		b.unlock(two)
		b.unlock(writer())
	})
}

func TestAWriterThatGivesUpLetsInTheReadersBehindIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newFake(), &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		first := b.rlock(t.Context(), "a")
		gaveUp := make(chan error, 1)
		go func() {
			_, err := b.Lock(t.Context(), "a", sqllock.Wait(5*time.Second))
			gaveUp <- err
		}()
		synctest.Wait()
		began := time.Now()
		second := b.rlock(t.Context(), "a")
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("the reader behind the writer was in after %v", took)
		}
		var held *sqllock.HeldError
		if err := <-gaveUp; !errors.As(err, &held) || !held.Shared {
			t.Errorf("the writer got %v, want that the name is held shared", err)
		}
		b.unlock(first)
		b.unlock(second)
	})
}

func TestReadersAreRenewedEachAndTheNameIsFreeAfterTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b, other := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl}), newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		defer other.close()
		var readers []*sqllock.Lease
		for range 3 {
			readers = append(readers, b.rlock(t.Context(), "a"))
		}
		time.Sleep(5 * ttl)
		for i, lease := range readers {
			if n := db.readers("a"); n != len(readers)-i || lease.Context().Err() != nil {
				t.Errorf("%d readers are known of %d, cause %v", n, len(readers)-i, context.Cause(lease.Context()))
			}
			var held *sqllock.HeldError
			if _, err := other.TryLock(t.Context(), "a"); !errors.As(err, &held) || !held.Shared {
				t.Errorf("TryLock beside a reader = %v", err)
			}
			b.unlock(lease)
		}
		other.unlock(other.lock("a"))
	})
}

func TestAWriterWakesWhenTheLastReaderOfAnotherProcessExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		reading := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		lease := reading.rlock(t.Context(), "a")
		_ = closeAtOnce(reading.Locker) // it renews no more
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl, RetryMin: 7 * time.Minute, RetryMax: time.Hour})
		defer b.close()
		began := time.Now()
		next := b.lock("a")
		if took := time.Since(began); took > ttl+10*time.Millisecond {
			t.Errorf("the writer had the name after %v, with a TTL of %v", took, ttl)
		}
		if next.Token() <= lease.Token() {
			t.Errorf("token %d after the reader's %d", next.Token(), lease.Token())
		}
		b.unlock(next)
	})
}

func TestALostReaderIsInNobodysWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		lost, kept := b.rlock(t.Context(), "a"), b.rlock(t.Context(), "a")
		db.set(func(f *fake) { // one of them is taken out by hand
			for acq := range f.rows["a"].readers {
				if acq.String() == lost.Owner() {
					delete(f.rows["a"].readers, acq)
				}
			}
		})
		writer := b.locking("a")
		<-lost.Context().Done()
		wantReason(t, context.Cause(lost.Context()), sqllock.LostTaken)
		if err := context.Cause(kept.Context()); err != nil {
			t.Errorf("the other reader was lost too: %v", err)
		}
		b.unlock(kept)
		lease := writer() // though nobody has unlocked the lost one
		wantReason(t, lost.Unlock(t.Context()), sqllock.LostTaken)
		b.unlock(lease)
	})
}

// What the database gives away tells that this process is wrong about others.
func TestWhatTheDatabaseGrantsEndsWhatItExcludes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		forget := func(f *fake) { *f.rows["a"] = row{version: f.rows["a"].version} }
		readers := []*sqllock.Lease{b.rlock(t.Context(), "a"), b.rlock(t.Context(), "a")}
		db.set(forget)
		writer, err := b.TryLock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		for _, lease := range readers {
			wantReason(t, context.Cause(lease.Context()), sqllock.LostTaken)
		}
		db.set(forget)
		reader, err := b.TryRLock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		wantReason(t, context.Cause(writer.Context()), sqllock.LostTaken)
		again, err := b.TryRLock(t.Context(), "a")
		if err != nil || reader.Context().Err() != nil {
			t.Errorf("a second reader: %v; the first: %v", err, context.Cause(reader.Context()))
		}
		b.unlock(reader)
		b.unlock(again)
	})
}

func TestReadersThatWaitAskOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		occupy(db, "a", time.Minute)
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl, RetryMin: time.Second, RetryMax: time.Second})
		defer b.close()
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { b.unlock(b.rlock(t.Context(), "a")) })
		}
		wg.Wait()
		if got := db.count("grant"); got > 2*60+100+10 {
			t.Errorf("%d requests by 100 readers in a minute of one request per second", got)
		}
	})
}
