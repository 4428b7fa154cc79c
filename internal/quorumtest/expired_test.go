package quorumtest

import (
	"errors"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
)

// The rows of a crashed holder stay until somebody else gets the name.
func TestTheNextHolderFollowsOneThatHasCrashed(t *testing.T) {
	onAll(t, func(t *testing.T, nodes []*node) {
		crashed := make(chan sqllock.CrashedEvent, 10)
		holder := newLocker(t, nodes, &sqllock.QuorumOptions{TTL: time.Hour})
		next := newLocker(t, nodes, &sqllock.QuorumOptions{Hooks: &sqllock.Hooks{Crashed: func(e sqllock.CrashedEvent) { crashed <- e }}})
		lease, err := holder.Lock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "all keep the name", func() bool {
			held := 0
			for _, n := range nodes {
				held += n.rows(t)
			}
			return held == len(nodes)
		})
		for _, n := range nodes {
			if _, err := n.direct.ExecContext(t.Context(), `UPDATE quorum_lock SET expires_at = since + 1`); err != nil {
				t.Fatal(err)
			}
		}
		later, err := next.Lock(within(t, 20*time.Second), "a")
		if err != nil {
			t.Fatal(err)
		}
		if later.Token() <= lease.Token() {
			t.Errorf("the token %d follows %d", later.Token(), lease.Token())
		}
		if e := <-crashed; e.Token != lease.Token() {
			t.Errorf("the crash: %+v, the token was %d", e, lease.Token())
		}
		if err := later.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		_ = lease.Unlock(t.Context())
	})
}

// What MinHold keeps is kept by those databases, too, that were released late.
func TestANameThatIsKeptIsHeld(t *testing.T) {
	onAll(t, func(t *testing.T, nodes []*node) {
		a, b := newLocker(t, nodes, nil), newLocker(t, nodes, nil)
		lease, err := a.Lock(t.Context(), "a", sqllock.MinHold(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		var held *sqllock.HeldError
		if _, err := b.TryLock(t.Context(), "a"); !errors.As(err, &held) || time.Until(held.Until) < 30*time.Minute {
			t.Errorf("TryLock of a name that is kept for an hour: %v", err)
		}
		if _, err := b.ForceUnlock(t.Context(), "a"); err != nil {
			t.Errorf("ForceUnlock of a name that is kept: %v", err)
		}
		next, err := b.Lock(within(t, 20*time.Second), "a")
		if err != nil {
			t.Fatal(err)
		}
		if err := next.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
