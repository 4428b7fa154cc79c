package sqllock_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
)

// releaseStore notes which releases are sent to a fake as Awaited.
type releaseStore struct {
	*fake
	awaited []bool
}

func (s *releaseStore) Release(ctx context.Context, reqs []driver.ReleaseRequest) ([]driver.ReleaseResult, error) {
	s.set(func(*fake) {
		for i := range reqs {
			s.awaited = append(s.awaited, reqs[i].Awaited)
		}
	})
	return s.fake.Release(ctx, reqs)
}

// lastAwaited returns whether the last release was sent as Awaited.
func (s *releaseStore) lastAwaited() (is bool) {
	s.set(func(*fake) { is = s.awaited[len(s.awaited)-1] })
	return is
}

// rivals are two Lockers that want the name a.
type rivals struct {
	*bench
	other *bench
	store *releaseStore
}

func newRivals(t *testing.T) *rivals {
	db := newFake()
	store := &releaseStore{fake: db}
	return &rivals{newBenchOn(t, store, db, nil), newBench(t, db, nil), store}
}

func (c *rivals) close() {
	c.bench.close()
	c.other.close()
}

// passOver has the name handed over to this Locker, and given up by it.
func (c *rivals) passOver() {
	c.t.Helper()
	lease := c.other.lock("a")
	got := queuedWaiter(c.t, c.bench, c.t.Context(), "a")
	c.other.unlock(lease)
	c.unlock(<-got)
}

// looks returns how often the name is looked at while f runs.
func (c *rivals) looks(f func()) int {
	before := c.db.count("grant")
	f()
	return c.db.count("grant") - before
}

// lockAtOnce locks the name, which is free, and checks how often it is looked at before that.
func (c *rivals) lockAtOnce(looks int) (lease *sqllock.Lease) {
	c.t.Helper()
	if n := c.looks(func() { lease = c.lock("a") }); n != looks {
		c.t.Errorf("%d looks at a name that is free, want %d", n, looks)
	}
	return lease
}

func TestATermFromTheQueueCountsAsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRivals(t)
		defer c.close()
		c.passOver()
		lease := c.lockAtOnce(0) // from the queue, where nobody was
		waiting := queuedWaiter(t, c.other, t.Context(), "a")
		c.unlock(lease)
		if !c.store.lastAwaited() {
			t.Error("the release of a term from the queue was not Awaited")
		}
		var next <-chan *sqllock.Lease
		if n := c.looks(func() { next = queuedWaiter(t, c.bench, t.Context(), "a") }); n != 0 {
			t.Errorf("%d looks at a name that was just handed over", n)
		}
		c.other.unlock(<-waiting)
		c.unlock(<-next)
	})
}

func TestANameThatNobodyWaitedForIsLookedAtAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRivals(t)
		defer c.close()
		c.passOver()
		c.unlock(c.lockAtOnce(0))
		c.unlock(c.lockAtOnce(1)) // the release before found nobody
		if c.store.lastAwaited() {
			t.Error("the release of a term that did not come from the queue was Awaited")
		}
	})
}

func TestASharedTermFromTheQueueDoesNotCountAsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRivals(t)
		defer c.close()
		c.passOver()
		var lease *sqllock.Lease
		if n := c.looks(func() { lease = c.rlock(t.Context(), "a") }); n != 0 {
			t.Errorf("%d looks", n)
		}
		c.unlock(lease)
		if c.store.lastAwaited() {
			t.Error("the release of a shared term was Awaited")
		}
	})
}
