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

// candidate is one that makes no mistake in its options.
func (b *bench) candidate(name string, o *sqllock.ElectionOptions) *sqllock.Election {
	b.t.Helper()
	e, err := b.Election(name, o)
	if err != nil {
		b.t.Fatalf("Election(%q): %v", name, err)
	}
	return e
}

func (b *bench) campaign(e *sqllock.Election, value string) *sqllock.Lease {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), testTimeout)
	defer cancel()
	if err := e.Campaign(ctx, []byte(value)); err != nil {
		b.t.Fatalf("Campaign: %v", err)
	}
	return b.term(e)
}

func (b *bench) term(e *sqllock.Election) *sqllock.Lease {
	b.t.Helper()
	lease, err := e.Lease()
	if err != nil || !e.IsLeader() {
		b.t.Fatalf("Lease() = %v, %v and IsLeader() = %v of a leader", lease, err, e.IsLeader())
	}
	return lease
}

func (b *bench) resign(e *sqllock.Election) {
	b.t.Helper()
	if err := e.Resign(b.t.Context()); err != nil {
		b.t.Errorf("Resign: %v", err)
	}
	if e.IsLeader() {
		b.t.Error("a candidate that has resigned leads")
	}
}

// statements is how many have run, of whatever kind.
func (f *fake) statements() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, sent := range f.sent {
		n += sent
	}
	return n
}

func TestAnElectionThatMakesNoSenseIsRefusedBeforeAnySQL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl, Reaper: &sqllock.ReaperOptions{Off: true}})
		defer b.close()
		for what, o := range map[string]*sqllock.ElectionOptions{
			"an identity of 256 bytes":       {Identity: strings.Repeat("x", 256)},
			"an identity with NUL":           {Identity: "a\x00"},
			"an identity that is not UTF-8":  {Identity: "\xff"},
			"a value of more than 64 KiB":    {Value: make([]byte, 64<<10+1)},
			"a TTL of 99 ms":                 {TTL: 99 * time.Millisecond},
			"a TTL of more than a day":       {TTL: 25 * time.Hour},
			"a lock delay below 0":           {LockDelay: -1},
			"a lock delay of more than 24 h": {LockDelay: 25 * time.Hour},
		} {
			if e, err := b.Election("a", o); e != nil || !errors.Is(err, sqllock.ErrInvalidOption) {
				t.Errorf("%s: %v, %v; want ErrInvalidOption", what, e, err)
			}
		}
		for _, name := range []string{"", strings.Repeat("x", 256), "a\x00", "\xff"} {
			if e, err := b.Election(name, nil); e != nil || !errors.Is(err, sqllock.ErrInvalidName) {
				t.Errorf("Election(%.10q) = %v, %v; want ErrInvalidName", name, e, err)
			}
		}
		e := b.candidate("a", nil)
		if err := e.Campaign(t.Context(), make([]byte, 64<<10+1)); !errors.Is(err, sqllock.ErrInvalidOption) {
			t.Errorf("Campaign with more than 64 KiB: %v", err)
		}
		for what, err := range map[string]error{"Resign": e.Resign(t.Context()), "Proclaim": e.Proclaim(t.Context(), nil), "Lease": second(e.Lease())} {
			if !errors.Is(err, sqllock.ErrNotLeader) {
				t.Errorf("%s of somebody who never led: %v, want ErrNotLeader", what, err)
			}
		}
		if n := db.statements(); n != 0 {
			t.Errorf("%d statements were sent", n)
		}
		if err := e.Campaign(t.Context(), make([]byte, 64<<10)); err != nil {
			t.Errorf("Campaign with 64 KiB after one that was refused: %v", err)
		}
		b.resign(e)
	})
}

func second[T any](_ T, err error) error { return err }

func TestAStatementTimeoutThatCouldCostTheTermIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newFake(), &sqllock.UniqueOptions{TTL: ttl, StatementTimeout: ttl * 2 / 3})
		defer b.close()
		if e, err := b.Election("a", nil); e != nil || !errors.Is(err, sqllock.ErrInvalidOption) {
			t.Errorf("with a third of %v between renewals that take two thirds: %v, %v", ttl, e, err)
		}
		if _, err := b.Election("a", &sqllock.ElectionOptions{TTL: 2 * ttl}); err != nil {
			t.Errorf("with a longer TTL: %v", err)
		}
	})
}

func TestCandidatesLeadInTheOrderInWhichTheyCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		a, b := newBench(t, db, nil), newBench(t, db, nil)
		defer a.close()
		defer b.close()
		first := a.candidate("a", nil)
		before := a.campaign(first, "first")
		order := make(chan int, 4)
		for i := range 4 {
			e := []*bench{a, b}[i%2].candidate("a", nil)
			go func() {
				if err := e.Campaign(t.Context(), nil); err != nil {
					t.Errorf("Campaign: %v", err)
					return
				}
				order <- i
				if err := e.Resign(t.Context()); err != nil {
					t.Errorf("Resign: %v", err)
				}
			}()
			for db.waiters("a") == i {
				time.Sleep(time.Millisecond)
			}
		}
		a.resign(first)
		for i := range 4 {
			if got := <-order; got != i {
				t.Errorf("candidate %d led as number %d", got, i)
			}
		}
		if token := db.row("a").version; token <= before.Token() {
			t.Errorf("token %d follows token %d", token, before.Token())
		}
	})
}

func TestACandidateCampaignsOnceAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newFake(), &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		holder := b.lock("a")
		e := b.candidate("a", nil)
		nothing := func(context.Context, *sqllock.Lease) error { return nil }
		done := make(chan error, 1)
		go func() { done <- e.Campaign(t.Context(), nil) }()
		synctest.Wait()
		for what, err := range map[string]error{"Campaign": e.Campaign(t.Context(), nil), "Run": e.Run(t.Context(), nothing)} {
			if !errors.Is(err, sqllock.ErrCampaigning) {
				t.Errorf("%s while a Campaign is under way: %v, want ErrCampaigning", what, err)
			}
		}
		if err := e.Resign(t.Context()); !errors.Is(err, sqllock.ErrNotLeader) || e.IsLeader() {
			t.Errorf("Resign of a candidate that campaigns: %v", err)
		}
		b.unlock(holder)
		if err := <-done; err != nil {
			t.Fatalf("Campaign: %v", err)
		}
		for what, err := range map[string]error{"Campaign": e.Campaign(t.Context(), nil), "Run": e.Run(t.Context(), nothing)} {
			if !errors.Is(err, sqllock.ErrLeading) {
				t.Errorf("%s of a leader: %v, want ErrLeading", what, err)
			}
		}
		b.term(e)
		b.resign(e)
		if err := e.Resign(t.Context()); !errors.Is(err, sqllock.ErrNotLeader) {
			t.Errorf("a second Resign: %v, want ErrNotLeader", err)
		}
		b.campaign(e, "")
		b.resign(e)
	})
}

// A request can go on when Campaign has returned.
func TestACampaignCopiesItsValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		e, value := b.candidate("a", nil), []byte("first")
		if err := e.Campaign(t.Context(), value); err != nil {
			t.Fatal(err)
		}
		copy(value, "other")
		if got := string(db.row("a").value); got != "first" {
			t.Errorf("the value is %q", got)
		}
		b.resign(e)
	})
}

func TestACampaignWhoseContextEndsLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		holder := b.lock("a")
		e := b.candidate("a", nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := e.Campaign(ctx, nil); !errors.Is(err, context.DeadlineExceeded) || e.IsLeader() {
			t.Errorf("Campaign: %v", err)
		}
		synctest.Wait()
		if n := db.waiters("a"); n != 0 {
			t.Errorf("%d tickets are left", n)
		}
		b.unlock(holder)
		b.campaign(e, "") // it can try again
		b.resign(e)
	})
}

func TestACampaignDoesNotReenterALeaseOrAnOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newFake(), &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		e, other := b.candidate("a", &sqllock.ElectionOptions{Identity: "x"}), b.candidate("a", nil)
		lease := b.campaign(e, "")
		for what, ctx := range map[string]context.Context{"the lease": lease.Context(), "its owner": sqllock.WithOwner(t.Context(), "x")} {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			if err := other.Campaign(ctx, nil); err == nil {
				t.Fatalf("a second candidate leads with a context that carries %s", what)
			}
			cancel()
		}
		b.term(e)
		b.resign(e)
	})
}
