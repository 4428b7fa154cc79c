//go:build linux

package nemesis

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/sqllock/sqllock/faults/internal/check"
	"github.com/sqllock/sqllock/faults/internal/history"
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
