package sqllock_test

import (
	"context"
	sqldriver "database/sql/driver"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
)

// frozenConn is a connection of which the next grant can be made to hang.
type frozenConn struct {
	*fake
	hang atomic.Bool
}

func (s *frozenConn) Acquire(ctx context.Context, reqs []driver.AcquireRequest) ([]driver.AcquireResult, error) {
	if s.hang.CompareAndSwap(true, false) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.fake.Acquire(ctx, reqs)
}

// The grant for a lease of 30 s may take 5 s, and the reserved connection with it.
func TestAGrantThatHangsCostsNoShorterLease(t *testing.T) {
	for name, opts := range map[string][]sqllock.LockOption{
		"alone":            {sqllock.TTL(time.Second)},
		"with a LockDelay": {sqllock.TTL(time.Second), sqllock.LockDelay(time.Minute)},
		"with a MinHold":   {sqllock.TTL(time.Second), sqllock.MinHold(time.Minute)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := newFake()
				start := time.Now()
				conn := &frozenConn{fake: db}
				l, err := sqllock.NewWithClock(newPooled(db, db, conn, never), func() time.Duration { return time.Since(start) }, nil)
				if err != nil {
					t.Fatal(err)
				}
				lease, err := l.Lock(t.Context(), "short", opts...)
				if err != nil {
					t.Fatal(err)
				}
				db.set(func(f *fake) { f.before = func(ctx context.Context, _ string) error { return ctx.Err() } })
				conn.hang.Store(true)
				done := make(chan struct{})
				go func() {
					defer close(done)
					if long, err := l.Lock(context.Background(), "long"); err == nil {
						_ = long.Unlock(context.Background())
					}
				}()
				time.Sleep(4 * time.Second)
				if lease.Context().Err() != nil {
					t.Errorf("lost: %v", context.Cause(lease.Context()))
				}
				_ = lease.Unlock(context.Background())
				<-done
				_ = l.Close(context.Background())
			})
		})
	}
}

func TestCloseDoesNotWaitForItsOwnReaper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		db.before = after("turn", time.Hour) // waits for a connection, say
		b := newBench(t, db, &sqllock.UniqueOptions{Reaper: &sqllock.ReaperOptions{Interval: time.Second}})
		time.Sleep(2 * time.Second)
		start := time.Now()
		b.close()
		if took := time.Since(start); took > 100*time.Millisecond {
			t.Errorf("Close took %v", took)
		}
	})
}

// deadConn is a connection that can die while nobody uses it.
type deadConn struct {
	*fake
	died atomic.Bool
}

func (s *deadConn) Release(ctx context.Context, reqs []driver.ReleaseRequest) ([]driver.ReleaseResult, error) {
	if s.died.CompareAndSwap(true, false) {
		return nil, sqldriver.ErrBadConn
	}
	return s.fake.Release(ctx, reqs)
}

func TestAReservedConnectionThatHasDiedIsReplacedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		conn := &deadConn{fake: db}
		b := newBenchOn(t, newPooled(db, db, conn, never), db, nil)
		defer b.close()
		lease := b.lock("a")
		time.Sleep(time.Minute)
		conn.died.Store(true)
		began := time.Now()
		b.unlock(lease)
		if took := time.Since(began); took > 0 {
			t.Errorf("Unlock took %v: it had to ask again", took)
		}
	})
}
