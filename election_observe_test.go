package sqllock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
)

func TestLeaderTellsWhoLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		a, b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl}), newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		e, other := a.candidate("a", me), b.candidate("a", nil)
		if term, err := other.Leader(t.Context()); !errors.Is(err, sqllock.ErrNoLeader) || !term.Vacant() {
			t.Errorf("Leader before anybody led: %+v, %v", term, err)
		}
		since := time.Now()
		lease := a.campaign(e, "value")
		term, err := other.Leader(t.Context())
		if err != nil || term.Name != "a" || term.Identity != "me" || term.Label != "fake" || term.Token != lease.Token() ||
			!term.Since.Equal(since) || string(term.Value) != "value" {
			t.Errorf("Leader = %+v, %v", term, err)
		}
		if err := e.Proclaim(t.Context(), []byte("another")); err != nil {
			t.Errorf("Proclaim: %v", err)
		}
		if term, err := other.Leader(t.Context()); err != nil || string(term.Value) != "another" || term.Token != lease.Token() {
			t.Errorf("Leader after Proclaim = %+v, %v", term, err)
		}
		a.crash()
		if _, err := other.Leader(t.Context()); err != nil {
			t.Errorf("Leader just after a crash: %v", err)
		}
		time.Sleep(3 * ttl)
		if term, err := other.Leader(t.Context()); !errors.Is(err, sqllock.ErrNoLeader) {
			t.Errorf("Leader when the lease has expired: %+v, %v", term, err)
		}
		reader, err := b.RLock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if term, err := other.Leader(t.Context()); !errors.Is(err, sqllock.ErrNoLeader) {
			t.Errorf("Leader while somebody shares the name: %+v, %v", term, err)
		}
		b.unlock(reader)
	})
}

func TestAProclamationOfATermThatIsOverIsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		e := b.candidate("a", nil)
		b.campaign(e, "value")
		db.set(func(f *fake) {
			x := f.rows["a"]
			x.version++ // by hand
		})
		if err := e.Proclaim(t.Context(), []byte("late")); !errors.Is(err, sqllock.ErrLost) || e.IsLeader() {
			t.Errorf("Proclaim: %v, want a loss that is known from then on", err)
		}
		if v := db.row("a").value; string(v) != "value" {
			t.Errorf("the value is %q", v)
		}
		_ = e.Resign(t.Context())
		time.Sleep(3 * ttl)
	})
}

func TestAProclamationIsRepeatedWhileTheDatabaseAsksForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		e := b.candidate("a", nil)
		b.campaign(e, "")
		db.set(func(f *fake) { f.before = failing("proclaim", errDeadlock) })
		go func() {
			time.Sleep(time.Second)
			db.set(func(f *fake) { f.before = nil })
		}()
		if err := e.Proclaim(t.Context(), []byte("x")); err != nil || string(db.row("a").value) != "x" {
			t.Errorf("Proclaim: %v, and the value is %q", err, db.row("a").value)
		}
		db.set(func(f *fake) { f.before = failing("proclaim", errDeadlock) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := e.Proclaim(ctx, []byte("y")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Proclaim whose context ends: %v", err)
		}
		b.resign(e)
	})
}

// observing is an Observe on a goroutine of its own.
func observing(ctx context.Context, e *sqllock.Election) (<-chan sqllock.Term, <-chan error) {
	terms, end := make(chan sqllock.Term, 1000), make(chan error, 1)
	go func() {
		for term, err := range e.Observe(ctx) {
			if err != nil {
				end <- err
				return
			}
			terms <- term
		}
	}()
	return terms, end
}

func TestObserveYieldsEachTermAndEachValueAndTheVacancies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		ctx, cancel := context.WithCancel(t.Context())
		terms, end := observing(ctx, b.candidate("a", nil))
		want := func(value string) {
			t.Helper()
			time.Sleep(2 * sqllock.DefaultRetryMax)
			select {
			case term := <-terms:
				if string(term.Value) != value || term.Vacant() != (value == "") || term.Vacant() && (term.Identity != "" || !term.Since.IsZero()) {
					t.Errorf("Observe yields %+v, want the value %q", term, value)
				}
			default:
				t.Errorf("Observe yields nothing, want the value %q", value)
			}
		}
		want("")
		e := b.candidate("a", nil)
		b.campaign(e, "first")
		want("first")
		if err := e.Proclaim(t.Context(), []byte("second")); err != nil {
			t.Error(err)
		}
		want("second")
		b.resign(e)
		want("")
		crashing := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		crashing.campaign(crashing.candidate("a", nil), "third")
		want("third")
		crashing.crash()
		time.Sleep(ttl)
		want("")
		db.set(func(f *fake) { f.before = failing("look", errDown) }) // what comes meanwhile is not missed
		b.campaign(e, "fourth")
		b.resign(e)
		b.campaign(e, "last")
		time.Sleep(ttl)
		db.set(func(f *fake) { f.before = nil })
		want("last")
		db.set(func(f *fake) { f.before = failing("look", errDown) })
		b.resign(e)
		b.campaign(e, "last") // another term all the same
		time.Sleep(ttl)
		db.set(func(f *fake) { f.before = nil })
		want("last")
		cancel()
		if err := <-end; !errors.Is(err, context.Canceled) {
			t.Errorf("Observe ends with %v", err)
		}
		if len(terms) > 0 {
			t.Errorf("Observe yields %+v as well", <-terms)
		}
		b.resign(e)
	})
}
