package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
)

const ttl = 9 * time.Second

func TestTheDeadlineCountsFromBeforeTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		db.after = after("grant", 2*time.Second) // a slow reply
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		lease := b.lock("a")
		defer b.unlock(lease)
		if got, want := lease.Remaining(), sqllock.Trust(ttl)-2*time.Second; got != want {
			t.Errorf("Remaining() = %v, want %v", got, want)
		}
	})
}

func TestARenewalCountsFromBeforeItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		lease := b.lock("a")
		defer b.unlock(lease)
		db.set(func(f *fake) { f.after = after("renew", time.Second) })
		time.Sleep(ttl/3 + time.Second + 100*time.Millisecond)
		got, most := lease.Remaining(), sqllock.Trust(ttl)-time.Second
		if got > most || got < most-200*time.Millisecond {
			t.Errorf("Remaining() = %v after a renewal that took a second, want %v or a little less", got, most)
		}
	})
}

func TestAReplyAfterTheDeadlineGivesTheNameBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		db.after = after("grant", ttl)
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl, StatementTimeout: 2 * ttl})
		defer b.close()
		lease, err := b.Lock(t.Context(), "a")
		var lost *sqllock.LostError
		if lease != nil || !errors.As(err, &lost) || lost.Reason != sqllock.LostLate {
			t.Fatalf("Lock = %v, %v; want a LostError with reason LostLate", lease, err)
		}
		synctest.Wait()
		if db.count("abandon") == 0 {
			t.Error("the grant that came too late was not given back")
		}
	})
}

func TestAfterASuspendTheFirstLookSaysLost(t *testing.T) {
	looks := map[string]func(*sqllock.Lease, context.Context, context.Context) bool{
		"Err":       func(_ *sqllock.Lease, ctx, _ context.Context) bool { return ctx.Err() != nil },
		"Remaining": func(l *sqllock.Lease, _, _ context.Context) bool { return l.Remaining() == 0 },
		"Cause": func(_ *sqllock.Lease, ctx, _ context.Context) bool {
			return errors.Is(context.Cause(ctx), sqllock.ErrLost)
		},
		"Err of Bind": func(_ *sqllock.Lease, _, bound context.Context) bool { return bound.Err() != nil },
		"Cause of Bind": func(_ *sqllock.Lease, _, bound context.Context) bool {
			return errors.Is(context.Cause(bound), sqllock.ErrLost)
		},
	}
	for name, lost := range looks {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, newFake(), &sqllock.UniqueOptions{TTL: ttl})
				defer b.close()
				lease := b.lock("a")
				bound, cancel := lease.Bind(t.Context())
				defer cancel()
				b.suspend(ttl)
				if !lost(lease, lease.Context(), bound) {
					t.Error("the first look after the suspend did not tell of the loss")
				}
				var lostErr *sqllock.LostError
				if err := lease.Unlock(t.Context()); !errors.As(err, &lostErr) || lostErr.Reason != sqllock.LostDeadline {
					t.Errorf("Unlock = %v, want a LostError with reason LostDeadline", err)
				}
			})
		})
	}
}

func TestAfterASuspendDoneClosesSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newFake(), &sqllock.UniqueOptions{TTL: time.Hour})
		defer b.close()
		lease := b.lock("a")
		time.Sleep(10 * time.Millisecond)
		b.suspend(time.Hour)
		select {
		case <-lease.Context().Done():
		case <-time.After(100 * time.Millisecond):
			t.Error("Done did not close within 100 ms after the suspend")
		}
		_ = lease.Unlock(t.Context())
	})
}

func TestAnUnreachableDatabaseIsJeopardyFirstAndLossAtTheDeadline(t *testing.T) {
	for reason, fault := range map[sqllock.Reason]error{
		sqllock.LostUnreachable:   errDown,
		sqllock.LostPoolExhausted: fmt.Errorf("wrapped: %w", driver.ErrNoConnection),
	} {
		t.Run(reason.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var jeopardies, losses atomic.Int32
				db := newFake()
				b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl, Hooks: &sqllock.Hooks{
					Jeopardy: func(e sqllock.JeopardyEvent) {
						jeopardies.Add(1)
						if !errors.Is(e.Err, fault) || e.Remaining <= 0 {
							t.Errorf("jeopardy with error %v and %v left", e.Err, e.Remaining)
						}
					},
					Lost: func(e sqllock.LostEvent) { losses.Add(1) },
				}})
				defer b.close()
				lease := b.lock("a")
				db.set(func(f *fake) { f.before = failing("renew", fault) })
				time.Sleep(sqllock.Trust(ttl) - time.Millisecond)
				synctest.Wait()
				if lease.Context().Err() != nil || jeopardies.Load() != 1 {
					t.Fatalf("before the deadline: Err = %v, jeopardies = %d", lease.Context().Err(), jeopardies.Load())
				}
				time.Sleep(2 * time.Millisecond)
				synctest.Wait()
				select {
				case <-lease.Context().Done():
				default:
					t.Error("Done is open after the deadline")
				}
				var lost *sqllock.LostError
				if !errors.As(context.Cause(lease.Context()), &lost) || lost.Reason != reason || !errors.Is(lost, fault) {
					t.Errorf("cause = %v, want reason %q and the fault", context.Cause(lease.Context()), reason)
				}
				if losses.Load() != 1 {
					t.Errorf("%d calls of the hook Lost, want 1", losses.Load())
				}
				if err := lease.Unlock(t.Context()); !errors.Is(err, sqllock.ErrLost) {
					t.Errorf("Unlock = %v, want ErrLost", err)
				}
			})
		})
	}
}

func TestARenewalThatFailsIsRetriedUntilItSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		lease := b.lock("a")
		defer b.unlock(lease)
		for range 5 {
			db.set(func(f *fake) { f.before = failing("renew", errDown) })
			time.Sleep(ttl / 2) // the last renewal may be a third of the TTL old already
			db.set(func(f *fake) { f.before = nil })
			time.Sleep(ttl / 2)
		}
		if err := lease.Context().Err(); err != nil {
			t.Errorf("the lease was lost: %v", context.Cause(lease.Context()))
		}
	})
}

func TestADefiniteLossIsToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		lease := b.lock("a")
		db.set(func(f *fake) { f.rows["a"].version++ }) // somebody took it
		time.Sleep(ttl/3 + 100*time.Millisecond)
		var lost *sqllock.LostError
		if !errors.As(context.Cause(lease.Context()), &lost) || lost.Reason != sqllock.LostTaken {
			t.Errorf("cause after the next renewal = %v, want reason LostTaken", context.Cause(lease.Context()))
		}
		_ = lease.Unlock(t.Context())
	})
}

func TestARenewalKnownOnlyAfterTheDeadlineRevivesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl, StatementTimeout: 2 * ttl})
		defer b.close()
		lease := b.lock("a")
		db.set(func(f *fake) { f.after = after("renew", ttl) })
		time.Sleep(ttl/3 + ttl + time.Second)
		synctest.Wait()
		if !db.held("a") {
			t.Fatal("the test expects that the row was renewed")
		}
		if lease.Remaining() > 0 || lease.Context().Err() == nil {
			t.Error("a lost lease was revived by a late reply")
		}
		if err := lease.Unlock(t.Context()); !errors.Is(err, sqllock.ErrLost) {
			t.Errorf("Unlock = %v, want ErrLost", err)
		}
		synctest.Wait()
		if db.held("a") {
			t.Error("the name is kept for nobody after the holder has unlocked")
		}
	})
}

func TestALossThatOnlyUnlockFindsIsToldAsEachIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		var losses []sqllock.LostEvent
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl, Hooks: &sqllock.Hooks{
			Lost: func(e sqllock.LostEvent) { losses = append(losses, e) },
		}})
		defer b.close()
		one := b.lock("a")
		leases, err := b.LockAll(t.Context(), []string{"c", "d"})
		if err != nil {
			t.Fatal(err)
		}
		db.set(func(f *fake) { // somebody took them
			f.rows["a"].version++
			f.rows["d"].version++
		})
		if err := one.Unlock(t.Context()); !errors.Is(err, sqllock.ErrLost) {
			t.Errorf("Unlock = %v, want ErrLost", err)
		}
		if err := leases.Unlock(t.Context()); !errors.Is(err, sqllock.ErrLost) {
			t.Errorf("Unlock of all = %v, want ErrLost", err)
		}
		synctest.Wait()
		if len(losses) != 2 || losses[0].Name != "a" || losses[1].Name != "d" || losses[0].Err.Reason != sqllock.LostTaken {
			t.Errorf("the hook Lost was told %+v, want a and d", losses)
		}
	})
}

func TestALossIsFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newFake(), &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		lease := b.lock("a")
		b.suspend(ttl)
		if lease.Remaining() > 0 {
			t.Fatal("not lost")
		}
		b.suspend(-ttl) // a clock that goes back must not help
		if lease.Remaining() > 0 || lease.Context().Err() == nil {
			t.Error("the lost lease revived")
		}
		if _, err := b.Lock(lease.Context(), "a"); !errors.Is(err, sqllock.ErrLost) {
			t.Errorf("re-entry of a lost lease = %v, want ErrLost", err)
		}
		_ = lease.Unlock(t.Context())
	})
}

func TestTheClockOfTheDatabaseIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jumps := make(chan time.Duration, 10)
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl, Hooks: &sqllock.Hooks{
			ClockJump: func(e sqllock.ClockJumpEvent) { jumps <- e.Jump },
		}})
		defer b.close()
		lease := b.lock("a")
		defer b.unlock(lease)
		time.Sleep(ttl)
		for _, step := range []time.Duration{time.Second, -2 * time.Second} {
			if len(jumps) != 0 {
				t.Fatalf("a jump of %v was told where there was none", <-jumps)
			}
			db.set(func(f *fake) { f.skew += step })
			time.Sleep(ttl)
			synctest.Wait()
			if len(jumps) != 1 {
				t.Fatalf("%d jumps were told after a step of %v", len(jumps), step)
			}
			if got := <-jumps; (got - step).Abs() > 150*time.Millisecond {
				t.Errorf("the step of %v was told as %v", step, got)
			}
		}
	})
}

func TestALocalClockOffFromTheDatabasesByHoursChangesNothing(t *testing.T) {
	for _, skew := range []time.Duration{-3 * time.Hour, 3 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			db := newFake()
			db.skew = skew
			b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
			defer b.close()
			lease := b.lock("a")
			defer b.unlock(lease)
			time.Sleep(5 * ttl)
			if lease.Remaining() < ttl/2 {
				t.Errorf("Remaining() = %v with a database that is %v ahead", lease.Remaining(), skew)
			}
			waited := time.Now()
			if _, err := b.Lock(t.Context(), "a", sqllock.Wait(time.Second)); !errors.Is(err, sqllock.ErrHeld) || time.Since(waited) != time.Second {
				t.Errorf("Lock = %v after %v, want ErrHeld after a second", err, time.Since(waited))
			}
		})
	}
}
