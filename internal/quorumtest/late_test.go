package quorumtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
)

// What databases do late.

// longTimeout is of Lockers whose databases are not down for as long as a test keeps them waiting.
func longTimeout() *sqllock.QuorumOptions {
	return &sqllock.QuorumOptions{TTL: time.Hour, NodeTimeout: 2 * time.Minute}
}

// lockOnAll locks a name that all nodes keep then.
func lockOnAll(t *testing.T, l *sqllock.Locker, nodes []*node, name string) *sqllock.Lease {
	t.Helper()
	lease, err := l.Lock(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	keptByAll(t, nodes)
	return lease
}

// leadOnAll leads a name that all nodes keep then.
func leadOnAll(t *testing.T, nodes []*node) *sqllock.Election {
	t.Helper()
	e, err := newLocker(t, nodes, longTimeout()).Election("a", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Campaign(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	keptByAll(t, nodes)
	return e
}

// keptByAll waits until all nodes keep a name.
func keptByAll(t *testing.T, nodes []*node) {
	t.Helper()
	eventually(t, "all keep the name", func() bool { return kept(t, nodes...) == len(nodes) })
}

// A round is lost: one database keeps an earlier term still, and another answers late. What the round
// has left on these two is not taken for a holder by the next round of the same call.
func TestTryLockIsNotInItsOwnWay(t *testing.T) {
	nodes := threeFiles(t)
	o := longTimeout()
	o.RetryMin, o.RetryMax = 5*time.Millisecond, 10*time.Millisecond
	l := newLocker(t, nodes, o)
	lease := lockOnAll(t, l, nodes, "a")
	released, again := make(chan struct{}), make(chan struct{})
	set(&nodes[2].beforeRelease, until(released))
	if err := lease.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "two have released the name", func() bool { return kept(t, nodes[:2]...) == 0 })
	for _, n := range nodes[:2] {
		set(&n.beforeRelease, until(again))
	}
	set(&nodes[1].afterAcquire, first(until(again)))
	goOn := sync.OnceFunc(func() { close(again) })
	var answers atomic.Int64
	set(&nodes[2].afterAcquire, func(context.Context) { // it answers last, and in the fourth round the others go on
		if time.Sleep(20 * time.Millisecond); answers.Add(1) == 4 {
			goOn()
		}
	})
	lease, err := l.TryLock(t.Context(), "a")
	for held := new(sqllock.HeldError); errors.As(err, &held) && held.Owner == ""; { // rounds were lost for as long as a call lasts
		lease, err = l.TryLock(t.Context(), "a")
	}
	goOn()
	close(released)
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// A database answers the request for the name after the lock is held, and while Unlock waits for
// another one, which is frozen. Two databases have freed the name then.
func TestUnlockWaitsForNoMoreThanAQuorumAlthoughOneHasNotGrantedYet(t *testing.T) {
	nodes := threeFiles(t)
	l := newLocker(t, nodes, longTimeout())
	granted, frozen := make(chan struct{}), make(chan struct{})
	set(&nodes[1].afterAcquire, until(granted))
	set(&nodes[2].beforeRelease, until(frozen))
	lease, err := l.Lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "all keep the name", func() bool { return kept(t, nodes...) == len(nodes) })
	unlocked := make(chan error)
	go func() { unlocked <- lease.Unlock(within(t, time.Minute)) }()
	eventually(t, "one has released the name", func() bool { return kept(t, nodes[0]) == 0 })
	close(granted)
	if err := <-unlocked; err != nil {
		t.Error(err)
	}
	if kept(t, nodes[1]) != 0 {
		t.Error("the database that answered late keeps the name")
	}
	close(frozen)
}

// Unlock sends a release again while the databases have not answered the first, which has freed the
// name.
func TestUnlockThatIsSentTwiceIsNoLoss(t *testing.T) {
	nodes := threeFiles(t)
	l := newLocker(t, nodes, &sqllock.QuorumOptions{TTL: time.Minute, NodeTimeout: 10 * time.Second})
	lease := lockOnAll(t, l, nodes, "a")
	answered := make(chan struct{})
	for _, n := range nodes {
		set(&n.afterRelease, first(until(answered)))
	}
	err := lease.Unlock(t.Context())
	close(answered)
	if err != nil {
		t.Errorf("Unlock: %v", err)
	}
}

// One database is down, which is known at once, and of the two others one answers last.
func TestTryLockTellsWhoHoldsANameWhileADatabaseIsDown(t *testing.T) {
	nodes := threeFiles(t)
	lease := lockOnAll(t, newLocker(t, nodes, longTimeout()), nodes, "a")
	nodes[2].down.Store(true)
	l := newLocker(t, nodes, longTimeout())
	for last := range 2 {
		set(&nodes[last].afterAcquire, func(context.Context) { time.Sleep(100 * time.Millisecond) })
		_, err := l.TryLock(t.Context(), "a")
		if held := new(sqllock.HeldError); !errors.As(err, &held) || held.Owner != lease.Owner() {
			t.Errorf("database %d answers last: %v", last, err)
		}
		set(&nodes[last].afterAcquire, func(context.Context) {})
	}
	nodes[2].down.Store(false) // Close gives it time to release what it may have
	if err := lease.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// roundTime is how long each request takes in a test of the pauses between them.
const roundTime = 200 * time.Millisecond

func TestAPauseIsAtLeastAsLongAsTheRequestBefore(t *testing.T) {
	slow := func(nodes []*node) {
		for _, n := range nodes {
			set(&n.afterAcquire, func(context.Context) { time.Sleep(roundTime) })
		}
	}
	options := func() *sqllock.QuorumOptions {
		return &sqllock.QuorumOptions{TTL: 15 * time.Second, RetryMin: time.Millisecond, RetryMax: time.Millisecond}
	}
	lock := func(ctx context.Context, l *sqllock.Locker) error {
		_, err := l.Lock(ctx, "a")
		return err
	}
	t.Run("of a name that is held", func(t *testing.T) {
		nodes := threeFiles(t)
		lease := lockOnAll(t, newLocker(t, nodes, longTimeout()), nodes, "a")
		slow(nodes)
		checkPauses(t, nodes, newLocker(t, nodes, options()), lock)
		if err := lease.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("that too few databases have answered", func(t *testing.T) {
		nodes := threeFiles(t)
		o := options()
		o.NodeTimeout = roundTime
		l := newLocker(t, nodes, o)
		nodes[0].muted.Store(true)
		nodes[1].muted.Store(true)
		checkPauses(t, nodes, l, lock)
	})
	t.Run("of a TryLock that competes", func(t *testing.T) {
		nodes := threeFiles(t)
		lease := lockOnAll(t, newLocker(t, nodes, longTimeout()), nodes, "a")
		for i, n := range nodes { // as if each had granted the name to another one
			if _, err := n.direct.ExecContext(t.Context(), fmt.Sprintf(`UPDATE quorum_lock SET acq = X'%032x'`, i+1)); err != nil {
				t.Fatal(err)
			}
		}
		slow(nodes)
		checkPauses(t, nodes, newLocker(t, nodes, options()), func(ctx context.Context, l *sqllock.Locker) error {
			_, err := l.TryLock(ctx, "a")
			return err
		})
		_ = lease.Unlock(t.Context()) // it was lost
	})
}

// checkPauses checks how many requests a call sends in six seconds that does not get the name.
func checkPauses(t *testing.T, nodes []*node, l *sqllock.Locker, call func(context.Context, *sqllock.Locker) error) {
	t.Helper()
	before, began := rounds(nodes), time.Now()
	err := call(within(t, 6*time.Second), l)
	sent, took := rounds(nodes)-before, time.Since(began)
	if most := 2 + int64(took/(2*roundTime)); err == nil || sent < 2 || sent > most {
		t.Errorf("%d requests of %v each in %v, want from 2 to %d: %v", sent, roundTime, took, most, err)
	}
}

// A database is slow to set a value, and a quorum has the next one by then.
func TestALateProclaimDoesNotOvertakeTheNextOne(t *testing.T) {
	nodes := threeFiles(t)
	e := leadOnAll(t, nodes)
	late, frozen := make(chan struct{}), make(chan struct{})
	defer func() {
		close(frozen)
		if err := e.Resign(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	begun := make(chan struct{})
	set(&nodes[1].beforeSetValue, first(func(ctx context.Context) {
		close(begun)
		until(late)(ctx)
	}))
	set(&nodes[2].beforeSetValue, first(func(context.Context) { <-begun })) // else two may do without the third
	if err := e.Proclaim(t.Context(), []byte("first")); err != nil {
		t.Fatal(err)
	}
	set(&nodes[2].beforeSetValue, until(frozen))
	if err := e.Proclaim(t.Context(), []byte("second")); err != nil {
		t.Fatal(err)
	}
	close(late) // what is late has no effect, and is soon over
	time.Sleep(100 * time.Millisecond)
	set(&nodes[0].beforeRead, until(frozen))
	if term, err := e.Leader(t.Context()); err != nil || string(term.Value) != "second" {
		t.Errorf("Leader = %q, %v of two databases; want the value of the last Proclaim", term.Value, err)
	}
}
