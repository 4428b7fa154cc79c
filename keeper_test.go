package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/testlog"
)

func TestTenThousandLeasesCostOneStatementPerThirdOfTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10_000
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: 30 * time.Second})
		defer b.close()
		leases := make([]*sqllock.Lease, n)
		for i := range leases {
			leases[i] = b.lock(fmt.Sprint(i))
			time.Sleep(time.Millisecond) // spread over a third of the TTL
		}
		if g := runtime.NumGoroutine(); g > 50 {
			t.Errorf("%d goroutines for %d leases", g, n)
		}
		time.Sleep(time.Minute) // let them fall into step
		before := db.count("renew")
		time.Sleep(10 * time.Minute)
		if got := db.count("renew") - before; got < 60 || got > 62 {
			t.Errorf("%d renewals in 60 thirds of the TTL", got)
		}
		for _, lease := range leases {
			b.unlock(lease)
		}
	})
}

func TestALeaseWithAShortTTLIsRenewedBesideOnesWithALongTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newFake(), &sqllock.UniqueOptions{TTL: time.Hour})
		defer b.close()
		long := b.lock("long")
		defer b.unlock(long)
		short := b.lock("short", sqllock.TTL(sqllock.MinTTL))
		defer b.unlock(short)
		time.Sleep(10 * time.Minute)
		if short.Remaining() <= 0 || long.Remaining() <= 0 {
			t.Error("a lease was lost")
		}
	})
}

func TestARowThatSomebodyHasLockedIsRenewedByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		free, locked := b.lock("free"), b.lock("locked")
		db.set(func(f *fake) {
			f.locked["locked"] = true
			f.before = after("renew alone", time.Second)
		})
		time.Sleep(2 * ttl)
		if free.Remaining() <= 0 || locked.Remaining() <= 0 {
			t.Errorf("a lease was lost: %v and %v left", free.Remaining(), locked.Remaining())
		}
		if db.count("renew alone") == 0 {
			t.Error("the locked row was not renewed by itself")
		}
		b.unlock(free)
		b.unlock(locked)
	})
}

func TestTheDepthOfReentryIsWrittenWithTheNextRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		outer := b.lock("a")
		inner, err := b.Lock(outer.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if inner.Token() != outer.Token() {
			t.Error("re-entry changed the token")
		}
		time.Sleep(ttl/3 + time.Second)
		if got := db.row("a").leaseCount; got != 2 {
			t.Errorf("holds = %d in the row, want 2", got)
		}
		b.unlock(inner)
		if !db.held("a") {
			t.Fatal("the name is free after one of two unlocks")
		}
		if inner.Remaining() > 0 || !errors.Is(context.Cause(inner.Context()), sqllock.ErrUnlocked) {
			t.Error("the unlocked handle still looks held")
		}
		b.unlock(outer)
		if db.held("a") {
			t.Error("the name is held after the last unlock")
		}
	})
}

// blocked is a log handler that blocks until it is released.
type blocked struct{ release chan struct{} }

func (h blocked) Enabled(context.Context, slog.Level) bool  { return true }
func (h blocked) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h blocked) WithGroup(string) slog.Handler             { return h }
func (h blocked) Handle(context.Context, slog.Record) error { <-h.release; return nil }

func TestAHookOrLogHandlerThatBlocksDelaysNoRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		b := newBench(t, newFake(), &sqllock.UniqueOptions{
			TTL:    ttl,
			Logger: slog.New(blocked{release}),
			Hooks:  &sqllock.Hooks{Acquired: func(sqllock.AcquiredEvent) { <-release }},
		})
		lease := b.lock("a")
		time.Sleep(5 * ttl)
		if lease.Remaining() <= 0 {
			t.Error("the lease was lost")
		}
		b.unlock(lease)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close with a blocked hook = %v, want DeadlineExceeded", err)
		}
		close(release)
	})
}

func TestAHookThatPanicsOrEndsItsGoroutineIsSurvived(t *testing.T) {
	for what, end := range map[string]func(){"panics": func() { panic("hook") }, "ends its goroutine": runtime.Goexit} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				unlocked := 0
				var log testlog.Text
				b := newBench(t, newFake(), &sqllock.UniqueOptions{
					TTL: ttl, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError})),
					Hooks: &sqllock.Hooks{
						Acquired: func(sqllock.AcquiredEvent) { end() },
						Unlocked: func(sqllock.UnlockedEvent) { unlocked++ },
					}})
				for range 3 { // in one batch, mostly
					b.unlock(b.lock("a"))
				}
				b.close()
				if unlocked != 3 {
					t.Errorf("the hook after the one that %s was called %d times", what, unlocked)
				}
				if n := strings.Count(log.String(), "panicked"); n != 3 {
					t.Errorf("the log has %d messages of a hook that panicked:\n%s", n, log.String())
				}
			})
		})
	}
}

func TestHooksTellWhatHappened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var known []string
		b := newBench(t, newFake(), &sqllock.UniqueOptions{TTL: ttl, Hooks: &sqllock.Hooks{
			Acquired: func(e sqllock.AcquiredEvent) {
				known = append(known, fmt.Sprintf("acquired %s after %v and %d attempts", e.Name, e.Waited, e.Attempts))
			},
			Unlocked: func(e sqllock.UnlockedEvent) {
				known = append(known, fmt.Sprintf("unlocked %s after %v, error %v", e.Name, e.Held, e.Err))
			},
		}})
		lease := b.lock("a")
		time.Sleep(time.Second)
		b.unlock(lease)
		b.close()
		want := "[acquired a after 0s and 1 attempts unlocked a after 1s, error <nil>]"
		if got := fmt.Sprint(known); got != want {
			t.Errorf("hooks told %s, want %s", got, want)
		}
	})
}

func TestTheAttemptsOfAWaiterIncludeThoseOfItsClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var known []int
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl, Hooks: &sqllock.Hooks{
			Acquired: func(e sqllock.AcquiredEvent) { known = append(known, e.Attempts) },
		}})
		lease := b.lock("a")
		next := queuedWaiter(t, b, t.Context(), "a")
		time.Sleep(time.Second)
		b.unlock(lease)
		b.unlock(<-next)
		b.close()
		if want := []int{1, db.count("grant") - 1 + db.count("line")}; !slices.Equal(known, want) {
			t.Errorf("the hook told of %v attempts, the database of %v", known, want)
		}
	})
}

func TestANewLeaseIsNotRenewedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		lease := b.lock("a")
		defer b.unlock(lease)
		time.Sleep(ttl / 4)
		if got := db.count("renew"); got != 0 {
			t.Errorf("%d renewals in a quarter of the TTL", got)
		}
		time.Sleep(ttl / 8)
		if got := db.count("renew"); got != 1 {
			t.Errorf("%d renewals when a third of the TTL was over", got)
		}
	})
}

// manyName is one of many names.
func manyName(i int) string { return fmt.Sprint("locked ", i) }

// lockMany locks many names.
func (b *bench) lockMany(n int) (leases []*sqllock.Lease) {
	b.t.Helper()
	for i := range n {
		leases = append(leases, b.lock(manyName(i)))
	}
	return leases
}

// unlockMany unlocks leases, none of which may be lost.
func (b *bench) unlockMany(leases []*sqllock.Lease) {
	b.t.Helper()
	for _, lease := range leases {
		if lease.Remaining() <= 0 {
			b.t.Errorf("%q was lost", lease.Name())
		}
		b.unlock(lease)
	}
}

// lockRows says whether somebody has locked the rows of many names; the caller holds mu.
func (f *fake) lockRows(n int, locked bool) {
	for i := range n {
		f.locked[manyName(i)] = locked
	}
}

// Each waits on a connection of its own, which the application lacks meanwhile.
func TestFewRowsThatSomebodyHasLockedAreWaitedForAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const few, many = 4, 20
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		leases := b.lockMany(many)
		var waiting, most atomic.Int32
		db.set(func(f *fake) {
			f.lockRows(many, true)
			f.before = func(ctx context.Context, kind string) error {
				if kind == "renew alone" {
					most.Store(max(most.Load(), waiting.Add(1)))
					defer waiting.Add(-1)
				}
				return after("renew alone", 100*time.Millisecond)(ctx, kind)
			}
		})
		time.Sleep(2 * ttl)
		if n := most.Load(); n != few {
			t.Errorf("%d were waited for at once, want %d", n, few)
		}
		b.unlockMany(leases)
	})
}

// Those for which there is no room are looked at in batches: their rows may be free, while others are
// locked for long.
func TestWhoFindsNoRoomToWaitForALockedRowIsRenewedWhenTheRowIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many, ttl = 40, 30 * time.Second
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		leases := b.lockMany(many)
		locked := true
		set := func(to bool) {
			db.set(func(f *fake) {
				locked = to
				f.lockRows(many, to)
			})
		}
		set(true)
		db.set(func(f *fake) {
			f.before = func(ctx context.Context, kind string) error {
				if kind != "renew alone" {
					return nil
				}
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
					return ctx.Err()
				}
				f.mu.Lock()
				defer f.mu.Unlock()
				if locked {
					return errDeadlock
				}
				return nil
			}
		})
		time.Sleep(ttl/3 + ttl/2)
		set(false)
		before := db.count("renew")
		time.Sleep(ttl)
		b.unlockMany(leases)
		if n := db.count("renew") - before; n > 100 {
			t.Errorf("%d batches in a TTL", n)
		}
	})
}

// The keeper has seen a deadline pass, and before it looks at the term the reply to a renewal comes.
func TestATermThatIsRenewedAtTheLastMomentIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newFake(), nil)
		defer b.close()
		lease := b.lock("a")
		if !lease.EndExpired() || lease.Context().Err() != nil {
			t.Errorf("a term that was renewed is kept no more; Err is %v", lease.Context().Err())
		}
		b.unlock(lease)
	})
}
