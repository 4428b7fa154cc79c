package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
)

// sessionBench is a Locker on fake sessions.
type sessionBench struct {
	*testing.T
	db    *fakeSessions
	locks *sqllock.Locker
}

// onSessions runs a test with one session for all locks, and with one for each.
func onSessions(t *testing.T, test func(b *sessionBench)) {
	for name, conns := range map[string]int{"one session": 0, "a session each": 20} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(newSessionBench(t, conns)) })
		})
	}
}

func newSessionBench(t *testing.T, conns int) *sessionBench {
	return newSessionBenchOn(t, newFakeSessions(), conns)
}

func newSessionBenchOn(t *testing.T, db *fakeSessions, conns int) *sessionBench {
	b := &sessionBench{T: t, db: db}
	start := time.Now()
	var err error
	b.locks, err = sqllock.NewSessionsWithClock(b.db, func() time.Duration { return time.Since(start) },
		&sqllock.ForUpdateOptions{TTL: ttl, Reaper: &sqllock.ReaperOptions{Off: true}}, conns)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *sessionBench) lock(name string) *sqllock.Lease {
	b.Helper()
	return b.lockWithin(time.Hour, name)
}

func (b *sessionBench) lockWithin(d time.Duration, name string) *sqllock.Lease {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), d)
	defer cancel()
	lease, err := b.locks.Lock(ctx, name)
	if err != nil {
		b.Fatal(err)
	}
	return lease
}

func (b *sessionBench) unlock(lease *sqllock.Lease) {
	b.Helper()
	if err := lease.Unlock(b.Context()); err != nil {
		b.Error(err)
	}
}

// close closes the Locker, which must leave nothing.
func (b *sessionBench) close() {
	b.Helper()
	if err := b.locks.Close(b.Context()); err != nil {
		b.Error(err)
	}
	if b.db.held() > 0 || b.db.open() > 0 {
		b.Errorf("Close left %d locks and %d sessions", b.db.held(), b.db.open())
	}
}

func TestASessionKeepsManyLocksAndAnotherNoneOfThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSessionBench(t, 0)
		var leases []*sqllock.Lease
		for i := range 1000 {
			leases = append(leases, b.lock(fmt.Sprint(i)))
		}
		time.Sleep(3 * ttl)
		if b.db.most != 1 {
			t.Errorf("%d sessions", b.db.most)
		}
		for _, lease := range leases {
			if lease.Context().Err() != nil {
				t.Fatal("lost")
			}
			b.unlock(lease)
		}
		time.Sleep(5 * time.Second)
		if b.db.open() != 0 {
			t.Error("the session is kept while nothing is held")
		}
		b.close()
	})
}

func TestLocksThatHaveASessionEachAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSessionBench(t, 3)
		leases := []*sqllock.Lease{b.lock("a"), b.lock("b"), b.lock("c")}
		if lease, err := b.locks.TryLock(t.Context(), "d"); !errors.Is(err, sqllock.ErrPoolExhausted) {
			t.Errorf("the fourth: %v, %v", lease, err)
		}
		go func() {
			time.Sleep(time.Second)
			b.unlock(leases[0])
		}()
		leases[0] = b.lock("d")
		for _, lease := range leases {
			if lease.Name() != "a" {
				b.unlock(lease)
			}
		}
		if b.db.most != 3 {
			t.Errorf("%d sessions", b.db.most)
		}
		b.close()
	})
}

func TestWhenASessionEndsItsLeasesAreLostAtOnce(t *testing.T) {
	onSessions(t, func(b *sessionBench) {
		leases := []*sqllock.Lease{b.lock("a"), b.lock("b")}
		b.db.kill()
		synctest.Wait()
		for _, lease := range leases {
			var lost *sqllock.LostError
			if err := context.Cause(lease.Context()); !errors.As(err, &lost) || lost.Reason != sqllock.LostSession {
				b.Errorf("cause %v", err)
			}
			if err := lease.Unlock(b.Context()); !errors.Is(err, sqllock.ErrLost) {
				b.Errorf("Unlock: %v", err)
			}
		}
		again := b.lock("a")
		if again.Token() <= leases[1].Token() {
			b.Errorf("token %d after %d", again.Token(), leases[1].Token())
		}
		b.unlock(again)
		b.close()
	})
}

func TestOneProcessExcludesItselfThoughTheServerWouldNot(t *testing.T) {
	onSessions(t, func(b *sessionBench) {
		lease := b.lock("k")
		var held *sqllock.HeldError
		if _, err := b.locks.TryLock(b.Context(), "k"); !errors.As(err, &held) || held.Owner != lease.Owner() {
			b.Errorf("TryLock: %v, %+v", err, held)
		}
		if _, err := b.locks.TryRLock(b.Context(), "k"); !errors.Is(err, sqllock.ErrHeld) {
			b.Errorf("TryRLock: %v", err)
		}
		b.unlock(lease)
		b.close()
	})
}

func TestALoserIsToldOfAReaderWhoIsStillThere(t *testing.T) {
	onSessions(t, func(b *sessionBench) {
		var readers []*sqllock.Lease
		for range 2 {
			reader, err := b.locks.RLock(b.Context(), "k")
			if err != nil {
				b.Fatal(err)
			}
			readers = append(readers, reader)
		}
		b.unlock(readers[1])
		var held *sqllock.HeldError
		if _, err := b.locks.TryLock(b.Context(), "k"); !errors.As(err, &held) || held.Owner != readers[0].Owner() || !held.Shared {
			b.Errorf("TryLock: %v, %+v", err, held)
		}
		b.unlock(readers[0])
		b.close()
	})
}

func TestNamesOfOneHashExcludeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSessionBench(t, 0)
		b.db.keys = func(string) string { return "the same" }
		lease := b.lock("a")
		var held *sqllock.HeldError
		if _, err := b.locks.TryLock(t.Context(), "b"); !errors.As(err, &held) || held.Owner != "" {
			t.Errorf("TryLock: %v, %+v: it is not b that somebody holds", err, held)
		}
		got := make(chan *sqllock.Lease)
		go func() { got <- b.lock("b") }()
		time.Sleep(time.Second)
		b.unlock(lease)
		other := <-got
		if lease.Token() == other.Token() {
			t.Error("one token for two names")
		}
		b.unlock(other)
		b.close()
	})
}

func TestReadersOfOneProcessAreEachHeld(t *testing.T) {
	onSessions(t, func(b *sessionBench) {
		var readers []*sqllock.Lease
		for range 3 {
			lease, err := b.locks.RLock(b.Context(), "k")
			if err != nil {
				b.Fatal(err)
			}
			readers = append(readers, lease)
		}
		for _, lease := range readers {
			if _, err := b.locks.TryLock(b.Context(), "k"); !errors.Is(err, sqllock.ErrHeld) {
				b.Errorf("a writer beside a reader: %v", err)
			}
			b.unlock(lease)
		}
		b.unlock(b.lock("k"))
		b.close()
	})
}

// asksForOptions is a database that opens nothing, and remembers what it was asked for.
type optionsSession struct{ got driver.SessionOptions }

func (d *optionsSession) OpenForUpdate(_ context.Context, _ driver.Client, opts driver.SessionOptions) (driver.SessionStore, error) {
	d.got = opts
	return nil, driver.ErrSchema
}

func (d *optionsSession) Classify(error) driver.Fault { return driver.Refused }

func TestADriverKnowsHowLongARenewalMayTake(t *testing.T) {
	for _, c := range []struct{ timeout, want time.Duration }{{0, time.Second}, {200 * time.Millisecond, 200 * time.Millisecond}} {
		db := &optionsSession{}
		_, err := sqllock.NewForUpdate(t.Context(), db, &sqllock.ForUpdateOptions{TTL: 3 * time.Second, StatementTimeout: c.timeout})
		if err == nil || db.got.TTL != 3*time.Second || db.got.Timeout != c.want {
			t.Errorf("StatementTimeout %v: the driver was told %+v, want a time-out of %v; %v", c.timeout, db.got, c.want, err)
		}
	}
}

// While one session does not answer, the holders of others hear at once what became of theirs.
func TestASessionThatHangsDelaysNoNewsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSessionBench(t, 3)
		lease := b.lock("a")
		acqs := maps.Clone(b.db.seen)
		hung := b.lock("b")
		b.db.set(func() { b.db.frozen[2] = true })
		time.Sleep(time.Second) // the renewal of the second is under way
		b.db.set(func() {
			for id := range acqs {
				b.db.revoked[id] = true
			}
		})
		time.Sleep(time.Second)
		if err := context.Cause(lease.Context()); !errors.Is(err, sqllock.ErrLost) {
			t.Errorf("cause %v after a second, want a loss", err)
		}
		if err := context.Cause(hung.Context()); err != nil {
			t.Errorf("the test expects that the other session still hangs: %v", err)
		}
		_ = lease.Unlock(t.Context())
		_ = hung.Unlock(t.Context())
		b.close()
	})
}

// However long the last renewal is ago.
func TestAHolderHearsWithinASecondThatItsSessionHasEndedUnnoticed(t *testing.T) {
	onSessions(t, func(b *sessionBench) {
		for phase := range 40 {
			lease := b.lock("a")
			time.Sleep(10*time.Second + time.Duration(phase)*25*time.Millisecond)
			b.db.killUnnoticed()
			ended := time.Now()
			<-lease.Context().Done()
			if took := time.Since(ended); took > time.Second {
				b.Errorf("told after %v", took)
			}
			if err := context.Cause(lease.Context()); !errors.Is(err, sqllock.ErrLost) {
				b.Errorf("cause %v", err)
			}
			_ = lease.Unlock(b.Context())
		}
		b.close()
	})
}
