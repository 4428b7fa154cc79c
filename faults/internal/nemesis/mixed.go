//go:build linux

package nemesis

import (
	"context"
	"math/rand/v2"

	"github.com/sqllock/sqllock/faults/internal/server"
)

// mixed injects any of the other faults that apply, except those of clocks. Some of them
// last while the next one begins.
func mixed(all []*Nemesis) *Nemesis {
	return &Nemesis{
		Name: "mixed", About: "any of the above, one after the other, but for the clock and the standbys",
		Inject: func(ctx context.Context, s *Site, rng *rand.Rand) error {
			var those []*Nemesis
			for _, n := range all {
				if !n.Unsteady && !n.Standby && n.Pool == 0 && n != noFault && (!n.Nodes || s.Database == server.Galera) && n.Applies(s.Mode, s.Database) == "" {
					those = append(those, n)
				}
			}
			return those[rng.IntN(len(those))].Inject(ctx, s, rng)
		},
	}
}
