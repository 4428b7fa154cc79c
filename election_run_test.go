package sqllock_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
)

// running is a Run on a goroutine of its own, each of whose terms the test ends.
type runningElection struct {
	terms chan *sqllock.Lease // fn was called
	ends  chan error          // what fn is to return
	done  chan error
}

func run(ctx context.Context, e *sqllock.Election) *runningElection {
	r := &runningElection{make(chan *sqllock.Lease), make(chan error), make(chan error, 1)}
	go func() {
		r.done <- e.Run(ctx, func(_ context.Context, lease *sqllock.Lease) error {
			r.terms <- lease
			return <-r.ends
		})
	}()
	return r
}

func TestRunFreesTheNameOnlyWhenItsFunctionHasReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		e := b.candidate("a", &sqllock.ElectionOptions{Value: []byte("x")})
		ctx, cancel := context.WithCancel(t.Context())
		r := run(ctx, e)
		lease := <-r.terms
		if string(db.row("a").value) != "x" {
			t.Errorf("the value is %q", db.row("a").value)
		}
		if err := e.Campaign(ctx, nil); !errors.Is(err, sqllock.ErrCampaigning) {
			t.Errorf("Campaign while Run is under way: %v, want ErrCampaigning", err)
		}
		cancel()
		time.Sleep(3 * ttl)
		if !db.held("a") || lease.Remaining() <= 0 || !e.IsLeader() {
			t.Error("the term is over although the function goes on")
		}
		r.ends <- nil
		if err := <-r.done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v, want the error of its context", err)
		}
		if db.held("a") || e.IsLeader() {
			t.Error("the name is held when Run has returned")
		}
	})
}

func TestRunCampaignsAgainAfterALossWhenItsFunctionHasReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		e := b.candidate("a", nil)
		ctx, cancel := context.WithCancel(t.Context())
		r := run(ctx, e)
		first := <-r.terms
		if _, err := b.ForceUnlock(ctx, "a"); err != nil {
			t.Fatal(err)
		}
		<-first.Context().Done()
		time.Sleep(ttl)
		if db.held("a") {
			t.Error("Run campaigns while its function goes on")
		}
		r.ends <- errors.New("because the term was lost")
		next := <-r.terms
		if next.Token() <= first.Token() {
			t.Errorf("token %d follows token %d", next.Token(), first.Token())
		}
		cancel()
		r.ends <- nil
		if err := <-r.done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v, want the error of its context", err)
		}
	})
}

func TestRunGivesItsFunctionAContextThatEndsWithTheTermAndCarriesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newFake(), &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		type key struct{}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "mine"))
		e := b.candidate("a", nil)
		err := e.Run(ctx, func(ctx context.Context, lease *sqllock.Lease) error {
			again, err := b.TryLock(ctx, "a")
			if err != nil || again.Token() != lease.Token() || ctx.Value(key{}) != "mine" {
				t.Errorf("TryLock with the term's context: %v, %v; and its value is %v", again, err, ctx.Value(key{}))
			}
			b.unlock(again)
			b.suspend(ttl)
			if !errors.Is(context.Cause(ctx), sqllock.ErrLost) || ctx.Err() == nil {
				t.Errorf("the cause after a loss is %v", context.Cause(ctx))
			}
			cancel()
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v, want the error of its context", err)
		}
	})
}

func TestAnErrorOfALeaderEndsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		e := b.candidate("a", nil)
		failure := errors.New("of the application")
		if err := e.Run(t.Context(), func(context.Context, *sqllock.Lease) error { return failure }); !errors.Is(err, failure) {
			t.Errorf("Run: %v, want %v", err, failure)
		}
		if db.held("a") {
			t.Error("the name is held when Run has returned")
		}
		db.set(func(f *fake) { f.before = failing("grant", errDenied) })
		if err := e.Run(t.Context(), func(context.Context, *sqllock.Lease) error { return nil }); !errors.Is(err, errDenied) {
			t.Errorf("Run on a database that refuses: %v", err)
		}
	})
}

func TestALeaderWhoseFunctionReturnsJoinsTheQueueAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		ctx, cancel := context.WithCancel(t.Context())
		r := run(ctx, b.candidate("a", nil))
		<-r.terms
		waiting := queuedWaiter(t, b, ctx, "a")
		r.ends <- nil
		lease := <-waiting
		synctest.Wait()
		b.unlock(lease)
		<-r.terms
		cancel()
		r.ends <- nil
		<-r.done
	})
}

func TestAPanicOrAGoexitInATermFreesTheName(t *testing.T) {
	for what, fn := range map[string]func(){"panic": func() { panic("of the application") }, "Goexit": runtime.Goexit} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := newFake()
				b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
				defer b.close()
				e := b.candidate("a", nil)
				logged := make(chan any)
				go func() {
					defer func() { logged <- recover() }()
					_ = e.Run(t.Context(), func(context.Context, *sqllock.Lease) error {
						fn()
						return nil
					})
				}()
				if v := <-logged; what == "panic" && v != "of the application" {
					t.Errorf("the panic says %v", v)
				}
				if db.held("a") || e.IsLeader() {
					t.Error("the name is held")
				}
				b.campaign(e, "") // and the Election can be used
				b.resign(e)
			})
		})
	}
}

func TestCloseEndsATermAndItsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		done := make(chan error)
		leads := make(chan struct{})
		go func() {
			done <- b.candidate("a", nil).Run(t.Context(), func(ctx context.Context, _ *sqllock.Lease) error {
				close(leads)
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), sqllock.ErrClosed) {
					t.Errorf("the cause is %v, want ErrClosed", context.Cause(ctx))
				}
				return nil
			})
		}()
		<-leads
		b.close()
		if err := <-done; !errors.Is(err, sqllock.ErrClosed) {
			t.Errorf("Run: %v, want ErrClosed", err)
		}
		if db.held("a") {
			t.Error("the name is held")
		}
	})
}
