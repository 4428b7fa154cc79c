package sqllock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
)

func TestALossIsToldByIsLeaderAtOnceAndByResignOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newFake(), &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		e := b.candidate("a", nil)
		token := b.campaign(e, "").Token()
		b.suspend(ttl)
		if e.IsLeader() {
			t.Error("after a pause as long as the TTL the first look says that it leads")
		}
		for _, test := range []struct {
			what string
			err  error
		}{{"Lease", second(e.Lease())}, {"Proclaim", e.Proclaim(t.Context(), nil)}, {"Resign", e.Resign(t.Context())}} {
			var lost *sqllock.LostError
			if !errors.As(test.err, &lost) || lost.Token != token {
				t.Errorf("%s: %v, want a LostError with token %d", test.what, test.err, token)
			}
		}
		if err := e.Resign(t.Context()); !errors.Is(err, sqllock.ErrNotLeader) {
			t.Errorf("Resign after it: %v, want ErrNotLeader", err)
		}
		if next := b.campaign(e, "").Token(); next <= token {
			t.Errorf("token %d follows token %d", next, token)
		}
		b.resign(e)
	})
}

func TestACampaignAfterALossNeedsNoResign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newFake(), &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		e := b.candidate("a", nil)
		first := b.campaign(e, "")
		b.suspend(ttl)
		next := b.campaign(e, "")
		if next.Token() <= first.Token() || first.Remaining() > 0 {
			t.Errorf("token %d, with %v left, is followed by token %d", first.Token(), first.Remaining(), next.Token())
		}
		b.resign(e)
	})
}

func TestLockDelayKeepsEverybodyFromLeadingAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b, crashing := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl}), newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		const delay = 5 * time.Second
		crashing.campaign(crashing.candidate("a", &sqllock.ElectionOptions{LockDelay: delay}), "")
		crashed := time.Now()
		crashing.crash()
		e := b.candidate("a", nil)
		b.campaign(e, "")
		if took := time.Since(crashed); took < ttl+delay {
			t.Errorf("somebody led %v after the crash, with a TTL of %v and a delay of %v", took, ttl, delay)
		}
		b.resign(e)
		b.campaign(e, "") // it is for a crash, not for a Resign
		if took := time.Since(crashed); took > ttl+delay+time.Second {
			t.Errorf("it took %v until somebody led", took)
		}
		b.resign(e)
	})
}

// crash ends the Locker as a crash does: what it holds is renewed no more.
func (b *bench) crash() {
	_ = closeAtOnce(b.Locker)
}

func BenchmarkIsLeader(b *testing.B) {
	l, err := sqllock.NewWithClock(newFake(), sqllock.SystemNow, nil)
	if err != nil {
		b.Fatal(err)
	}
	e, err := l.Election("a", nil)
	if err != nil {
		b.Fatal(err)
	}
	if err := e.Campaign(b.Context(), nil); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if !e.IsLeader() {
			b.Fatal("it does not lead")
		}
	}
	if err := e.Resign(b.Context()); err != nil {
		b.Error(err)
	}
	if err := l.Close(context.Background()); err != nil {
		b.Error(err)
	}
}
