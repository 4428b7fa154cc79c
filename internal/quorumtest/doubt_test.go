package quorumtest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
)

// What is told while databases differ from each other, or do not answer.

// expire has a database take the terms that it keeps for over since a moment.
func (n *node) expire(t *testing.T) {
	t.Helper()
	now := time.Now().UnixMicro()
	if _, err := n.direct.ExecContext(t.Context(), `UPDATE quorum_lock SET expires_at = ? WHERE acq IS NOT NULL`, now-1); err != nil {
		t.Fatal(err)
	}
}

// keeps reports that a database keeps a term of an owner.
func (n *node) keeps(t *testing.T, owner string) (held bool) {
	t.Helper()
	err := n.direct.QueryRowContext(t.Context(), `SELECT count(*) > 0 FROM quorum_lock WHERE acq IS NOT NULL AND owner = ? AND expires_at > ?`,
		owner, time.Now().UnixMicro()).Scan(&held)
	if err != nil {
		t.Fatal(err)
	}
	return held
}

// soonGivingUp is of Lockers that do not wait for a database that hangs.
func soonGivingUp() *sqllock.QuorumOptions {
	return &sqllock.QuorumOptions{TTL: time.Hour, NodeTimeout: 3 * time.Second}
}

func TestATermThatHasExpiredOnOneDatabaseIsHeldByTheOthers(t *testing.T) {
	nodes := threeFiles(t)
	l, other := newLocker(t, nodes, longTimeout()), newLocker(t, nodes, soonGivingUp())
	lease := lockOnAll(t, l, nodes, "a")
	nodes[0].expire(t)
	slow := func(ctx context.Context) { // it answers behind the others
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	set(&nodes[2].beforeRead, slow)
	if info, err := other.Inspect(t.Context(), "a"); err != nil || info.State != sqllock.StateHeld || info.Token != lease.Token() {
		t.Errorf("Inspect = %+v, %v; want a term that is held with token %d", info, err, lease.Token())
	}
	if state, err := other.CheckSequencer(t.Context(), lease.Sequencer()); err != nil || state != sqllock.SequencerCurrent {
		t.Errorf("CheckSequencer = %v, %v", state, err)
	}
	set(&nodes[2].beforeRead, until(nil)) // it does not answer
	if state, err := other.CheckSequencer(t.Context(), lease.Sequencer()); err != nil || state == sqllock.SequencerStale {
		t.Errorf("CheckSequencer while a database hangs that may keep the name = %v, %v", state, err)
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// A request that was given up comes late, when the next value is set.
func TestAValueThatComesLateReplacesNone(t *testing.T) {
	nodes := threeFiles(t)
	e := leadOnAll(t, nodes)
	if err := e.Proclaim(t.Context(), []byte("first")); err != nil {
		t.Fatal(err)
	}
	var late []*lateValue
	var reached []*node
	for _, n := range nodes {
		if v := n.setValue.Load(); v != nil { // else it keeps the name, and is not known to
			late, reached = append(late, v), append(reached, n)
		}
	}
	if len(late) < 2 {
		t.Fatalf("%d databases were asked", len(late))
	}
	if err := e.Proclaim(t.Context(), []byte("second")); err != nil {
		t.Fatal(err)
	}
	for _, n := range reached {
		eventually(t, "each has the second value", func() bool {
			var value []byte
			err := n.direct.QueryRowContext(t.Context(), `SELECT value FROM quorum_lock`).Scan(&value)
			return err == nil && bytes.HasSuffix(value, []byte("second"))
		})
	}
	for _, v := range late {
		if done, err := v.to.SetValue(t.Context(), v.req); done || err != nil {
			t.Errorf("a value that comes late: %v, %v", done, err)
		}
	}
	if term, err := e.Leader(t.Context()); err != nil || string(term.Value) != "second" {
		t.Errorf("Leader = %q, %v", term.Value, err)
	}
	if err := e.Resign(t.Context()); err != nil {
		t.Error(err)
	}
}

// Of three databases one does not answer, and one says that the term is over.
func TestUnlockDoesNotSayThatATermWasHeldWhichMayHaveEnded(t *testing.T) {
	nodes := threeFiles(t)
	l, operator := newLocker(t, nodes, soonGivingUp()), newLocker(t, nodes, soonGivingUp())
	lease := lockOnAll(t, l, nodes, "a")
	set(&nodes[2].beforeRevoke, until(nil))
	if _, err := operator.ForceUnlock(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	answers := make(chan struct{})
	set(&nodes[1].beforeRelease, until(answers))
	defer close(answers)
	if err := lease.Unlock(within(t, 9*time.Second)); err == nil {
		t.Error("Unlock of a lease that was revoked returned nil")
	}
}

// The operator ends a term on one database after the other, and meanwhile its holder renews.
func TestAHolderDoesNotTakeBackWhatWasEndedByForce(t *testing.T) {
	nodes := threeFiles(t)
	const ttl = 6 * time.Second
	l := newLocker(t, nodes, &sqllock.QuorumOptions{TTL: ttl})
	operator := newLocker(t, nodes, &sqllock.QuorumOptions{TTL: time.Hour, NodeTimeout: 4 * time.Second})
	lease := lockOnAll(t, l, nodes, "a")
	second := make(chan struct{})
	set(&nodes[1].beforeRevoke, until(second))
	set(&nodes[2].beforeRevoke, until(nil))
	forced := make(chan error, 1)
	go func() {
		_, err := operator.ForceUnlock(t.Context(), "a")
		for tries := 1; err != nil && tries < 3; tries++ { // on a busy machine the second database was too late
			_, err = operator.ForceUnlock(t.Context(), "a")
		}
		forced <- err
	}()
	eventually(t, "one database has ended the term", func() bool { return kept(t, nodes[0]) == 0 })
	time.Sleep(ttl/3 + 500*time.Millisecond) // the holder renews, and asks the first one again
	close(second)
	if err := <-forced; err != nil {
		t.Fatal(err)
	}
	select {
	case <-lease.Context().Done():
	case <-time.After(10 * time.Second):
		t.Error("a term that was ended by force goes on")
	}
	_ = lease.Unlock(t.Context())
}

func TestCallersOfOneLockerAreToldUntilWhenANameIsHeld(t *testing.T) {
	nodes := threeFiles(t)
	l := newLocker(t, nodes, longTimeout())
	refused := 0
	for range 20 {
		errs := make(chan error, 8)
		var wg sync.WaitGroup
		for range cap(errs) {
			wg.Go(func() {
				lease, err := l.TryLock(t.Context(), "a")
				if err == nil {
					time.Sleep(time.Millisecond)
					err = lease.Unlock(t.Context())
				}
				errs <- err
			})
		}
		wg.Wait()
		close(errs)
		for err := range errs {
			held := new(sqllock.HeldError)
			switch {
			case err == nil:
			case !errors.As(err, &held):
				t.Error(err)
			case held.Owner != "" && time.Until(held.Until) < 0:
				t.Fatalf("held until %v", held.Until)
			default:
				refused++
			}
		}
	}
	if refused == 0 {
		t.Error("nobody was refused")
	}
}

// Two databases lose sight of a holder, one after the other. Each has the name again meanwhile.
func TestAHolderThatLivesIsNotToldToHaveCrashed(t *testing.T) {
	nodes := threeFiles(t)
	crashed := make(chan sqllock.CrashedEvent, 10)
	l := newLocker(t, nodes, &sqllock.QuorumOptions{TTL: 10 * time.Second})
	other := newLocker(t, nodes, &sqllock.QuorumOptions{TTL: 2 * time.Second,
		Hooks: &sqllock.Hooks{Crashed: func(e sqllock.CrashedEvent) { crashed <- e }}})
	lease := lockOnAll(t, l, nodes, "a")
	for _, n := range nodes[:2] {
		n.expire(t)
		_, err := other.TryLock(t.Context(), "a")
		for tries := 1; err != nil && !errors.Is(err, sqllock.ErrHeld) && tries < 3; tries++ { // on a busy machine they do not answer in time
			_, err = other.TryLock(t.Context(), "a")
		}
		if !errors.Is(err, sqllock.ErrHeld) {
			t.Fatalf("TryLock = %v", err)
		}
		time.Sleep(2500 * time.Millisecond) // longer than the TTL of the other, which may be slow to give back what it got
		eventually(t, "the holder has the name on all again", func() bool {
			return !slices.ContainsFunc(nodes, func(n *node) bool { return !n.keeps(t, lease.Owner()) })
		})
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case e := <-crashed:
		t.Errorf("a holder that lives is told to have crashed: %+v", e)
	default:
	}
}

// A database that opens long after the others is one of them under another name.
func TestADatabaseThatIsRefusedLateIsLogged(t *testing.T) {
	nodes := threeFiles(t)
	logged := new(logs)
	twin := &node{UniqueDatabase: nodes[1].UniqueDatabase, direct: nodes[1].direct}
	set(&twin.beforeOpen, func(context.Context) { time.Sleep(4 * time.Second) })
	o := longTimeout()
	o.Logger = logged.logger()
	newLocker(t, []*node{nodes[0], nodes[1], twin}, o)
	eventually(t, "it is logged", func() bool { return logged.count("is refused", "the same tables") > 0 })
}
