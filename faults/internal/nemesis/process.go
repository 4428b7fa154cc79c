//go:build linux

package nemesis

import (
	"bytes"
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sqllock/sqllock/faults/internal/check"
	"github.com/sqllock/sqllock/faults/internal/history"
	"github.com/sqllock/sqllock/internal/netproxy"
)

var kill = &Nemesis{
	Name: "client-kill", About: "a client gets SIGKILL, and another one takes its place",
	Inject: func(ctx context.Context, s *Site, rng *rand.Rand) error {
		victim := s.victim(rng)
		healed := s.fault(check.Kill, victim.Proc(), true)
		defer healed()
		if err := victim.Kill(); err != nil {
			return err
		}
		sleep(ctx, between(rng, 0, s.TTL/2))
		return victim.Start()
	},
}

// commitPause leaves a transaction of the library open, or one of the application, with what it has
// locked: the client is paused when it is about to commit.
var commitPause = &Nemesis{
	Name: "commit-pause", About: "a client gets SIGSTOP for longer than its TTL and LockDelay, while its COMMIT is on its way",
	NotFor: func(mode, database string) string {
		if mode != "unique" {
			return "the mode keeps locks in its sessions, and " + pause.Name + " pauses them"
		}
		return networked(mode, database)
	},
	Inject: func(ctx context.Context, s *Site, rng *rand.Rand) error {
		victim := s.victim(rng)
		healed := s.fault(check.Pause, victim.Proc(), true)
		defer healed()
		held := make(chan struct{})
		var once sync.Once
		victim.Net.OnUp(func(_ int, b []byte) netproxy.Action {
			if bytes.Contains(bytes.ToLower(b), []byte("commit")) {
				once.Do(func() {
					victim.Net.FreezeUp()
					close(held)
				})
			}
			return netproxy.Pass
		})
		limited, cancel := context.WithTimeout(ctx, 3*time.Second)
		select {
		case <-held:
		case <-limited.Done():
		}
		cancel()
		victim.Net.OnUp(nil)
		if err := victim.Stop("", 0); err != nil {
			return err
		}
		sleep(ctx, s.beyond(rng))
		victim.Net.Thaw()
		return victim.Continue()
	},
}

// defaultAims are those of a Site that has none.
var defaultAims = []string{history.Plain, history.Guarded, history.Plain, ""}

var pause = &Nemesis{
	Name: "client-pause", About: "a client gets SIGSTOP for longer than its TTL and LockDelay, mostly in the middle of a write",
	Inject: func(ctx context.Context, s *Site, rng *rand.Rand) error {
		victim := s.victim(rng)
		aims := s.Aims
		if aims == nil {
			aims = defaultAims
		}
		s.pauses++
		at := aims[(s.pauses-1)%len(aims)]
		// The process may stop at any time from now on.
		healed := s.fault(check.Pause, victim.Proc(), false)
		defer healed()
		if err := victim.Stop(at, 3*time.Second); err != nil {
			return err
		}
		sleep(ctx, s.beyond(rng))
		if at == history.Plain {
			sleep(ctx, s.TTL) // so that others write
		}
		return victim.Continue()
	},
}
