package gocronlock_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	gocronlock "github.com/sqllock/sqllock/gocron"
	"github.com/sqllock/sqllock/internal/testdb"
)

func TestNewElectorRefusesInvalidArguments(t *testing.T) {
	if e, err := gocronlock.NewElector(nil); e != nil || !errors.Is(err, sqllock.ErrInvalidOption) {
		t.Errorf("without an election: %v, %v", e, err)
	}
	if e, err := gocronlock.NewElector(new(sqllock.Election), gocronlock.Settle(-1)); e != nil || !errors.Is(err, sqllock.ErrInvalidOption) {
		t.Errorf("with Settle below 0: %v, %v", e, err)
	}
}

func TestNewLockerRefusesInvalidArguments(t *testing.T) {
	each(t, func(t *testing.T, p pair, d *testdb.Database) {
		locks := newLocks(t, p, d, sqllock.UniqueOptions{TTL: long})
		if l, err := gocronlock.NewLocker(nil, prefix); l != nil || !errors.Is(err, sqllock.ErrInvalidOption) {
			t.Errorf("without locks: %v, %v", l, err)
		}
		for _, bad := range []string{"a\x00b", "\xff", strings.Repeat("p", 255)} {
			if l, err := gocronlock.NewLocker(locks, bad); l != nil || !errors.Is(err, sqllock.ErrInvalidName) {
				t.Errorf("prefix %q: %v, %v", bad, l, err)
			}
		}
		for what, opt := range map[string]sqllock.LockOption{
			"MinHold below 0":     sqllock.MinHold(-1),
			"MinHold over a day":  sqllock.MinHold(24*time.Hour + 1),
			"Wait":                sqllock.Wait(time.Second),
			"Tries":               sqllock.Tries(3),
			"a TTL that is small": sqllock.TTL(time.Millisecond),
			"a Value of 64 KiB":   sqllock.Value(make([]byte, 64<<10+1)),
		} {
			if l, err := gocronlock.NewLocker(locks, prefix, opt); l != nil || !errors.Is(err, sqllock.ErrInvalidOption) {
				t.Errorf("%s: %v, %v", what, l, err)
			}
		}
		_, err := gocronlock.NewLocker(locks, prefix, sqllock.TTL(2*long))
		if inSessions := p.mode != unique; inSessions != errors.Is(err, sqllock.ErrInvalidOption) {
			t.Errorf("a TTL of its own: %v", err)
		}
	})
}

func TestLockRefusesInvalidNames(t *testing.T) {
	t.Parallel()
	p := pair{unique, testdb.SQLite}
	locks := newLocks(t, p, testdb.New(t, p.engine), sqllock.UniqueOptions{TTL: long})
	l, err := gocronlock.NewLocker(locks, "") // a prefix need not be
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"", "a\x00b", "\xff", strings.Repeat("n", 256)} {
		for range 2 {
			if lock, err := l.Lock(t.Context(), key); lock != nil || !errors.Is(err, sqllock.ErrInvalidName) {
				t.Errorf("%q: %v, %v", key, lock, err)
			}
		}
		if lease, err := l.Lease(key); lease != nil || !errors.Is(err, sqllock.ErrNotHeld) {
			t.Errorf("the lease of %q: %v, %v", key, lease, err)
		}
	}
	if lock, err := newLocker(t, locks).Lock(t.Context(), strings.Repeat("n", 255)); lock != nil || !errors.Is(err, sqllock.ErrInvalidName) {
		t.Errorf("with a prefix it is too long: %v, %v", lock, err)
	}
}

func TestARepeatedUnlockDoesNotEndALaterRun(t *testing.T) {
	t.Parallel()
	p := pair{unique, testdb.SQLite}
	l := newLocker(t, newLocks(t, p, testdb.New(t, p.engine), sqllock.UniqueOptions{TTL: long}), sqllock.MinHold(0))
	before := mustLock(t, l, "job")
	if err := before.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	lock := mustLock(t, l, "job")
	if err := before.Unlock(t.Context()); !errors.Is(err, sqllock.ErrNotHeld) {
		t.Errorf("the former one once more: %v", err)
	}
	if lease, err := l.Lease("job"); err != nil || lease.Remaining() <= 0 {
		t.Errorf("the run has the lease %v, %v", lease, err)
	}
	if err := lock.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}
