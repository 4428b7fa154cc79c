package sqllock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
)

// wantSequencer checks what is said of a sequencer.
func wantSequencer(t *testing.T, check func(context.Context, sqllock.Sequencer) (sqllock.SequencerState, error), s sqllock.Sequencer, want sqllock.SequencerState) {
	t.Helper()
	if got, err := check(t.Context(), s); got != want || err != nil {
		t.Errorf("%v is %v, %v; want %v", s, got, err, want)
	}
}

func TestASequencerIsCurrentUntilItsTermHasEnded(t *testing.T) {
	const current, stale, unknown = sqllock.SequencerCurrent, sqllock.SequencerStale, sqllock.SequencerUnknown
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		holder, b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl}), newBench(t, db, nil)
		defer holder.close()
		defer b.close()
		ask := func(s sqllock.Sequencer, want sqllock.SequencerState) {
			t.Helper()
			n := db.count("look")
			wantSequencer(t, b.CheckSequencer, s, want)
			if n = db.count("look") - n; n != 1 {
				t.Errorf("%d statements", n)
			}
		}
		ask(sqllock.Sequencer{Name: "a", Token: 7}, unknown)
		lease := holder.lock("a")
		first := lease.Sequencer()
		time.Sleep(10 * ttl) // it is renewed
		ask(first, current)
		ask(sqllock.Sequencer{Name: "a", Token: first.Token + 1}, unknown)
		ask(sqllock.Sequencer{Name: "a", Token: first.Token - 1}, stale)
		ask(sqllock.Sequencer{Name: "a", Token: first.Token, Shared: true}, stale)
		ask(sqllock.Sequencer{Name: "A", Token: first.Token}, unknown)
		holder.unlock(lease)
		ask(first, stale)

		crash(t, db, "a") // for a second
		info, err := b.Inspect(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		crashed := sqllock.Sequencer{Name: "a", Token: info.Token}
		ask(crashed, current)
		time.Sleep(1100 * time.Millisecond)
		ask(crashed, stale)
		if _, err := b.Reaper().Reap(t.Context()); err != nil {
			t.Error(err)
		}
		ask(crashed, stale)

		kept := holder.lock("a", sqllock.MinHold(time.Hour))
		holder.unlock(kept)
		ask(kept.Sequencer(), stale) // nobody else can have the name, but the term has ended
		if _, err := b.ForceUnlock(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		ask(kept.Sequencer(), stale)
		forced := holder.lock("a")
		if _, err := b.ForceUnlock(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		ask(forced.Sequencer(), stale)
		_ = forced.Unlock(t.Context())

		delayed := holder.lock("a", sqllock.MaxHold(ttl), sqllock.LockDelay(time.Minute))
		time.Sleep(2 * ttl)
		ask(delayed.Sequencer(), current) // what was sent in time may still arrive
		time.Sleep(time.Minute)
		ask(delayed.Sequencer(), stale)
		_ = delayed.Unlock(t.Context())
	})
}

func TestASharedSequencerIsCurrentWhileAnybodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, nil)
		defer b.close()
		var readers []*sqllock.Lease
		for range 2 {
			lease, err := b.RLock(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			readers = append(readers, lease)
		}
		s := readers[0].Sequencer()
		wantSequencer(t, b.CheckSequencer, s, sqllock.SequencerCurrent)
		wantSequencer(t, b.CheckSequencer, sqllock.Sequencer{Name: "a", Token: s.Token}, sqllock.SequencerStale)
		b.unlock(readers[0])
		wantSequencer(t, b.CheckSequencer, s, sqllock.SequencerCurrent)
		b.unlock(readers[1])
		wantSequencer(t, b.CheckSequencer, s, sqllock.SequencerStale)
	})
}

func TestACheckThatFailsSaysUnknownAndWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, nil)
		checker, err := sqllock.NewSequencerChecker(b.Locker, nil)
		if err != nil {
			t.Fatal(err)
		}
		checks := map[string]func(context.Context, sqllock.Sequencer) (sqllock.SequencerState, error){
			"CheckSequencer": b.CheckSequencer, "Check": checker.Check,
		}
		lease := b.lock("a")
		s := lease.Sequencer()
		over, cancel := context.WithCancel(t.Context())
		cancel()
		fails := func(what string, ctx context.Context, s sqllock.Sequencer, want error, says string) {
			t.Helper()
			for name, check := range checks {
				if state, err := check(ctx, s); state != sqllock.SequencerUnknown || !errors.Is(err, want) || !strings.Contains(err.Error(), says) {
					t.Errorf("%s, %s: %v, %v; want %v, %q", name, what, state, err, want, says)
				}
			}
		}
		n := db.count("look")
		fails("no token", t.Context(), sqllock.Sequencer{Name: "a"}, sqllock.ErrInvalidSequencer, "token 0 must be from 1")
		fails("no name", t.Context(), sqllock.Sequencer{Token: 1}, sqllock.ErrInvalidName, "empty")
		fails("a name too long", t.Context(), sqllock.Sequencer{Name: strings.Repeat("a", 256), Token: 1}, sqllock.ErrInvalidSequencer, "256 bytes")
		fails("a context that is over", over, s, context.Canceled, `of "a"`)
		if db.count("look") != n {
			t.Error("the database was asked")
		}
		db.set(func(f *fake) { f.before = failing("look", errDenied) })
		fails("a database that refuses", t.Context(), s, errDenied, `of "a"`)
		db.set(func(f *fake) { f.before = nil })
		b.unlock(lease)
		b.close()
		fails("a closed Locker", t.Context(), s, sqllock.ErrClosed, "closed")
	})
}

func TestTheStatesOfASequencerHaveNames(t *testing.T) {
	for state, want := range map[sqllock.SequencerState]string{
		sqllock.SequencerUnknown: "unknown", sqllock.SequencerCurrent: "current", sqllock.SequencerStale: "stale", 9: "SequencerState(9)",
	} {
		if state.String() != want {
			t.Errorf("%s, want %s", state, want)
		}
	}
	var none sqllock.SequencerState
	if none != sqllock.SequencerUnknown {
		t.Error("what was not set is not unknown")
	}
}
