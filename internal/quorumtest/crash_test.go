package quorumtest

import (
	"testing"
	"time"

	"github.com/sqllock/sqllock"
)

// Of three databases one ends the expired term for a request that is lost, or for a pass of the
// reaper, and another later for the next holder. Both together are a quorum.
func TestACrashIsReportedWhateverHasEndedTheTerm(t *testing.T) {
	for name, try := range map[string]func(*testing.T, *sqllock.Locker){
		"a request that is lost": func(t *testing.T, l *sqllock.Locker) {
			if lease, err := l.TryLock(t.Context(), "a"); err == nil {
				t.Errorf("TryLock of a name that two databases keep: %v", lease)
			}
		},
		"a pass of the reaper": func(t *testing.T, l *sqllock.Locker) {
			if rep, err := l.Reaper().Reap(t.Context()); err != nil || len(rep.Crashed) > 0 {
				t.Errorf("with one of three expired: %+v, %v", rep, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := threeFiles(t)
			crashed := make(chan sqllock.CrashedEvent, 10)
			lease := lockOnAll(t, newLocker(t, nodes, longTimeout()), nodes, "a")
			next := newLocker(t, nodes, &sqllock.QuorumOptions{Hooks: &sqllock.Hooks{Crashed: func(e sqllock.CrashedEvent) { crashed <- e }}})
			end(t, nodes[0], `expires_at = since + 1`)
			try(t, next)
			end(t, nodes[1], `expires_at = since + 1`)
			later, err := next.Lock(within(t, time.Minute), "a")
			if err != nil {
				t.Fatal(err)
			}
			select {
			case e := <-crashed:
				if e.Token != lease.Token() || e.Name != "a" {
					t.Errorf("the crash: %+v, the token was %d", e, lease.Token())
				}
			case <-time.After(time.Minute):
				t.Error("the crash was not reported")
			}
			if err := later.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
			_ = lease.Unlock(t.Context())
			if err := next.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if n := len(crashed); n > 0 {
				t.Errorf("the crash was reported %d times", n+1)
			}
		})
	}
}
