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
	Inject: func(_ context.Context, s *Site, _ *rand.Rand) error {
		defer s.fault("promotion", "", true)()
		return s.Server.Promote(0)
	},
}

var lossyPromotion = &Nemesis{
	Name: "promotion-lossy", About: "the server is killed, and a standby takes its place that has not heard of the last commits",
	Standby: true, Loses: true, Unsteady: true, NotFor: replicated,
	Inject: func(_ context.Context, s *Site, rng *rand.Rand) error {
		defer s.fault("promotion-lossy", "", true)()
		return s.Server.Promote(between(rng, 50*time.Millisecond, s.TTL))
	},
}

func replicated(_, database string) string {
	if database != server.Postgres {
		return "a standby is set up for Postgres only"
	}
	return ""
}
