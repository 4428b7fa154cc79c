package sqllock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
)

// leading is a candidate that leads.
func (b *bench) leading(name string, o *sqllock.ElectionOptions) (*sqllock.Election, *sqllock.Lease) {
	b.t.Helper()
	c, err := b.Election(name, o)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := c.Campaign(b.t.Context(), nil); err != nil {
		b.t.Fatal(err)
	}
	lease, err := c.Lease()
	if err != nil {
		b.t.Fatal(err)
	}
	return c, lease
}

func TestALeaderThatListensHearsOfARequestWithinASecond(t *testing.T) {
	for _, leaderTTL := range []time.Duration{time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, newFake(), &sqllock.UniqueOptions{TTL: leaderTTL})
			defer b.close()
			c, lease := b.leading("a", &sqllock.ElectionOptions{ResignOnRequest: true})
			time.Sleep(10 * time.Second)
			began := time.Now()
			requested := make(chan error, 1)
			go func() { requested <- c.RequestResign(t.Context()) }()
			<-lease.Context().Done()
			if took := time.Since(began); took > min(leaderTTL/3, time.Second)+time.Millisecond {
				t.Errorf("with a TTL of %v the leader was told after %v", leaderTTL, took)
			}
			time.Sleep(leaderTTL)
			if cause := context.Cause(lease.Context()); cause != sqllock.ErrResignRequested || !c.IsLeader() {
				t.Errorf("the context ended because of %v, and it leads: %v", cause, c.IsLeader())
			}
			if err := c.Resign(t.Context()); err != nil {
				t.Error(err)
			}
			if err := <-requested; err != nil {
				t.Errorf("RequestResign: %v", err)
			}
		})
	}
}

func TestALeaderThatDoesNotListenReadsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		c, lease := b.leading("a", nil)
		before := db.count("look")
		time.Sleep(10 * ttl)
		if n := db.count("look") - before; n > 0 {
			t.Errorf("%d statements", n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), ttl)
		defer cancel()
		if err := c.RequestResign(ctx); !errors.Is(err, sqllock.ErrResignRefused) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("RequestResign: %v", err)
		}
		if err := lease.Context().Err(); err != nil {
			t.Errorf("the lease has ended: %v", err)
		}
		if err := c.Resign(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestARequestToResignOutlastsAnOutage(t *testing.T) {
	for _, fault := range []error{errDown, errNoReply, errDeadlock} {
		synctest.Test(t, func(t *testing.T) {
			db := newFake()
			b := newBench(t, db, &sqllock.UniqueOptions{TTL: time.Minute})
			defer b.close()
			c, lease := b.leading("a", &sqllock.ElectionOptions{ResignOnRequest: true})
			db.set(func(f *fake) {
				f.before = func(_ context.Context, kind string) error {
					if kind == "ask" || kind == "look" {
						return fault
					}
					return nil
				}
			})
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			if err := c.RequestResign(ctx); err == nil || errors.Is(err, sqllock.ErrResignRefused) {
				t.Errorf("nobody was asked, and the error is %v", err)
			}
			db.set(func(f *fake) { f.before = failing("ask", fault) })
			requested := make(chan error, 1)
			go func() { requested <- c.RequestResign(t.Context()) }()
			time.Sleep(5 * time.Second)
			if lease.Context().Err() != nil {
				t.Fatal("the leader was asked during the outage")
			}
			db.set(func(f *fake) { f.before = nil })
			<-lease.Context().Done()
			if err := c.Resign(t.Context()); err != nil {
				t.Error(err)
			}
			if err := <-requested; err != nil {
				t.Errorf("RequestResign: %v", err)
			}
		})
	}
}

func TestCloseEndsAWaitForAResignation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newFake(), &sqllock.UniqueOptions{TTL: ttl})
		c, lease := b.leading("a", &sqllock.ElectionOptions{ResignOnRequest: true})
		requester, err := b.Election("a", nil)
		if err != nil {
			t.Fatal(err)
		}
		stubborn, _ := b.leading("b", nil)
		waiting := make(chan error, 1)
		go func() {
			other, _ := b.Election("b", nil)
			waiting <- other.RequestResign(t.Context())
		}()
		time.Sleep(time.Second)
		closed := make(chan struct{})
		go func() { b.close(); close(closed) }()
		if err := <-waiting; !errors.Is(err, sqllock.ErrClosed) {
			t.Errorf("RequestResign: %v", err)
		}
		<-lease.Context().Done()
		if cause := context.Cause(lease.Context()); cause != sqllock.ErrClosed {
			t.Errorf("the context ended because of %v", cause)
		}
		for _, c := range []*sqllock.Election{c, stubborn} {
			if err := c.Resign(t.Context()); err != nil {
				t.Error(err)
			}
		}
		<-closed
		if err := requester.RequestResign(t.Context()); !errors.Is(err, sqllock.ErrClosed) {
			t.Errorf("RequestResign after Close: %v", err)
		}
	})
}
