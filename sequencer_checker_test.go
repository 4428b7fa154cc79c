package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
)

// checking is a checker on a fake database.
type checkerBench struct {
	*bench
	*sqllock.SequencerChecker
}

func newChecking(t *testing.T, db *fake, o *sqllock.SequencerCheckerOptions) *checkerBench {
	t.Helper()
	b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
	c, err := sqllock.NewSequencerChecker(b.Locker, o)
	if err != nil {
		t.Fatal(err)
	}
	return &checkerBench{b, c}
}

// check checks what the checker says of a sequencer, and how often it asks for that.
func (c *checkerBench) check(s sqllock.Sequencer, want sqllock.SequencerState, statements int) {
	c.t.Helper()
	n := c.db.count("look")
	wantSequencer(c.t, c.Check, s, want)
	if n = c.db.count("look") - n; n != statements {
		c.t.Errorf("%d statements for %v, want %d", n, s, statements)
	}
}

// term locks and unlocks a name and returns the sequencer.
func (c *checkerBench) term(name string) sqllock.Sequencer {
	c.t.Helper()
	lease := c.lock(name)
	c.unlock(lease)
	return lease.Sequencer()
}

func TestACheckerAsksNobodyAboutATermBelowTheHighest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		c := newChecking(t, db, nil)
		defer c.close()
		former := c.term("a")
		lease := c.lock("a")
		c.check(lease.Sequencer(), sqllock.SequencerCurrent, 1)
		c.check(former, sqllock.SequencerStale, 0)
		c.check(lease.Sequencer(), sqllock.SequencerCurrent, 0)
		c.check(sqllock.Sequencer{Name: "a", Token: lease.Token(), Shared: true}, sqllock.SequencerStale, 1)
		c.check(lease.Sequencer(), sqllock.SequencerCurrent, 0) // whoever made that one up has changed nothing
		higher := sqllock.Sequencer{Name: "a", Token: lease.Token() + 1}
		c.check(higher, sqllock.SequencerUnknown, 1)
		c.check(higher, sqllock.SequencerUnknown, 1) // which is not remembered
		c.check(lease.Sequencer(), sqllock.SequencerCurrent, 0)
		c.unlock(lease)
		time.Sleep(2 * sqllock.DefaultSequencerAge)
		c.check(lease.Sequencer(), sqllock.SequencerStale, 1)
		c.check(lease.Sequencer(), sqllock.SequencerStale, 0) // what has ended does not begin again
		db.set(func(f *fake) { delete(f.rows, "a") })         // the database forgets
		c.check(former, sqllock.SequencerStale, 0)
	})
}

func TestWhatWasCurrentIsAskedForAgainWhenItIsTooOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		c := newChecking(t, db, &sqllock.SequencerCheckerOptions{MaxAge: 2 * time.Second})
		defer c.close()
		s := c.lock("a", sqllock.TTL(time.Minute))
		db.set(func(f *fake) { f.after = after("look", 1500*time.Millisecond) })
		c.check(s.Sequencer(), sqllock.SequencerCurrent, 1)
		time.Sleep(400 * time.Millisecond)
		c.check(s.Sequencer(), sqllock.SequencerCurrent, 0)
		time.Sleep(200 * time.Millisecond) // the age counts from before the question
		c.check(s.Sequencer(), sqllock.SequencerCurrent, 1)
		db.set(func(f *fake) { f.after = nil })
		c.suspend(time.Second) // on a clock that goes on meanwhile
		c.check(s.Sequencer(), sqllock.SequencerCurrent, 1)
		c.unlock(s)
		c.check(s.Sequencer(), sqllock.SequencerCurrent, 0) // as MaxAge allows
		time.Sleep(2 * time.Second)
		c.check(s.Sequencer(), sqllock.SequencerStale, 1)
	})
}

func TestWhatWasCurrentIsAskedForAgainWhenItsLeaseMayHaveExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		c := newChecking(t, db, &sqllock.SequencerCheckerOptions{MaxAge: time.Hour})
		defer c.close()
		crash(t, db, "a") // for a second
		info, err := c.Inspect(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		s := sqllock.Sequencer{Name: "a", Token: info.Token}
		c.check(s, sqllock.SequencerCurrent, 1)
		time.Sleep(900 * time.Millisecond)
		c.check(s, sqllock.SequencerCurrent, 0)
		time.Sleep(200 * time.Millisecond)
		c.check(s, sqllock.SequencerStale, 1)
	})
}

func TestACheckerForgetsTheNameThatNobodyAskedForLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		c := newChecking(t, db, &sqllock.SequencerCheckerOptions{MaxNames: 2})
		defer c.close()
		former := c.term("a")
		leases := make(map[string]*sqllock.Lease)
		for _, name := range []string{"a", "b", "c"} {
			leases[name] = c.lock(name)
			defer c.unlock(leases[name])
		}
		c.check(leases["a"].Sequencer(), sqllock.SequencerCurrent, 1)
		c.check(leases["b"].Sequencer(), sqllock.SequencerCurrent, 1)
		for i := range 100 { // of names that strangers invent nothing is kept
			c.check(sqllock.Sequencer{Name: fmt.Sprint("invented ", i), Token: 7}, sqllock.SequencerUnknown, 1)
		}
		c.check(former, sqllock.SequencerStale, 0)                    // now b is the oldest
		c.check(leases["c"].Sequencer(), sqllock.SequencerCurrent, 1) // and is forgotten
		c.check(former, sqllock.SequencerStale, 0)
		c.check(leases["b"].Sequencer(), sqllock.SequencerCurrent, 1) // instead of c
		c.check(leases["c"].Sequencer(), sqllock.SequencerCurrent, 1) // instead of a
		c.check(former, sqllock.SequencerStale, 1)                    // the database remembers what the checker forgot
	})
}

func TestACheckerAsksOnceForAllWhoWantToKnowTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		c := newChecking(t, db, nil)
		defer c.close()
		lease := c.lock("a", sqllock.TTL(time.Minute))
		defer c.unlock(lease)
		db.set(func(f *fake) { f.before = after("look", 500*time.Millisecond) })
		all := func(s sqllock.Sequencer, want sqllock.SequencerState) {
			t.Helper()
			n := db.count("look")
			var wg sync.WaitGroup
			for range 100 {
				wg.Go(func() { wantSequencer(t, c.Check, s, want) })
			}
			wg.Wait()
			if n = db.count("look") - n; n != 1 {
				t.Errorf("%d statements for %v", n, s)
			}
		}
		all(lease.Sequencer(), sqllock.SequencerCurrent)
		all(sqllock.Sequencer{Name: "a", Token: lease.Token() + 1}, sqllock.SequencerUnknown)
		all(sqllock.Sequencer{Name: "none", Token: 7}, sqllock.SequencerUnknown)
	})
}

func TestWhoDoesNotWaitForTheAnswerTakesItFromNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		c := newChecking(t, db, nil)
		defer c.close()
		lease := c.lock("a", sqllock.TTL(time.Minute))
		defer c.unlock(lease)
		db.set(func(f *fake) { f.before = after("look", time.Second) })
		short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() { // asks
			if _, err := c.Check(short, lease.Sequencer()); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the one who asked: %v", err)
			}
		})
		time.Sleep(100 * time.Millisecond)
		wg.Go(func() { // waits for that answer, and not for longer
			short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			start := time.Now()
			_, err := c.Check(short, lease.Sequencer())
			if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took > 100*time.Millisecond {
				t.Errorf("the one who waited: %v after %v", err, took)
			}
		})
		for range 10 {
			wg.Go(func() { wantSequencer(t, c.Check, lease.Sequencer(), sqllock.SequencerCurrent) })
		}
		wg.Wait()
	})
}

// TestACheckerNeverGoesBack has the answer to an earlier question come later: the
// former holder's term was current when the database was asked.
func TestACheckerNeverGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		c := newChecking(t, db, nil)
		defer c.close()
		former := c.lock("a")
		db.set(func(f *fake) { f.after = after("look", time.Second) })
		late := make(chan sqllock.SequencerState, 1)
		go func() {
			state, err := c.Check(t.Context(), former.Sequencer())
			if err != nil {
				t.Error(err)
			}
			late <- state
		}()
		time.Sleep(500 * time.Millisecond)
		db.set(func(f *fake) { f.after = nil })
		c.unlock(former)
		lease := c.lock("a")
		c.check(lease.Sequencer(), sqllock.SequencerCurrent, 1)
		if state := <-late; state != sqllock.SequencerStale {
			t.Errorf("after the successor's term was seen, the former one is %v", state)
		}
		c.check(lease.Sequencer(), sqllock.SequencerCurrent, 0)
		c.unlock(lease)
	})
}

// TestACheckerNeverGoesBackUnderLoad has many check the terms of a few names that come
// and go, with an age that lets most answers come from memory.
func TestACheckerNeverGoesBackUnderLoad(t *testing.T) {
	db := newFake()
	c := newChecking(t, db, &sqllock.SequencerCheckerOptions{MaxAge: time.Millisecond})
	defer c.close()
	type state struct{ latest, seen atomic.Int64 } // a token that was granted, and the highest that was called current
	names := []string{"a", "b"}
	states := make(map[string]*state)
	for _, name := range names {
		states[name] = new(state)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	var wg sync.WaitGroup
	for _, name := range names {
		wg.Go(func() {
			for ctx.Err() == nil {
				lease := c.lock(name)
				states[name].latest.Store(lease.Token())
				time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
				c.unlock(lease)
			}
		})
		for range 8 {
			wg.Go(func() {
				st := states[name]
				for ctx.Err() == nil {
					s := sqllock.Sequencer{Name: name, Token: max(1, st.latest.Load())}
					before := st.seen.Load()
					got, err := c.Check(t.Context(), s)
					if err != nil {
						t.Error(err)
					}
					if got != sqllock.SequencerCurrent {
						continue
					}
					if s.Token < before {
						t.Errorf("token %d is current after token %d was", s.Token, before)
					}
					for old := st.seen.Load(); old < s.Token && !st.seen.CompareAndSwap(old, s.Token); old = st.seen.Load() {
					}
				}
			})
		}
	}
	wg.Wait()
	for _, name := range names {
		if states[name].seen.Load() == 0 {
			t.Errorf("no term of %q was ever current", name)
		}
	}
}

func TestACheckerRefusesOptionsOutOfBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newFake(), nil)
		defer b.close()
		for _, o := range []sqllock.SequencerCheckerOptions{{MaxAge: -1}, {MaxAge: sqllock.MaxTTL + 1}, {MaxNames: -1}} {
			if c, err := sqllock.NewSequencerChecker(b.Locker, &o); c != nil || !errors.Is(err, sqllock.ErrInvalidOption) {
				t.Errorf("%+v: %v, %v", o, c, err)
			}
		}
		if c, err := sqllock.NewSequencerChecker(nil, nil); c != nil || !errors.Is(err, sqllock.ErrInvalidOption) {
			t.Errorf("no Locker: %v, %v", c, err)
		}
	})
}
