//go:build unix

package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/busy"
	"github.com/sqllock/sqllock/internal/testdb"
)

// waitSlack is what --wait may take longer. On an idle machine it is 200 ms; where others want the
// processors, seconds pass before a process has begun.
func waitSlack() time.Duration {
	if busy.Now() {
		return 4 * time.Second
	}
	return 700 * time.Millisecond
}

// runInTime checks that a call that waits for so long takes hardly longer.
func (u client) runInTime(t *testing.T, wait time.Duration, code int, err string, args ...string) {
	t.Helper()
	args = append(args, "--wait", wait.String(), "n", "--", "true")
	start := time.Now()
	u.run(t, args...).want(t, code, "", err)
	took := time.Since(start)
	t.Logf("%q took %v", args, took)
	if took < wait-50*time.Millisecond || took > wait+waitSlack() {
		t.Errorf("%q took %v", args, took)
	}
}

func TestWaitIsOverInTime(t *testing.T) {
	onEachMode(t, func(t *testing.T, s *clientDB, m mode) {
		const wait = 4 * time.Second // in which a busy machine has connected too
		holding := s.shell(t, "@UP; sleep 60", "--mode", string(m), "n")
		s.runInTime(t, wait, exitHeld, "held", "run", "--mode", string(m))
		s.runInTime(t, wait, exitHeld, "held", "run", "--shared", "--mode", string(m))
		holding.end(t)
	})
}

func TestWaitIsOverInTimeWhenTheServerIsSilent(t *testing.T) {
	for _, engine := range testdb.Engines() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			u, proxy := newProxyClient(t, engine)
			proxy.Freeze()
			for _, m := range modes {
				u.runInTime(t, 300*time.Millisecond, exitUnavailable, "not answer", "run", "--mode", string(m))
			}
		})
	}
}

func TestWaitIsOverInTimeWhenTheServerFallsSilent(t *testing.T) {
	for _, engine := range testdb.Engines() {
		for _, m := range modes {
			t.Run(engine+" "+string(m), func(t *testing.T) {
				t.Parallel()
				u, proxy := newProxyClient(t, engine)
				holding := u.shell(t, "@UP; sleep 60", "--mode", string(m), "n")
				const wait = 2 * time.Second
				start := time.Now()
				p := u.start(t, "run", "--mode", string(m), "--wait", wait.String(), "n", "--", "true")
				time.Sleep(time.Second)
				proxy.Freeze()
				r := p.wait()
				if took := time.Since(start); took < wait-50*time.Millisecond || took > wait+waitSlack() || r.code != exitHeld && r.code != exitUnavailable {
					t.Errorf("it took %v and ended with %+v", took, r)
				}
				holding.signal(syscall.SIGKILL)
				holding.wait()
			})
		}
	}
}

// Nobody hears of the loss before the command ends: the next renewal is ten seconds away.
func TestALossThatOnlyTheUnlockFindsIsALoss(t *testing.T) {
	onEachMode(t, func(t *testing.T, s *clientDB, m mode) {
		for _, next := range []bool{false, true} {
			if next && m.sessions() {
				continue // there the holder has let go before the next one comes
			}
			flag := filepath.Join(t.TempDir(), "flag")
			p := s.shell(t, "@UP; while [ ! -e "+flag+" ]; do sleep 0.02; done; echo done", "--mode", string(m), "n")
			var waiting *call
			if next {
				waiting = s.start(t, "run", "--mode", string(m), "n", "--", "echo", "next")
				time.Sleep(300 * time.Millisecond)
			}
			if m.sessions() {
				s.listed(t, m, "n")
			}
			s.run(t, "unlock", "--mode", string(m), "--force", "n").want(t, 0, "unlocked n", "")
			if err := os.WriteFile(flag, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			p.wait().want(t, exitLost, "", "lost")
			if next {
				waiting.wait().want(t, 0, "next", "")
			}
		}
	})
}
