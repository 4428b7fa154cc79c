package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/netproxy"
	"github.com/sqllock/sqllock/internal/testdb"
)

func wantReason(t *testing.T, err error, reason sqllock.Reason) {
	t.Helper()
	var lost *sqllock.LostError
	if !errors.As(err, &lost) || lost.Reason != reason {
		t.Errorf("got %v, want a LostError because it was %s", err, reason)
	}
}

func TestMaxHoldEndsALeaseThatIsRenewedAndNotBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		const maxHold = 25 * time.Second
		start := time.Now()
		lease := b.lock("a", sqllock.MaxHold(maxHold))
		<-lease.Context().Done()
		if held := time.Since(start); held > maxHold || held < maxHold-ttl/50 {
			t.Errorf("told after %v, want it a little before %v", held, maxHold)
		}
		if n := db.count("renew"); n < 5 || n > 9 {
			t.Errorf("%d renewals in %v with a TTL of %v", n, maxHold, ttl)
		}
		if over := time.Duration(db.row("a").until-start.UnixMicro()) * time.Microsecond; over > maxHold {
			t.Errorf("the database keeps the name for %v, %v after the grant at most", over, maxHold)
		}
		wantReason(t, lease.Unlock(t.Context()), sqllock.LostMaxHold)
	})
}

func TestAMaxHoldWithinTheTTLNeedsNoRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		lease := b.lock("a", sqllock.MaxHold(2*time.Second))
		if left := lease.Remaining(); left > 2*time.Second {
			t.Errorf("Remaining() = %v", left)
		}
		time.Sleep(2 * time.Second)
		if lease.Context().Err() == nil || db.count("renew") > 0 || db.held("a") {
			t.Errorf("after MaxHold: Err %v, %d renewals, held %v", lease.Context().Err(), db.count("renew"), db.held("a"))
		}
		wantReason(t, lease.Unlock(t.Context()), sqllock.LostMaxHold)
	})
}

// Nothing else happens at the end of a lease that is never renewed: the others have time.
func TestTheContextEndsAtMaxHoldBesideALongLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newFake(), &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		long := b.lock("long")
		const maxHold = 100 * time.Millisecond
		time.Sleep(2 * time.Second) // and is renewed in a second
		lease, began := b.lock("a", sqllock.MaxHold(maxHold)), time.Now()
		<-lease.Context().Done()
		if held := time.Since(began); held > maxHold {
			t.Errorf("told after %v, want %v", held, maxHold)
		}
		wantReason(t, lease.Unlock(t.Context()), sqllock.LostMaxHold)
		b.unlock(long)
	})
}

// A waiter learns late that another Locker has handed the name to it.
func TestMaxHoldCountsFromTheHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		other := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer other.close()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl, RetryMin: time.Second, RetryMax: time.Second})
		defer b.close()
		held := other.lock("a")
		got := make(chan *sqllock.Lease, 1)
		go func() {
			lease, err := b.Lock(t.Context(), "a", sqllock.MaxHold(3*time.Second))
			if err != nil {
				t.Errorf("Lock: %v", err)
			}
			got <- lease
		}()
		time.Sleep(1100 * time.Millisecond)
		other.unlock(held)
		since := time.Now()
		lease := <-got
		if lease == nil {
			return
		}
		late := time.Since(since)
		<-lease.Context().Done()
		if held := time.Since(since); late < 100*time.Millisecond || held > 3*time.Second {
			t.Errorf("it was known after %v, and ended after %v", late, held)
		}
		wantReason(t, lease.Unlock(t.Context()), sqllock.LostMaxHold)
	})
}

func TestALossBeforeMaxHoldSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		lease := b.lock("a", sqllock.MaxHold(ttl+time.Second))
		db.set(func(f *fake) { f.before = failing("renew", errDown) })
		<-lease.Context().Done()
		wantReason(t, lease.Unlock(t.Context()), sqllock.LostUnreachable)
	})
}

func TestTheLockDelayIsTheDatabasesAndNotTheHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const delay = time.Minute
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		kept := func() time.Duration {
			return time.Duration(db.row("a").until-time.Now().UnixMicro()) * time.Microsecond
		}
		lease := b.lock("a", sqllock.LockDelay(delay))
		if left := lease.Remaining(); left > sqllock.Trust(ttl) || kept() != ttl+delay {
			t.Errorf("Remaining() = %v, kept for %v", left, kept())
		}
		time.Sleep(ttl)
		if left := lease.Remaining(); left > ttl || left <= 0 || kept() < ttl/2+delay {
			t.Errorf("after renewals Remaining() = %v, kept for %v", left, kept())
		}
		db.set(func(f *fake) { f.before = failing("renew", errDown) })
		<-lease.Context().Done()
		wantReason(t, lease.Unlock(t.Context()), sqllock.LostUnreachable)
		synctest.Wait()
		if kept() < delay || db.count("abandon") > 0 {
			t.Errorf("after a loss the name is kept for %v, and %d times freed; want %v", kept(), db.count("abandon"), delay)
		}
		time.Sleep(kept())

		next := b.lock("a", sqllock.LockDelay(delay))
		b.unlock(next)
		if db.held("a") {
			t.Error("after a clean unlock the name is not free")
		}
	})
}

// A request whose reply was lost is asked about again. What the row has left then
// is partly the lock delay's, not the holder's.
func TestALateAnswerDoesNotCountTheLockDelayForTheHolder(t *testing.T) {
	for name, opt := range map[string]sqllock.LockOption{
		"LockDelay": sqllock.LockDelay(time.Minute), "MinHold": sqllock.MinHold(time.Minute + ttl),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := newFake()
				b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl, RetryMin: time.Second, RetryMax: time.Second})
				defer b.close()
				db.after = once("grant", errNoReply)
				lease := b.lock("a", opt)
				row := db.row("a")
				left := time.Duration(row.until-time.Now().UnixMicro())*time.Microsecond - time.Minute
				if db.count("grant") != 2 || lease.Remaining() > left {
					t.Errorf("after %d requests Remaining() = %v, the holder's part of the row is %v", db.count("grant"), lease.Remaining(), left)
				}
				b.unlock(lease)
			})
		})
	}
}

func TestMinHoldIsSaidToTheDatabaseWhateverEndsTheLease(t *testing.T) {
	const minHold = time.Hour
	ends := map[string]func(*testing.T, *bench, *sqllock.Lease){
		"an unlock": func(t *testing.T, b *bench, lease *sqllock.Lease) { b.unlock(lease) },
		"an unlock without a reply": func(t *testing.T, b *bench, lease *sqllock.Lease) {
			b.db.set(func(f *fake) { f.before = failing("release", errDown) })
			if err := lease.Unlock(t.Context()); err == nil {
				t.Error("Unlock did not tell of its failure")
			}
		},
		"a loss, and an unlock": func(t *testing.T, b *bench, lease *sqllock.Lease) {
			b.db.set(func(f *fake) { f.before = failing("renew", errDown) })
			<-lease.Context().Done()
			wantReason(t, lease.Unlock(t.Context()), sqllock.LostUnreachable)
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := newFake()
				b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
				defer b.close()
				start := time.Now()
				end(t, b, b.lock("a", sqllock.MinHold(minHold)))
				time.Sleep(time.Second) // what is done in the background is done
				db.set(func(f *fake) { f.before = nil })
				if db.row("a").notBefore != start.Add(minHold).UnixMicro() && db.row("a").until < start.Add(minHold).UnixMicro() {
					t.Errorf("the name is kept until %v, want %v", time.UnixMicro(db.row("a").notBefore), start.Add(minHold))
				}
				lease := b.lock("a")
				if waited := time.Since(start); waited < minHold || waited > minHold+time.Second {
					t.Errorf("the next holder came after %v, want %v", waited, minHold)
				}
				b.unlock(lease)
			})
		})
	}
}

func TestANameThatIsHandedOverIsKeptForMinHoldIfTheNewHolderDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, minHold := range []time.Duration{0, time.Second, 20 * time.Second, time.Hour} {
			for _, delay := range []time.Duration{0, time.Minute} {
				db := newFake()
				holder, waiter := newBench(t, db, nil), newBench(t, db, nil)
				lease, got := holder.lock("a"), make(chan *sqllock.Lease)
				go func() { got <- waiter.lock("a", sqllock.MinHold(minHold), sqllock.LockDelay(delay)) }()
				time.Sleep(time.Second)
				holder.unlock(lease)
				row := db.row("a") // before anything is renewed
				if kept := time.Duration(row.until-row.since) * time.Microsecond; kept < minHold+delay {
					t.Errorf("MinHold %v, LockDelay %v: the row keeps the name for %v", minHold, delay, kept)
				}
				waiter.unlock(<-got)
				holder.close()
				waiter.close()
			}
		}
	})
}

func TestMinHoldCountsAlsoIfNeitherTheGrantNorTheReleaseWasAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		const minHold = time.Hour
		for i := range 64 { // requests of one name may be withdrawn in any order
			name := fmt.Sprint("name ", i)
			db.set(func(f *fake) { f.after = once("grant", errNoReply) })
			lease := b.lock(name, sqllock.MinHold(minHold))
			db.set(func(f *fake) { f.after, f.before = nil, failing("release", errNoReply) })
			if err := lease.Unlock(t.Context()); err == nil {
				t.Error("Unlock has released the name without an answer")
			}
			db.set(func(f *fake) { f.before = nil })
			time.Sleep(2 * ttl)
			row := db.row(name)
			if kept := time.Duration(row.notBefore-row.since) * time.Microsecond; kept != minHold {
				t.Errorf("%q is kept for %v after the grant, want %v", name, kept, minHold)
			}
		}
	})
}

func TestAWaiterSendsARequestWhenMinHoldIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl, RetryMin: time.Hour, RetryMax: time.Hour})
		defer b.close()
		start := time.Now()
		b.unlock(b.lock("a", sqllock.MinHold(10*time.Second)))
		lease, err := b.TryLock(t.Context(), "a")
		var held *sqllock.HeldError
		if lease != nil || !errors.As(err, &held) || !held.Until.Equal(start.Add(10*time.Second)) {
			t.Errorf("TryLock = %v, %v; want to be told until when", lease, err)
		}
		b.unlock(b.lock("a"))
		if waited := time.Since(start); waited < 10*time.Second || waited > 11*time.Second {
			t.Errorf("waited for %v", waited)
		}
	})
}

// A request that got no reply may arrive when the lease was unlocked long ago. That
// it is undone must not keep the name anew.
func TestALatePacketDoesNotRepeatTheMinimumHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		db.after = once("grant", errNoReply)
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		const minHold = 20 * time.Second
		lease := b.lock("a", sqllock.MinHold(minHold))
		time.Sleep(time.Second)
		b.unlock(lease)
		time.Sleep(minHold - 500*time.Millisecond)
		late := db.row("a")
		if _, err := db.Acquire(t.Context(), []driverGrant{{Name: "a", Acq: db.last, Owner: late.owner, TTL: ttl}}); err != nil || !db.held("a") {
			t.Fatalf("the late packet took nothing: %v", err)
		}
		time.Sleep(time.Second)
		if row := db.row("a"); db.held("a") || row.notBefore > time.Now().UnixMicro() {
			t.Errorf("the late packet keeps the name: %+v", row)
		}
	})
}

func TestInvalidOptionsOfATermAreRefusedBeforeAnySQL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, nil)
		defer b.close()
		for name, opt := range map[string]sqllock.LockOption{
			"MinHold below 0":         sqllock.MinHold(-1),
			"MinHold over a day":      sqllock.MinHold(24*time.Hour + 1),
			"MaxHold 0":               sqllock.MaxHold(0),
			"MaxHold under the least": sqllock.MaxHold(sqllock.MinTTL - 1),
			"LockDelay below 0":       sqllock.LockDelay(-1),
			"LockDelay over a day":    sqllock.LockDelay(24*time.Hour + 1),
			"Value too long":          sqllock.Value(make([]byte, 64<<10+1)),
		} {
			if lease, err := b.Lock(t.Context(), "a", opt); lease != nil || !errors.Is(err, sqllock.ErrInvalidOption) {
				t.Errorf("%s: %v, %v", name, lease, err)
			}
		}
		if len(db.sent) > 0 {
			t.Errorf("statements were sent: %v", db.sent)
		}
	})
}

func TestErrorsOfOptionsSayWhichValueIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, nil)
		defer b.close()
		for want, err := range map[string]error{
			"MinHold(1s)":      second(b.RLock(t.Context(), "a", sqllock.MinHold(time.Second))),
			"Value of 3 bytes": second(b.RLock(t.Context(), "a", sqllock.Value([]byte("abc")))),
			"Wait(2s)":         second(b.TryLock(t.Context(), "a", sqllock.Wait(2*time.Second))),
			"Tries(3)":         second(b.TryLock(t.Context(), "a", sqllock.Tries(3))),
		} {
			if !errors.Is(err, sqllock.ErrInvalidOption) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want ErrInvalidOption that says %q", err, want)
			}
		}
		if len(db.sent) > 0 {
			t.Errorf("statements were sent: %v", db.sent)
		}
	})
}

func TestPausesThatAreTooShortAreRefused(t *testing.T) {
	for want, o := range map[string]*sqllock.UniqueOptions{
		"RetryMin 1ns":     {RetryMin: 1},
		"RetryMin 999.9":   {RetryMin: time.Millisecond - 100},
		"RetryMax 2ms":     {RetryMin: 3 * time.Millisecond, RetryMax: 2 * time.Millisecond},
		"at least 1ms":     {RetryMin: -1},
		"RetryMin, 10ms":   {RetryMax: time.Millisecond},
		"RetryMax -1ns: m": {RetryMax: -1},
	} {
		l, err := sqllock.NewWithClock(newFake(), sqllock.SystemNow, o)
		if l != nil || !errors.Is(err, sqllock.ErrInvalidOption) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, %v, want ErrInvalidOption that says %q", l, err, want)
		}
	}
}

// Callers who give up at every moment of a grant: what it got meanwhile is given back.
func TestACallThatFailedKeepsNothingWhateverItsMinHoldSays(t *testing.T) {
	onEachServer(t, func(t *testing.T, e *engine, d *testdb.Database) {
		proxy := netproxy.New(t, d.Addr())
		slow, quick := d.OpenVia(t, proxy.Addr()), d.Open(t)
		for mode, open := range map[string]func(database) (*sqllock.Locker, error){
			"unique": func(db database) (*sqllock.Locker, error) { return sqllock.NewUnique(t.Context(), db, nil) },
			"for update": func(db database) (*sqllock.Locker, error) {
				return sqllock.NewForUpdate(t.Context(), db.(driver.ForUpdateDatabase), nil)
			},
			"advisory": func(db database) (*sqllock.Locker, error) {
				return sqllock.NewAdvisory(t.Context(), db.(driver.AdvisoryDatabase), nil)
			},
		} {
			t.Run(mode, func(t *testing.T) {
				var lockers [2]*sqllock.Locker
				for i, db := range []database{e.open(slow), e.open(quick)} {
					l, err := open(db)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { closeSoon(l) })
					lockers[i] = l
				}
				proxy.Latency(5 * time.Millisecond)
				defer proxy.Latency(0)
				var failed sync.Map
				for wave := range 2 {
					var wg sync.WaitGroup
					for i := range 10 {
						wg.Go(func() {
							ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i*10+wave*5)*time.Millisecond)
							defer cancel()
							name := fmt.Sprintf("%s %d %d", mode, wave, i)
							if lease, err := lockers[0].Lock(ctx, name, sqllock.MinHold(time.Hour)); err != nil {
								failed.Store(name, err)
							} else {
								_ = lease.Unlock(context.WithoutCancel(t.Context()))
							}
						})
					}
					wg.Wait()
				}
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				failed.Range(func(name, why any) bool {
					lease, err := lockers[1].Lock(ctx, name.(string))
					if err != nil {
						t.Errorf("%q is kept by a call that failed (%v): %v", name, why, err)
						return false
					}
					_ = lease.Unlock(ctx)
					return true
				})
			})
		}
	})
}

// Who means "never" writes the longest time that there is.

func TestAnIntervalWithoutEndMakesNoPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		const lockers = 20 // the pauses are spread at random
		for range lockers {
			b := newBench(t, db, &sqllock.UniqueOptions{Reaper: &sqllock.ReaperOptions{Interval: math.MaxInt64}})
			defer b.close()
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if n := db.statements(); n != 0 {
			t.Errorf("%d statements in a day", n)
		}
	})
}

func TestAMaxHoldWithoutEndIsNoBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newFake(), &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		time.Sleep(time.Hour) // its clock has run for a while
		lease := b.lock("a", sqllock.MaxHold(math.MaxInt64))
		time.Sleep(10 * ttl)
		b.unlock(lease)
	})
}

func TestPausesWithoutEndHarmNoWaiter(t *testing.T) {
	for _, barging := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			db := newFake()
			o := &sqllock.UniqueOptions{TTL: ttl, RetryMin: math.MaxInt64, RetryMax: math.MaxInt64,
				StatementTimeout: math.MaxInt64, Barging: barging, Reaper: &sqllock.ReaperOptions{Off: true}}
			holder, waiter := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl}), newBench(t, db, o)
			defer waiter.close()
			holder.lock("a")
			got := make(chan *sqllock.Lease, 1)
			go func() { got <- waiter.lock("a") }()
			time.Sleep(5 * ttl)
			if n := db.statements(); n > 200 {
				t.Errorf("%d statements while one holds and one waits", n)
			}
			holder.crash() // the waiter looks again when the lease expires
			lease := <-got
			waiter.unlock(lease)
		})
	}
}

func TestAMaxHoldOfALockerWithoutEndIsNoBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now().Add(-time.Hour)
		l, err := sqllock.NewSessionsWithClock(newFakeSessions(), func() time.Duration { return time.Since(start) },
			&sqllock.ForUpdateOptions{TTL: ttl, MaxHold: math.MaxInt64, Reaper: &sqllock.ReaperOptions{Off: true}}, 2)
		if err != nil {
			t.Fatal(err)
		}
		lease, err := l.Lock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * ttl)
		if err := lease.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
