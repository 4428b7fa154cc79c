package sqllock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/netproxy"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/sqllocktest"
)

// closeAtOnce closes a Locker with a deadline that is as good as over. It does not wait
// for holders, as it would if the context had ended already.
func closeAtOnce(l *sqllock.Locker) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	return l.Close(ctx)
}

func TestCloseEndsNoSessionUnderAHolderWhoseRenewalIsUnderWay(t *testing.T) {
	onSessions(t, func(b *sessionBench) {
		lease := b.lock("k")
		b.db.set(func() { b.db.slow["renew"] = ttl / 4 })
		time.Sleep(ttl/3 + ttl/12) // a renewal is under way
		began := time.Now()
		if err := closeAtOnce(b.locks); err == nil {
			b.Error("Close returned nil, and a lease is held")
		}
		if d := time.Since(began); d > ttl/3 {
			b.Errorf("Close that gave up took %v", d)
		}
		for lease.Remaining() > 0 {
			if b.db.held() != 1 {
				b.Fatalf("the name is free, and the holder believes in its lease for %v more", lease.Remaining())
			}
			time.Sleep(ttl / 100)
		}
		time.Sleep(2 * ttl)
		if b.db.held() != 0 || b.db.open() != 0 {
			b.Errorf("%d locks and %d sessions are left", b.db.held(), b.db.open())
		}
	})
}

func TestCloseEndsNoSessionUnderAHolderWhileOthersAskIt(t *testing.T) {
	onSessions(t, func(b *sessionBench) {
		lease := b.lock("k")
		b.db.set(func() { b.db.slow["grant"] = ttl / 10 })
		returned := make(chan error, 1)
		go func() {
			other, err := b.locks.Lock(context.Background(), "other")
			if err == nil {
				err = other.Unlock(context.Background())
			}
			returned <- err
		}()
		time.Sleep(ttl / 100)
		if err := closeAtOnce(b.locks); err == nil {
			b.Error("Close returned nil, and a lease is held")
		}
		if err := <-returned; !errors.Is(err, sqllock.ErrClosed) {
			b.Errorf("Lock: %v", err)
		}
		time.Sleep(ttl / 3)
		if n := b.db.held(); n != 1 || lease.Remaining() <= 0 {
			b.Errorf("%d locks are held; the holder believes in its own for %v", n, lease.Remaining())
		}
		time.Sleep(2 * ttl)
		if b.db.held() != 0 || b.db.open() != 0 {
			b.Errorf("%d locks and %d sessions are left", b.db.held(), b.db.open())
		}
	})
}

func TestCloseThatGivesUpFreesNoNameWhileItsHolderBelieves(t *testing.T) {
	onEachServer(t, func(t *testing.T, e *engine, d *testdb.Database) {
		for _, mode := range []string{"for update", "advisory"} {
			t.Run(mode, func(t *testing.T) {
				t.Parallel()
				const ttl = 3 * time.Second
				h := e.shared().ForUpdate()
				if mode == "advisory" {
					h = e.shared().Advisory()
				}
				proxy := netproxy.New(t, d.Addr())
				l, err := h.New(t.Context(), d.OpenVia(t, proxy.Addr()), &sqllocktest.Options{TTL: ttl})
				if err != nil {
					t.Fatal(err)
				}
				other, err := h.New(t.Context(), d.Open(t), &sqllocktest.Options{TTL: ttl})
				if err != nil {
					t.Fatal(err)
				}
				defer closeSoon(other)
				name := "close/" + mode
				lease := mustTry(t, l, name)
				mustHeld(t, other, name)
				var sent atomic.Bool
				proxy.FreezeDown() // what is asked arrives, and is not answered
				proxy.OnUp(func(int, []byte) netproxy.Action { sent.Store(true); return netproxy.Pass })
				for !sent.Load() { // a renewal is under way
					time.Sleep(time.Millisecond)
				}
				if err := closeAtOnce(l); err == nil {
					t.Error("Close returned nil, and a lease is held")
				}
				proxy.OnUp(nil)
				proxy.Thaw()
				for lease.Remaining() > ttl/3 {
					mustHeld(t, other, name)
					time.Sleep(20 * time.Millisecond)
				}
			})
		}
	})
}

// mustHeld checks that a name cannot be had.
func mustHeld(t *testing.T, l *sqllock.Locker, name string) {
	t.Helper()
	lease, err := l.TryLock(t.Context(), name)
	if err == nil {
		_ = lease.Unlock(t.Context())
		t.Fatalf("%q is granted to somebody else", name)
	}
	if !errors.Is(err, sqllock.ErrHeld) {
		t.Fatal(err)
	}
}
