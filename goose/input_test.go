package gooselock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	gooselock "github.com/sqllock/sqllock/goose"
	"github.com/sqllock/sqllock/internal/testdb"
)

func TestNewRefusesInvalidArguments(t *testing.T) {
	if l, err := gooselock.New(nil, lockName); l != nil || !errors.Is(err, sqllock.ErrInvalidOption) {
		t.Errorf("without locks: %v, %v", l, err)
	}
	for _, name := range []string{"", "a\x00b", "\xff", strings.Repeat("n", 256)} {
		if l, err := gooselock.New(new(sqllock.Locker), name); l != nil || !errors.Is(err, sqllock.ErrInvalidName) {
			t.Errorf("%q: %v, %v", name, l, err)
		}
	}
}

func TestNewRefusesInvalidOptions(t *testing.T) {
	onEach(t, func(t *testing.T, d *testdb.Database) {
		locks := newLocks(t, unique, d.Engine(), d.Open(t), longTTL)
		for what, opt := range map[string]sqllock.LockOption{
			"Wait below 0": sqllock.Wait(-1), "Tries 0": sqllock.Tries(0), "a TTL that is small": sqllock.TTL(1), "MinHold below 0": sqllock.MinHold(-1),
		} {
			if l, err := gooselock.New(locks, lockName, opt); l != nil || !errors.Is(err, sqllock.ErrInvalidOption) {
				t.Errorf("%s: %v, %v", what, l, err)
			}
		}
	})
}

func TestLockRefusesNilConnectionsAndContextsThatHaveEnded(t *testing.T) {
	onEach(t, func(t *testing.T, d *testdb.Database) {
		l := newLocker(t, newLocks(t, unique, d.Engine(), d.Open(t), longTTL))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		ended, end := context.WithCancel(t.Context())
		end()
		for range 2 { // what has failed is in nobody's way
			if err := l.Lock(ended, nil); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		if err := errors.Join(l.Lock(ctx, nil), l.Unlock(ctx, nil)); err != nil {
			t.Error(err)
		}
		for _, err := range []error{l.SessionLock(t.Context(), nil), l.SessionUnlock(t.Context(), nil)} {
			if !errors.Is(err, sqllock.ErrInvalidOption) {
				t.Error(err)
			}
		}
	})
}

func TestUnlockWithoutLockIsRefused(t *testing.T) {
	onEach(t, func(t *testing.T, d *testdb.Database) {
		db := d.Open(t)
		l := newLocker(t, newLocks(t, unique, d.Engine(), db, longTTL))
		one, two := newConn(t, db), newConn(t, db)
		if err := l.Unlock(t.Context(), db); !errors.Is(err, sqllock.ErrNotHeld) {
			t.Error(err)
		}
		if err := l.SessionLock(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		if err := l.SessionUnlock(t.Context(), two); !errors.Is(err, sqllock.ErrNotHeld) {
			t.Error(err)
		}
		if err := l.SessionUnlock(t.Context(), one); err != nil {
			t.Error(err)
		}
		if err := l.SessionUnlock(t.Context(), one); !errors.Is(err, sqllock.ErrNotHeld) {
			t.Error(err)
		}
	})
}

func TestTheWaitEndsWithTheContextOrTheOptionWait(t *testing.T) {
	onEach(t, func(t *testing.T, d *testdb.Database) {
		db := d.Open(t)
		holder := newLocks(t, unique, d.Engine(), db, longTTL)
		l := newLocker(t, newLocks(t, unique, d.Engine(), db, longTTL), sqllock.Wait(300*time.Millisecond))
		lease, err := holder.Lock(t.Context(), lockName)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Lock(t.Context(), db); !errors.Is(err, sqllock.ErrHeld) {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := l.Lock(ctx, db); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := lease.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		if err := errors.Join(l.Lock(t.Context(), db), l.Unlock(ctx, db)); err != nil {
			t.Errorf("after that, with a context that has ended: %v", err)
		}
	})
}

func TestOneProcessMigratesOnceAtATimeEvenAfterALoss(t *testing.T) {
	onEach(t, func(t *testing.T, d *testdb.Database) {
		db := d.Open(t)
		locks := newLocks(t, unique, d.Engine(), db, longTTL)
		l := newLocker(t, locks)
		if err := l.Lock(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		if _, err := locks.ForceUnlock(t.Context(), lockName); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if err := l.Lock(ctx, db); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("beside the first one: %v", err)
		}
		if err := l.Unlock(t.Context(), db); !errors.Is(err, sqllock.ErrLost) {
			t.Errorf("the first one is told %v", err)
		}
		if err := errors.Join(l.Lock(t.Context(), db), l.Unlock(t.Context(), db)); err != nil {
			t.Error(err)
		}
	})
}

func TestALeaseInTheContextIsReentered(t *testing.T) {
	onEach(t, func(t *testing.T, d *testdb.Database) {
		db := d.Open(t)
		locks := newLocks(t, unique, d.Engine(), db, longTTL)
		l := newLocker(t, locks)
		err := locks.Do(t.Context(), lockName, func(ctx context.Context, lease *sqllock.Lease) error {
			if err := l.Lock(ctx, db); err != nil {
				return err
			}
			if got := l.Lease().Token(); got != lease.Token() {
				t.Errorf("token %d, want %d", got, lease.Token())
			}
			return l.Unlock(ctx, db)
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestNilArgumentsAreRefused(t *testing.T) {
	onEach(t, func(t *testing.T, d *testdb.Database) {
		db := d.Open(t)
		locks := newLocks(t, unique, d.Engine(), db, longTTL)
		if l, err := gooselock.New(locks, lockName, nil); l != nil || !errors.Is(err, sqllock.ErrInvalidOption) {
			t.Errorf("with an option that is nil: %v, %v", l, err)
		}
		l := newLocker(t, locks)
		var nobody context.Context
		conn := newConn(t, db)
		for what, err := range map[string]error{
			"Do without a context":          l.Do(nobody, func(context.Context) error { return nil }),
			"Do without a function":         l.Do(t.Context(), nil),
			"Lock without a context":        l.Lock(nobody, db),
			"SessionLock without a context": l.SessionLock(nobody, conn),
		} {
			if !errors.Is(err, sqllock.ErrInvalidOption) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if err := l.SessionLock(t.Context(), conn); err != nil {
			t.Fatal(err)
		}
		if err := l.SessionUnlock(nobody, conn); !errors.Is(err, sqllock.ErrInvalidOption) {
			t.Errorf("SessionUnlock without a context: %v", err)
		}
		if err := errors.Join(l.SessionLock(t.Context(), conn), l.SessionUnlock(t.Context(), conn)); err != nil {
			t.Errorf("after an unlock without a context: %v", err)
		}
	})
}
