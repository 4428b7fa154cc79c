package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
)

// A caller who goes does not take the session, and all that it holds, with him.
func TestACallerThatGivesUpCostsNobodyALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSessionBench(t, 0)
		lease := b.lock("held")
		b.db.set(func() { b.db.slow["grant"] = ttl / 4 })
		ctx, cancel := context.WithTimeout(t.Context(), ttl/100)
		defer cancel()
		if _, err := b.locks.Lock(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock: %v", err)
		}
		b.db.set(func() { b.db.slow["grant"] = 0 })
		time.Sleep(ttl)
		if lease.Context().Err() != nil {
			t.Errorf("lost: %v", context.Cause(lease.Context()))
		}
		if n := b.db.held(); n != 1 {
			t.Errorf("%d locks are held", n)
		}
		b.unlock(b.lock("k"))
		b.unlock(lease)
		b.close()
	})
}

func TestALeaseOfASessionThatDoesNotAnswerIsLostByItsDeadlineAndLetGo(t *testing.T) {
	onSessions(t, func(b *sessionBench) {
		lease := b.lock("k")
		start := time.Now()
		b.db.set(func() { b.db.slow["renew"] = time.Hour })
		<-lease.Context().Done()
		if d := time.Since(start); d > ttl+time.Second {
			b.Errorf("lost after %v", d)
		}
		b.db.set(func() { b.db.slow["renew"] = 0 })
		time.Sleep(3 * ttl)
		if n := b.db.held(); n != 0 {
			b.Errorf("%d locks are held for nobody", n)
		}
		_ = lease.Unlock(b.Context())
		b.close()
	})
}

func TestALeaseThatSomebodyWantsBackIsLostAndLetGo(t *testing.T) {
	onSessions(t, func(b *sessionBench) {
		lease, other := b.lock("k"), b.lock("other")
		b.db.set(func() { // all of the acquisitions are unknown here, but these two
			for _, id := range b.db.acqs() {
				b.db.revoked[id] = true
			}
		})
		<-lease.Context().Done()
		<-other.Context().Done()
		var lost *sqllock.LostError
		if !errors.As(context.Cause(lease.Context()), &lost) || lost.Reason != sqllock.LostRevoked {
			b.Errorf("cause %v", context.Cause(lease.Context()))
		}
		time.Sleep(time.Second)
		if n := b.db.held(); n != 0 {
			b.Errorf("%d locks are held", n)
		}
		_, _ = lease.Unlock(b.Context()), other.Unlock(b.Context())
		b.close()
	})
}

func TestALeaseAtTheLimitOfItsMaxHoldHearsThatSomebodyWantsItBack(t *testing.T) {
	onSessions(t, func(b *sessionBench) {
		lease, err := b.locks.Lock(b.Context(), "k", sqllock.MaxHold(ttl*9/10))
		if err != nil {
			b.Fatal(err)
		}
		b.db.set(func() {
			for _, id := range b.db.acqs() {
				b.db.revoked[id] = true
			}
		})
		began := time.Now()
		<-lease.Context().Done()
		if took := time.Since(began); took > time.Second {
			b.Errorf("told after %v", took)
		}
		var lost *sqllock.LostError
		if err := lease.Unlock(b.Context()); !errors.As(err, &lost) || lost.Reason != sqllock.LostRevoked {
			b.Errorf("Unlock: %v", err)
		}
		b.close()
	})
}

func TestMaxHoldLetsALockOfASessionGo(t *testing.T) {
	onSessions(t, func(b *sessionBench) {
		lease, err := b.locks.Lock(b.Context(), "k", sqllock.MaxHold(3*ttl))
		if err != nil {
			b.Fatal(err)
		}
		start := time.Now()
		<-lease.Context().Done()
		if d := time.Since(start); d < 2*ttl || d > 3*ttl+time.Second {
			b.Errorf("lost after %v", d)
		}
		time.Sleep(time.Second)
		if n := b.db.held(); n != 0 {
			b.Errorf("%d locks are held", n)
		}
		if !b.db.dropped["k"] {
			b.Error("the driver was not told that the lease was lost: somebody may still work under it")
		}
		_ = lease.Unlock(b.Context())
		b.close()
	})
}

func TestCloseLeavesALockThatIsHeldToTheServer(t *testing.T) {
	onSessions(t, func(b *sessionBench) {
		lease := b.lock("k")
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		if err := b.locks.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			b.Errorf("Close: %v", err)
		}
		if !errors.Is(context.Cause(lease.Context()), sqllock.ErrClosed) || b.db.held() != 1 {
			b.Errorf("cause %v, %d held", context.Cause(lease.Context()), b.db.held())
		}
		time.Sleep(2 * ttl)
		if b.db.held() != 0 || b.db.open() != 0 {
			b.Errorf("%d locks and %d sessions are left", b.db.held(), b.db.open())
		}
	})
}

func TestMoreLocksThanTheServerShouldKeepAreRefused(t *testing.T) {
	for most := 1; most <= 2; most++ {
		synctest.Test(t, func(t *testing.T) {
			b := newSessionBench(t, 0)
			b.db.maxLocks = most
			var leases []*sqllock.Lease
			for i := range most {
				leases = append(leases, b.lock(fmt.Sprint(i)))
			}
			if _, err := b.locks.Lock(t.Context(), "one more"); !errors.Is(err, sqllock.ErrTooManyLocks) {
				t.Errorf("Lock: %v", err)
			}
			for _, lease := range leases {
				b.unlock(lease)
			}
			b.close()
		})
	}
}

func TestHalfOfTheSessionsWaitInTheDatabaseAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const maxConns = 4
		holder := newSessionBench(t, maxConns)
		b := newSessionBenchOn(t, holder.db, maxConns)
		b.db.waits = true
		var leases []*sqllock.Lease
		var wg sync.WaitGroup
		for i := range maxConns {
			name := fmt.Sprint(i)
			leases = append(leases, holder.lock(name))
			wg.Go(func() { b.unlock(b.lock(name)) })
		}
		time.Sleep(10 * time.Second)
		for _, lease := range leases {
			holder.unlock(lease)
		}
		wg.Wait()
		b.db.set(func() {
			if b.db.mostWaiting != maxConns/2 {
				t.Errorf("%d waited in the database", b.db.mostWaiting)
			}
		})
		b.close()
		holder.close()
	})
}

func TestAnUnlockThatFailsIsTriedAgain(t *testing.T) {
	onSessions(t, func(b *sessionBench) {
		lease := b.lock("k")
		b.db.set(func() { b.db.failing["release"] = errDeadlock })
		go func() {
			time.Sleep(50 * time.Millisecond)
			b.db.set(func() { delete(b.db.failing, "release") })
		}()
		b.unlock(lease)
		if n := b.db.held(); n != 0 {
			b.Errorf("%d locks are held", n)
		}
		b.close()
	})
}

func TestTheTTLOfASessionIsOneForAllLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSessionBench(t, 0)
		if _, err := b.locks.Lock(t.Context(), "k", sqllock.TTL(2*ttl)); !errors.Is(err, sqllock.ErrInvalidOption) {
			t.Errorf("Lock: %v", err)
		}
		b.close()
	})
}

// acqs are all acquisitions that were renewed; the caller holds mu.
func (f *fakeSessions) acqs() (all []driver.ID) {
	for id := range f.seen {
		all = append(all, id)
	}
	return all
}

// A process that was paused finds that the answer came when the time for it was over,
// and that there is no time to give it back either.
func TestALockThatCannotBeGivenBackWhenItsAnswerComesIsGivenBackLater(t *testing.T) {
	onSessions(t, func(b *sessionBench) {
		b.db.set(func() {
			b.db.slow["grant"] = ttl / 2
			b.db.failing["release"] = errDown
		})
		if lease, err := b.locks.TryLock(b.Context(), "a"); err == nil {
			b.Fatalf("%q was granted in half a TTL", lease.Name())
		}
		time.Sleep(ttl)
		b.db.set(func() {
			delete(b.db.slow, "grant")
			delete(b.db.failing, "release")
		})
		time.Sleep(time.Second)
		b.unlock(b.lockWithin(time.Second, "a"))
		b.close()
	})
}

func TestALockWhoseAnswerComesLateIsGrantedWhenItIsAskedForAgain(t *testing.T) {
	onSessions(t, func(b *sessionBench) {
		b.db.set(func() { b.db.slow["grant"] = ttl / 2 })
		b.unlock(b.lockWithin(ttl, "a"))
		b.close()
	})
}

func TestSessionsThatCannotBeOpenedUseUpNoRoom(t *testing.T) {
	onSessions(t, func(b *sessionBench) {
		b.db.set(func() { b.db.failing["session"] = errDown })
		for range 30 {
			if lease, err := b.locks.TryLock(b.Context(), "a"); err == nil {
				b.Fatalf("%q was granted without a session", lease.Name())
			}
		}
		b.db.set(func() { delete(b.db.failing, "session") })
		b.unlock(b.lock("a"))
		b.close()
	})
}

func TestEveryHolderIsToldThatItsSessionDoesNotAnswerBeforeItsLeaseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const leases = 8
		db := newFakeSessions()
		start := time.Now()
		var mu sync.Mutex
		known, lost := make(map[string]time.Duration), make(map[string]sqllock.Reason)
		l, err := sqllock.NewSessionsWithClock(db, func() time.Duration { return time.Since(start) },
			&sqllock.ForUpdateOptions{TTL: ttl, Reaper: &sqllock.ReaperOptions{Off: true}, Hooks: &sqllock.Hooks{
				Jeopardy: func(e sqllock.JeopardyEvent) {
					mu.Lock()
					defer mu.Unlock()
					if _, ok := known[e.Name]; !ok {
						known[e.Name] = e.Remaining
					}
				},
				Lost: func(e sqllock.LostEvent) {
					mu.Lock()
					defer mu.Unlock()
					lost[e.Name] = e.Err.Reason
				},
			}}, leases)
		if err != nil {
			t.Fatal(err)
		}
		for i := range leases {
			if _, err := l.Lock(t.Context(), fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		db.set(func() { db.slow["renew"] = time.Hour })
		time.Sleep(2 * ttl)
		mu.Lock()
		for i := range leases {
			name := fmt.Sprint(i)
			if known[name] <= 0 {
				t.Errorf("%s: it is told %v before the loss", name, known[name])
			}
			if lost[name] != sqllock.LostUnreachable {
				t.Errorf("%s: lost because %v", name, lost[name])
			}
		}
		mu.Unlock()
		db.set(func() { db.slow["renew"] = 0 })
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
