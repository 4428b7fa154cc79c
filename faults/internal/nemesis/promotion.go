//go:build linux

package nemesis

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/sqllock/sqllock/faults/internal/server"
)

var promotion = &Nemesis{
	Name: "promotion", About: "the server is killed, and a synchronous standby takes its place", Standby: true, NotFor: replicated,
	Keeps: true,
	Inject: func(ctx context.Context, s *Site, _ *rand.Rand) error {
		healed := s.fault("promotion", "", true)
		err := s.Server.Promote(0, s.outage())
		healed()
		sleep(ctx, recovery)
		return err
	},
}

var frozenPromotion = &Nemesis{
	Name: "promotion-frozen", About: "the server is frozen, and a synchronous standby takes its place beside it", Standby: true, NotFor: replicated,
	Keeps: true, Pair: true,
	Inject: func(ctx context.Context, s *Site, rng *rand.Rand) error {
		healed := s.fault("promotion-frozen", "", true)
		err := s.Server.Succeed(between(rng, 100*time.Millisecond, s.TTL), between(rng, s.TTL, 3*s.TTL), s.outage())
		healed()
		sleep(ctx, recovery)
		return err
	},
}

// recovery is for how long clients may find the server before the next promotion, and the server may
// begin to wait for its new standby.
const recovery = 2500 * time.Millisecond

var lossyPromotion = &Nemesis{
	Name: "promotion-lossy", About: "the server is killed, and a standby takes its place that has not heard of the last commits",
	Standby: true, Loses: true, Unsteady: true, NotFor: replicated,
	Inject: func(_ context.Context, s *Site, rng *rand.Rand) error {
		defer s.fault("promotion-lossy", "", true)()
		return s.Server.Promote(between(rng, 50*time.Millisecond, s.TTL), func() {})
	},
}

func replicated(_, database string) string {
	if database != server.Postgres {
		return "a standby is set up for Postgres only"
	}
	return ""
}
