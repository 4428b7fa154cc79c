package certmagiclock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/sqllock/sqllock"
	certmagiclock "github.com/sqllock/sqllock/certmagic"
	"github.com/sqllock/sqllock/locktest"
)

func mustTry(t *testing.T, s *certmagiclock.Storage, name string, want bool) {
	t.Helper()
	if got, err := s.TryLock(t.Context(), name); err != nil || got != want {
		t.Errorf("TryLock of %q: %t, %v; want %t", name, got, err, want)
	}
}

func mustUnlock(t *testing.T, s *certmagiclock.Storage, name string) {
	t.Helper()
	if err := s.Unlock(t.Context(), name); err != nil {
		t.Errorf("Unlock: %v", err)
	}
}

func TestAStorageKeepsCertificatesWhereTheyAre(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newStorage(t, locktest.New(t, nil), dir)
	if err := s.Store(t.Context(), "a/b", []byte("certificate")); err != nil {
		t.Fatal(err)
	}
	got, err := (&certmagic.FileStorage{Path: dir}).Load(t.Context(), "a/b")
	if err != nil || string(got) != "certificate" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestStoragesExcludeEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := locktest.NewDatabase(t)
		a, b := newStorage(t, d.Locker(nil), t.TempDir()), newStorage(t, d.Locker(nil), t.TempDir())
		mustTry(t, a, "issue", true)
		mustTry(t, b, "issue", false)
		mustTry(t, a, "issue", false) // in the same process
		mustTry(t, b, "other", true)
		mustUnlock(t, b, "other")
		time.AfterFunc(time.Minute, func() { mustUnlock(t, a, "issue") })
		began := time.Now()
		if err := b.Lock(t.Context(), "issue"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < time.Minute || took > 2*time.Minute {
			t.Errorf("it waited for %v", took)
		}
		mustUnlock(t, b, "issue")
	})
}

// CertMagic cleans up after a call whose context has ended.
func TestAContextThatHasEndedEndsLockAndNotUnlock(t *testing.T) {
	t.Parallel()
	s := newStorage(t, locktest.New(t, nil), t.TempDir())
	ended, end := context.WithCancel(t.Context())
	end()
	for range 2 {
		mustTry(t, s, "issue", true)
		if err := s.Lock(ended, "issue"); !errors.Is(err, context.Canceled) {
			t.Errorf("Lock of what is locked: %v", err)
		}
		if err := s.Unlock(ended, "issue"); err != nil {
			t.Errorf("Unlock: %v", err)
		}
	}
	if err := s.Lock(ended, "issue"); !errors.Is(err, context.Canceled) {
		t.Errorf("Lock of what is free: %v", err)
	}
	mustTry(t, s, "issue", true)
	mustUnlock(t, s, "issue")
}

func TestGoroutinesOfOneStorageExcludeEachOther(t *testing.T) {
	t.Parallel()
	s := newStorage(t, locktest.New(t, nil), t.TempDir())
	n := 0
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 5 {
				if err := s.Lock(t.Context(), "issue"); err != nil {
					t.Error(err)
					return
				}
				n++ // the race detector watches
				mustUnlock(t, s, "issue")
			}
		})
	}
	all.Wait()
	if n != 40 {
		t.Errorf("%d runs of 40", n)
	}
}

func TestAHolderThatHasLostItsLeaseUnlocksNobodyElse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := locktest.NewDatabase(t)
		a, b := newStorage(t, d.Locker(nil), t.TempDir()), newStorage(t, d.Locker(nil), t.TempDir())
		mustTry(t, a, "issue", true)
		if err := a.RenewLockLease(t.Context(), "issue", time.Hour); err != nil {
			t.Error(err)
		}
		d.Lose("tls/issue")
		mustTry(t, a, "issue", false) // the former holder has not unlocked
		mustTry(t, b, "issue", true)
		if err := a.RenewLockLease(t.Context(), "issue", time.Hour); !errors.Is(err, sqllock.ErrLost) || !errors.Is(err, sqllock.ErrHeld) {
			t.Errorf("RenewLockLease after the loss: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := a.Lock(ctx, "issue"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock: %v", err)
		}
		mustUnlock(t, a, "issue") // CertMagic would unlock again after an error
		if err := a.Unlock(t.Context(), "issue"); !errors.Is(err, sqllock.ErrNotHeld) {
			t.Errorf("another Unlock: %v", err)
		}
		mustTry(t, a, "issue", false)
		mustUnlock(t, b, "issue")
		mustTry(t, a, "issue", true)
		mustUnlock(t, a, "issue")
	})
}

func TestToRenewALostLeaseTakesTheNameAgain(t *testing.T) {
	t.Parallel()
	d := locktest.NewDatabase(t)
	a, b := newStorage(t, d.Locker(nil), t.TempDir()), newStorage(t, d.Locker(nil), t.TempDir())
	mustTry(t, a, "issue", true)
	d.Lose("tls/issue")
	for range 2 { // the second has nothing to do
		if err := a.RenewLockLease(t.Context(), "issue", time.Hour); err != nil {
			t.Error(err)
		}
		mustTry(t, b, "issue", false)
	}
	mustUnlock(t, a, "issue")
	mustTry(t, b, "issue", true)
	mustUnlock(t, b, "issue")
}

func TestOnlyWhatIsLockedIsUnlockedOrRenewed(t *testing.T) {
	t.Parallel()
	s := newStorage(t, locktest.New(t, nil), t.TempDir())
	mustTry(t, s, "issue", true)
	mustUnlock(t, s, "issue")
	if err := s.Unlock(t.Context(), "issue"); !errors.Is(err, sqllock.ErrNotHeld) {
		t.Errorf("a second Unlock: %v", err)
	}
	if err := s.RenewLockLease(t.Context(), "issue", time.Hour); !errors.Is(err, sqllock.ErrNotHeld) {
		t.Errorf("RenewLockLease: %v", err)
	}
}

func TestALockThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	d := locktest.NewDatabase(t)
	s := newStorage(t, d.Locker(nil), t.TempDir())
	d.Down()
	if ok, err := s.TryLock(t.Context(), "issue"); ok || !errors.Is(err, locktest.ErrDown) {
		t.Errorf("TryLock: %t, %v", ok, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Lock(ctx, "issue"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Lock: %v", err)
	}
	d.Up()
	mustTry(t, s, "issue", true)
	mustUnlock(t, s, "issue")
}

func TestACallerThatHoldsALeaseOfTheNameIsNoException(t *testing.T) {
	t.Parallel()
	locks := locktest.New(t, nil)
	s := newStorage(t, locks, t.TempDir())
	lease, err := locks.Lock(t.Context(), "tls/issue")
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := s.TryLock(lease.Context(), "issue"); ok || err != nil {
		t.Errorf("TryLock: %t, %v", ok, err)
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestLongNamesAreDifferentLocks(t *testing.T) {
	t.Parallel()
	locks := locktest.New(t, nil)
	s := newStorage(t, locks, t.TempDir())
	names := []string{strings.Repeat("x", 251), strings.Repeat("x", 252), strings.Repeat("x", 300), strings.Repeat("x", 300) + "y", strings.Repeat("é", 200)}
	for _, name := range names {
		mustTry(t, s, name, true)
	}
	for _, name := range names {
		mustTry(t, s, name, false)
		mustUnlock(t, s, name)
	}
	for _, bad := range []string{"a\x00b", "\xff"} {
		if _, err := s.TryLock(t.Context(), bad); !errors.Is(err, sqllock.ErrInvalidName) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestInvalidArgumentsAreRefused(t *testing.T) {
	t.Parallel()
	locks := locktest.New(t, nil)
	inner := &certmagic.FileStorage{Path: t.TempDir()}
	for what, c := range map[string]struct {
		inner  certmagic.Storage
		locks  *sqllock.Locker
		prefix string
		opts   []sqllock.LockOption
		want   error
	}{
		"no storage":        {nil, locks, "", nil, sqllock.ErrInvalidOption},
		"no locks":          {inner, nil, "", nil, sqllock.ErrInvalidOption},
		"a nil option":      {inner, locks, "", []sqllock.LockOption{nil}, sqllock.ErrInvalidOption},
		"a small TTL":       {inner, locks, "", []sqllock.LockOption{sqllock.TTL(1)}, sqllock.ErrInvalidOption},
		"a Wait":            {inner, locks, "", []sqllock.LockOption{sqllock.Wait(time.Minute)}, sqllock.ErrInvalidOption},
		"a prefix with NUL": {inner, locks, "a\x00", nil, sqllock.ErrInvalidName},
		"a long prefix":     {inner, locks, strings.Repeat("p", 101), nil, sqllock.ErrInvalidName},
	} {
		if s, err := certmagiclock.New(c.inner, c.locks, c.prefix, c.opts...); s != nil || !errors.Is(err, c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	s, err := certmagiclock.New(inner, locks, "", sqllock.TTL(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	var nobody context.Context
	if err := s.Lock(nobody, "issue"); !errors.Is(err, sqllock.ErrInvalidOption) {
		t.Errorf("Lock without a context: %v", err)
	}
	mustTry(t, s, "issue", true)
	if err := s.Lock(nobody, "issue"); !errors.Is(err, sqllock.ErrInvalidOption) {
		t.Errorf("Lock without a context of what is locked: %v", err)
	}
	mustUnlock(t, s, "issue")
}
