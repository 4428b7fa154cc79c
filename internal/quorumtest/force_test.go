package quorumtest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
)

// force calls ForceUnlock, in the background.
func force(ctx context.Context, operator *sqllock.Locker, name string) <-chan error {
	ended := make(chan error, 1)
	go func() {
		_, err := operator.ForceUnlock(ctx, name)
		ended <- err
	}()
	return ended
}

func TestForceUnlockOnALateDatabaseLeavesTheNextHolderAlone(t *testing.T) {
	nodes := threeFiles(t)
	l, next, operator := newLocker(t, nodes, longTimeout()), newLocker(t, nodes, longTimeout()), newLocker(t, nodes, longTimeout())
	lease := lockOnAll(t, l, nodes, "a")
	late := make(chan struct{})
	set(&nodes[2].beforeRead, until(late))
	ended := force(context.Background(), operator, "a")
	eventually(t, "two have ended the term", func() bool { return kept(t, nodes[:2]...) == 0 })
	_ = lease.Unlock(t.Context())
	eventually(t, "the third has released the name", func() bool { return kept(t, nodes[2]) == 0 })
	lease = lockOnAll(t, next, nodes, "a")
	close(late)
	if err := <-ended; err != nil {
		t.Errorf("ForceUnlock: %v", err)
	}
	if kept(t, nodes[2]) != 1 {
		t.Error("ForceUnlock has ended the next term on the database that was late")
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestForceUnlockSaysThatATermHasEndedWithoutIt(t *testing.T) {
	nodes := threeFiles(t)
	l, operator := newLocker(t, nodes, longTimeout()), newLocker(t, nodes, longTimeout())
	lease := lockOnAll(t, l, nodes, "a")
	late := make(chan struct{})
	var waiting atomic.Int64
	for _, n := range nodes {
		set(&n.beforeRevoke, func(ctx context.Context) {
			waiting.Add(1)
			until(late)(ctx)
		})
	}
	ended := force(context.Background(), operator, "a")
	eventually(t, "ForceUnlock is about to end the term", func() bool { return waiting.Load() == 3 })
	if err := lease.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	eventually(t, "the name is free", func() bool { return kept(t, nodes...) == 0 })
	close(late)
	if err := <-ended; !errors.Is(err, sqllock.ErrNotHeld) {
		t.Errorf("ForceUnlock of a name that its holder has unlocked meanwhile: %v, want ErrNotHeld", err)
	}
}

func TestForceUnlockThatWasGivenUpEndsNothingLater(t *testing.T) {
	nodes := threeFiles(t)
	l, operator := newLocker(t, nodes, longTimeout()), newLocker(t, nodes, longTimeout())
	lease := lockOnAll(t, l, nodes, "a")
	late := make(chan struct{})
	var waiting, left atomic.Int64
	for _, n := range nodes {
		set(&n.beforeRevoke, func(ctx context.Context) {
			waiting.Add(1)
			until(late)(ctx)
			left.Add(1)
		})
	}
	ctx, giveUp := context.WithCancel(t.Context())
	ended := force(ctx, operator, "a")
	eventually(t, "ForceUnlock is about to end the term", func() bool { return waiting.Load() == 3 })
	giveUp()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ForceUnlock that was given up: %v", err)
	}
	close(late)
	eventually(t, "its statements go on", func() bool { return left.Load() == 3 })
	if err := operator.Close(within(t, time.Minute)); err != nil { // its statements have come to their ends then
		t.Error(err)
	}
	if n := kept(t, nodes...); n != 3 {
		t.Errorf("%d of 3 databases keep the name", n)
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// A raise that is late changes the version of a row while its term goes on.
func TestForceUnlockEndsATermWhoseVersionsWereRaisedMeanwhile(t *testing.T) {
	nodes := threeFiles(t)
	l, operator := newLocker(t, nodes, longTimeout()), newLocker(t, nodes, longTimeout())
	lease := lockOnAll(t, l, nodes, "a")
	for _, n := range nodes {
		set(&n.beforeRevoke, first(func(ctx context.Context) {
			if _, err := n.direct.ExecContext(ctx, `UPDATE quorum_lock SET version = version + 1`); err != nil {
				t.Error(err)
			}
		}))
	}
	if err := <-force(t.Context(), operator, "a"); err != nil {
		t.Errorf("ForceUnlock: %v", err)
	}
	if n := kept(t, nodes...); n != 0 {
		t.Errorf("%d of 3 databases keep the name", n)
	}
	_ = lease.Unlock(t.Context())
}

// A database that was late has an older end of the name.
// Of a name that nobody holds, the databases that answer first decide which version is seen.
func TestForceUnlockOfANameThatIsKeptGoesByNoVersion(t *testing.T) {
	nodes := threeFiles(t)
	l, operator := newLocker(t, nodes, longTimeout()), newLocker(t, nodes, longTimeout())
	lease, err := l.Lock(t.Context(), "a", sqllock.MinHold(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all databases have released the name", func() bool { return kept(t, nodes...) == 0 })
	for _, n := range nodes {
		var reads atomic.Int64
		set(&n.beforeRead, func(ctx context.Context) {
			if reads.Add(1) != 2 {
				return
			}
			if _, err := n.direct.ExecContext(ctx, `UPDATE quorum_lock SET version = version + 1`); err != nil {
				t.Error(err)
			}
		})
	}
	if err := <-force(t.Context(), operator, "a"); err != nil {
		t.Errorf("ForceUnlock of a name that is kept: %v", err)
	}
	next, err := operator.TryLock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestInspectTellsHowTheLastTermHasEnded(t *testing.T) {
	nodes := threeFiles(t)
	l := newLocker(t, nodes, longTimeout())
	lease := lockOnAll(t, l, nodes, "a")
	if err := <-force(t.Context(), l, "a"); err != nil {
		t.Fatal(err)
	}
	_ = lease.Unlock(t.Context())
	for i, older := range nodes {
		end(t, older, `ended = `+strconv.Itoa(int(driver.EndedReleased))+`, version = version - 1000000`)
		late := make(chan struct{})
		set(&nodes[(i+1)%3].beforeRead, until(late)) // so its answer counts
		if info, err := l.Inspect(t.Context(), "a"); err != nil || info.State != sqllock.StateForced {
			t.Errorf("with an older end on database %d: %v, %v", i, info.State, err)
		}
		close(late)
		end(t, older, `ended = `+strconv.Itoa(int(driver.EndedRevoked))+`, version = version + 1000000`)
	}
	for i, lost := range nodes {
		end(t, lost, `ended = 1, version = version + 1000, acq = X'01010101010101010101010101010101', value = X'00000000000000000000000078'`)
		set(&nodes[(i+1)%3].beforeRead, func(context.Context) { time.Sleep(20 * time.Millisecond) }) // so that of the others each counts
		if info, err := l.Inspect(t.Context(), "a"); err != nil || info.State != sqllock.StateForced || len(info.Value) != 0 {
			t.Errorf("with an acquisition on database %d that nobody was granted: %v with %q, %v", i, info.State, info.Value, err)
		}
		end(t, lost, `ended = 3, version = version - 1000, acq = NULL, value = NULL`)
	}
	for i, n := range nodes { // several acquisitions have lost: the version of none is a token of the past
		end(t, n, fmt.Sprintf(`acq = X'0%d010101010101010101010101010101', version = %d`, i+1, lease.Token()+int64(1000*(i+1))))
	}
	if info, err := l.Inspect(t.Context(), "a"); err != nil || info.Token >= lease.Token()+2000 {
		t.Errorf("Inspect of a name that nobody has: the token %d, %v; the last one was %d", info.Token, err, lease.Token())
	}
}

// end writes how the last term has ended.
func end(t *testing.T, n *node, how string) {
	t.Helper()
	if _, err := n.direct.ExecContext(t.Context(), `UPDATE quorum_lock SET `+how); err != nil {
		t.Fatal(err)
	}
}

// Which databases answer first differs from one reading to the next.
func TestWatchDoesNotGoBack(t *testing.T) {
	nodes := threeFiles(t)
	l := newLocker(t, nodes, &sqllock.QuorumOptions{TTL: time.Hour, NodeTimeout: 2 * time.Minute, RetryMin: 5 * time.Millisecond, RetryMax: 10 * time.Millisecond})
	if err := lockOnAll(t, l, nodes, "a").Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the name is free", func() bool { return kept(t, nodes...) == 0 })
	end(t, nodes[2], `version = version + 1000`) // an acquisition that was lost did that
	late := make(chan struct{})
	set(&nodes[0].beforeRead, until(late))
	infos := make(chan sqllock.Info, 100)
	var reads atomic.Int64
	go func() {
		for info, err := range l.Watch(t.Context(), "a") {
			if err == nil {
				infos <- info
			}
		}
	}()
	newest := <-infos
	later := make(chan struct{})
	defer close(later)
	set(&nodes[2].beforeRead, until(later))
	set(&nodes[0].beforeRead, func(context.Context) { reads.Add(1) })
	close(late)
	eventually(t, "the others were read several times", func() bool { return reads.Load() > 5 })
	lease := lockOnAll(t, l, nodes, "a")
	if next := <-infos; next.State != sqllock.StateHeld || next.Token < newest.Token {
		t.Errorf("Watch: %v with the token %d, then %v with %d", newest.State, newest.Token, next.State, next.Token)
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	if next := <-infos; next.State != sqllock.StateReleased || next.Token != lease.Token() {
		t.Errorf("Watch: %v with the token %d, want released with %d", next.State, next.Token, lease.Token())
	}
	eventually(t, "the name is free", func() bool { return kept(t, nodes...) == 0 })
	for _, n := range nodes[:2] { // a grant is late there, and a release that follows is under way
		end(t, n, `acq = X'01010101010101010101010101010101', owner = 'o', expires_at = since + 3600000000`)
	}
	before := reads.Load()
	eventually(t, "the others were read several times", func() bool { return reads.Load() > before+5 })
	for _, n := range nodes[:2] {
		end(t, n, `acq = NULL, owner = NULL`)
	}
	lease = lockOnAll(t, l, nodes, "a")
	if next := <-infos; next.State != sqllock.StateHeld || next.Token != lease.Token() {
		t.Errorf("Watch: %v with the token %d, want held with %d", next.State, next.Token, lease.Token())
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}
