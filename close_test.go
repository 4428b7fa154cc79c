package sqllock_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
)

// ended returns a context that has ended.
func ended(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// statementTimeout is that of a lease with the default TTL.
const statementTimeout = 5 * time.Second

// slowly delays the statements of a kind, or fails them with their context.
func slowly(kind string, d time.Duration) func(context.Context, string) error {
	return func(ctx context.Context, k string) error {
		if k != kind {
			return nil
		}
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func TestUnlockWaitsUntilADeadlineThatLiesAhead(t *testing.T) {
	for _, c := range []struct {
		what     string
		deadline time.Duration // 0: none; less: ctx has ended
		wait     time.Duration
	}{
		{"a deadline ahead", 500 * time.Millisecond, 500 * time.Millisecond},
		{"a deadline that is far away", time.Hour, 2 * statementTimeout},
		{"no deadline", 0, 2 * statementTimeout},
		{"a context that has ended", -1, statementTimeout},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := newFake()
				b := newBench(t, db, nil)
				defer b.close()
				lease := b.lock("a")
				db.set(func(f *fake) { f.before = slowly("release", time.Hour) })
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				switch {
				case c.deadline > 0:
					ctx, cancel = context.WithTimeout(ctx, c.deadline)
					defer cancel()
				case c.deadline < 0:
					cancel()
				}
				began := time.Now()
				err := lease.Unlock(ctx)
				if took := time.Since(began); took != c.wait {
					t.Errorf("Unlock took %v, want %v", took, c.wait)
				}
				if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "in the background") {
					t.Errorf("Unlock: %v", err)
				}
				time.Sleep(time.Second)
				if db.held("a") {
					t.Error("the name is not freed in the background")
				}
			})
		})
	}
}

func TestUnlockWithAContextThatEndsFreesTheName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, nil)
		defer b.close()
		db.set(func(f *fake) { f.before = slowly("release", 2*time.Second) })
		for _, after := range []time.Duration{0, time.Second} {
			lease := b.lock("a")
			ctx, cancel := context.WithCancel(t.Context())
			stop := time.AfterFunc(after, cancel)
			if err := lease.Unlock(ctx); err != nil || db.held("a") {
				t.Errorf("Unlock with a context that ends after %v: %v", after, err)
			}
			stop.Stop()
		}
	})
}

func TestUnlockOfASessionsLockKeepsItsDeadline(t *testing.T) {
	onSessions(t, func(b *sessionBench) {
		lease := b.lock("k")
		b.db.set(func() { b.db.slow["release"] = ttl / 6 })
		ctx, cancel := context.WithTimeout(b.Context(), ttl/20)
		defer cancel()
		began := time.Now()
		err := lease.Unlock(ctx)
		if took := time.Since(began); took != ttl/20 || !errors.Is(err, context.DeadlineExceeded) {
			b.Errorf("Unlock took %v: %v", took, err)
		}
		time.Sleep(ttl / 2)
		if b.db.held() != 0 {
			b.Error("the name is not freed in the background")
		}
		if err := b.locks.Close(b.Context()); err != nil {
			b.Error(err)
		}
	})
}

func TestCloseWithAContextThatHasEndedFreesWhatNobodyUses(t *testing.T) {
	for what, leave := range map[string]func(t *testing.T, b *bench){
		"an Unlock that is under way": func(t *testing.T, b *bench) {
			lease := b.lock("a")
			b.db.set(func(f *fake) { f.before = slowly("release", time.Second) })
			go func() { _ = lease.Unlock(ended(t)) }()
			synctest.Wait()
		},
		"a Lock whose reply was lost": func(t *testing.T, b *bench) {
			b.db.set(func(f *fake) { f.before, f.after = slowly("abandon", time.Second), failing("grant", errNoReply) })
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			if _, err := b.Lock(ctx, "a"); err == nil {
				t.Error("Lock returned a lease without a reply")
			}
		},
		"a Lock that was granted too late": func(t *testing.T, b *bench) {
			b.db.set(func(f *fake) { f.after = slowly("grant", time.Second) })
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			if _, err := b.Lock(ctx, "a"); err == nil {
				t.Error("Lock returned a lease without a reply")
			}
		},
		"a leader whose function returns": func(t *testing.T, b *bench) {
			ctx, cancel := context.WithCancel(t.Context())
			led := make(chan struct{})
			go func() {
				_ = b.candidate("a", nil).Run(ctx, func(ctx context.Context, _ *sqllock.Lease) error {
					close(led)
					<-ctx.Done()
					time.Sleep(100 * time.Millisecond) // it has something to finish
					return nil
				})
			}()
			<-led
			cancel()
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, newFake(), nil)
				leave(t, b)
				began := time.Now()
				if err := b.Close(ended(t)); err != nil {
					t.Errorf("Close: %v", err)
				}
				if took := time.Since(began); took > statementTimeout {
					t.Errorf("Close took %v", took)
				}
				if b.db.held("a") {
					t.Error("the name is held")
				}
				synctest.Wait()
			})
		})
	}
}

func TestCloseWithAContextThatHasEndedGivesAHolderOneStatementTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, nil)
		lease := b.lock("a")
		began := time.Now()
		err := b.Close(ended(t))
		if took := time.Since(began); took != statementTimeout || !errors.Is(err, context.Canceled) {
			t.Errorf("Close took %v: %v", took, err)
		}
		for lease.Remaining() > 0 {
			if !db.held("a") {
				t.Fatal("the name is free while its holder believes in it")
			}
			time.Sleep(time.Second)
		}
		if err := lease.Unlock(t.Context()); !errors.Is(err, sqllock.ErrLost) {
			t.Errorf("Unlock: %v", err)
		}
	})
}

func TestUnlockAfterCloseGaveUpSaysThatTheLockerIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newFake(), nil)
		lease := b.lock("a")
		_ = closeAtOnce(b.Locker)
		if err := lease.Unlock(t.Context()); !errors.Is(err, sqllock.ErrClosed) || strings.Contains(err.Error(), "background") {
			t.Errorf("Unlock: %v", err)
		}
	})
}

func TestCloseBlamesNoHookThatDoesNotRun(t *testing.T) {
	for range 300 {
		b := newBench(t, newFake(), &sqllock.UniqueOptions{Hooks: &sqllock.Hooks{Unlocked: func(sqllock.UnlockedEvent) {}}})
		b.unlock(b.lock("a"))
		if err := b.Close(ended(t)); err != nil {
			t.Fatalf("Close: %v", err)
		}
	}
}

func TestCloseSaysThatAHookStillRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocked := make(chan struct{})
		defer close(blocked)
		b := newBench(t, newFake(), &sqllock.UniqueOptions{Hooks: &sqllock.Hooks{Unlocked: func(sqllock.UnlockedEvent) { <-blocked }}})
		b.unlock(b.lock("a"))
		began := time.Now()
		if err := b.Close(ended(t)); err == nil || !strings.Contains(err.Error(), "hook") || !errors.Is(err, context.Canceled) {
			t.Errorf("Close: %v", err)
		}
		if took := time.Since(began); took != statementTimeout {
			t.Errorf("Close took %v", took)
		}
	})
}

func TestCloseDoesNotWaitForWhatTheDatabaseRefusesToUndo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: time.Hour})
		db.set(func(f *fake) { f.before, f.after = failing("abandon", errDenied), failing("grant", errNoReply) })
		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := b.Lock(short, "a"); err == nil {
			t.Fatal("Lock returned a lease without a reply")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		if err := b.Close(ctx); !errors.Is(err, errDenied) || time.Since(began) > time.Second {
			t.Errorf("Close = %v after %v", err, time.Since(began))
		}
	})
}

// One refusal may be of the moment, and one of a try that began before Close is old.
func TestCloseTriesAgainWhatTheDatabaseRefusesForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: time.Hour})
		var tries atomic.Int32
		db.set(func(f *fake) {
			f.after = failing("grant", errNoReply)
			f.before = func(_ context.Context, kind string) error {
				if kind != "abandon" {
					return nil
				}
				try := tries.Add(1)
				if try == 1 {
					time.Sleep(time.Second) // Close begins meanwhile
				}
				if try <= 2 {
					return errDenied
				}
				return nil
			}
		})
		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := b.Lock(short, "a"); err == nil {
			t.Fatal("Lock returned a lease without a reply")
		}
		time.Sleep(500 * time.Millisecond)
		if tries.Load() != 1 {
			t.Fatalf("%d tries before Close", tries.Load())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := b.Close(ctx); err != nil || db.held("a") {
			t.Errorf("Close = %v after %d tries, held: %v", err, tries.Load(), db.held("a"))
		}
	})
}
