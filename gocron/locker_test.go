package gocronlock_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/sqllock/sqllock"
	gocronlock "github.com/sqllock/sqllock/gocron"
	"github.com/sqllock/sqllock/internal/testdb"
)

const prefix = "jobs/"

func newLocker(t *testing.T, locks *sqllock.Locker, opts ...sqllock.LockOption) *gocronlock.Locker {
	t.Helper()
	l, err := gocronlock.NewLocker(locks, prefix, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mustLock(t *testing.T, l *gocronlock.Locker, key string) gocron.Lock {
	t.Helper()
	lock, err := l.Lock(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

func wantHeld(t *testing.T, what string, l *gocronlock.Locker, key string) {
	t.Helper()
	lock, err := l.Lock(t.Context(), key)
	if lock != nil || !errors.Is(err, sqllock.ErrHeld) {
		t.Fatalf("%s: Lock returns %v, %v", what, lock, err)
	}
}

// twoLockers returns Lockers as two processes have them.
func twoLockers(t *testing.T, p pair, d *testdb.Database, opts ...sqllock.LockOption) (a, b *gocronlock.Locker) {
	t.Helper()
	o := sqllock.UniqueOptions{TTL: long}
	return newLocker(t, newLocks(t, p, d, o), opts...), newLocker(t, newLocks(t, p, d, o), opts...)
}

func TestLockTriesAndSaysWhoRunsTheJob(t *testing.T) {
	each(t, func(t *testing.T, p pair, d *testdb.Database) {
		a, b := twoLockers(t, p, d, sqllock.MinHold(0), sqllock.Value([]byte("v"))) // so that every mode notes who holds
		lock := mustLock(t, a, "job")
		wantHeld(t, "elsewhere", b, "job")
		_, err := b.Lock(t.Context(), "job")
		var held *sqllock.HeldError
		if !errors.As(err, &held) || held.Name != prefix+"job" || held.Label == "" {
			t.Errorf("%#v", err)
		}
		other := mustLock(t, b, "another job")
		for _, lock := range []gocron.Lock{lock, other} {
			if err := lock.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
			if err := lock.Unlock(t.Context()); !errors.Is(err, sqllock.ErrNotHeld) {
				t.Errorf("once more: %v", err)
			}
		}
		if err := mustLock(t, b, "job").Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestADoneJobIsNotStartedElsewhereWithinMinHold(t *testing.T) {
	each(t, func(t *testing.T, p pair, d *testdb.Database) {
		const own = 4 * time.Second
		a, b := twoLockers(t, p, d) // with the default
		c := newLocker(t, newLocks(t, p, d, sqllock.UniqueOptions{TTL: long}), sqllock.MinHold(own))
		type job struct {
			key     string
			by      *gocronlock.Locker
			minHold time.Duration
			begun   time.Time
		}
		jobs := []*job{{key: "a", by: c, minHold: own}, {key: "b", by: a, minHold: gocronlock.DefaultMinHold}}
		for _, j := range jobs {
			j.begun = time.Now()
			if err := mustLock(t, j.by, j.key).Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantHeld(t, "elsewhere", b, j.key)
			wantHeld(t, "in the process that ran it", j.by, j.key)
		}
		eventually(t, "the minimum of all is over", func() bool {
			jobs = slices.DeleteFunc(jobs, func(j *job) bool {
				lock, err := b.Lock(t.Context(), j.key)
				took := time.Since(j.begun)
				if err == nil && took < j.minHold {
					t.Errorf("the next one ran after %v, before %v were over", took, j.minHold)
				}
				return err == nil && lock.Unlock(t.Context()) == nil
			})
			time.Sleep(20 * time.Millisecond) // else it is all that the machine does
			return len(jobs) == 0
		})
	})
}

func TestUnlockReleasesTheNameAfterTheContextHasEnded(t *testing.T) {
	each(t, func(t *testing.T, p pair, d *testdb.Database) {
		a, b := twoLockers(t, p, d, sqllock.MinHold(0))
		ctx, cancel := context.WithCancel(t.Context())
		lock, err := a.Lock(ctx, "job")
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		lease, err := a.Lease("job")
		if err != nil || lease.Context().Err() != nil {
			t.Errorf("the lease ended with the context of Lock: %v, %v", err, lease.Context().Err())
		}
		if err := lock.Unlock(ctx); err != nil {
			t.Error(err)
		}
		if err := mustLock(t, b, "job").Unlock(ctx); err != nil {
			t.Error(err)
		}
		if lock, err := a.Lock(ctx, "job"); lock != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("Lock with a context that has ended: %v, %v", lock, err)
		}
		if err := mustLock(t, a, "job").Unlock(ctx); err != nil {
			t.Errorf("after that: %v", err)
		}
	})
}

func TestALossEndsTheLeaseOfAJobAndItIsNotStartedTwice(t *testing.T) {
	each(t, func(t *testing.T, p pair, d *testdb.Database) {
		locks := newLocks(t, p, d, sqllock.UniqueOptions{TTL: long})
		l := newLocker(t, locks, sqllock.MinHold(0))
		lock := mustLock(t, l, "job")
		lease, err := l.Lease("job")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := locks.ForceUnlock(t.Context(), prefix+"job"); err != nil {
			t.Fatal(err)
		}
		select {
		case <-lease.Context().Done():
		case <-time.After(testTimeout):
			t.Fatal("the lease goes on")
		}
		wantHeld(t, "beside the job", l, "job")
		if again, err := l.Lease("job"); again != lease || err != nil {
			t.Errorf("its lease is now %v, %v", again, err)
		}
		if err := lock.Unlock(t.Context()); !errors.Is(err, sqllock.ErrLost) {
			t.Errorf("Unlock returns %v", err)
		}
		eventually(t, "another run begins", func() bool { // a session may have to end first
			lock, err := l.Lock(t.Context(), "job")
			return err == nil && lock.Unlock(t.Context()) == nil
		})
	})
}

func TestALeaseInTheContextIsNotReentered(t *testing.T) {
	each(t, func(t *testing.T, p pair, d *testdb.Database) {
		locks := newLocks(t, p, d, sqllock.UniqueOptions{TTL: long})
		one, two := newLocker(t, locks), newLocker(t, locks)
		err := locks.Do(sqllock.WithOwner(t.Context(), "me"), prefix+"job", func(ctx context.Context, _ *sqllock.Lease) error {
			if lock, err := one.Lock(ctx, "job"); lock != nil || !errors.Is(err, sqllock.ErrHeld) {
				t.Errorf("with a lease: %v, %v", lock, err)
			}
			ctx = sqllock.WithOwner(t.Context(), "me")
			if lock, err := two.Lock(ctx, "job"); lock != nil || !errors.Is(err, sqllock.ErrHeld) {
				t.Errorf("with the owner: %v, %v", lock, err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}
