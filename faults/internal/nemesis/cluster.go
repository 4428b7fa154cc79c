//go:build linux

package nemesis

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/sqllock/sqllock/faults/internal/server"
)

// members are the faults of a node of a cluster, which hit its clients.
var members = []*Nemesis{
	member("node-kill", "a node of the cluster gets SIGKILL, and is started again", true, (*server.Server).Crash),
	member("node-isolate", "a node of the cluster is cut off from the others, not from its clients, and joins them again", true, (*server.Server).Isolate),
	member("node-freeze", "a node of the cluster gets SIGSTOP, for longer or shorter than the others wait for it", true, (*server.Server).Freeze),
}

// member makes a nemesis of what is done to a node for some time.
func member(name, about string, ends bool, do func(*server.Server, time.Duration) error) *Nemesis {
	return &Nemesis{
		Name: name, About: about, Nodes: true,
		Inject: func(_ context.Context, s *Site, rng *rand.Rand) error {
			nodes := s.Server.Nodes()
			defer s.fault(name, "", ends)()
			return do(nodes[rng.IntN(len(nodes))], between(rng, s.TTL/10, 2*s.TTL))
		},
	}
}

// single is for the nemeses of a server that has no others beside it.
func single(mode, database string) string {
	if database == server.Galera {
		return "each node has nemeses of its own"
	}
	return networked(mode, database)
}
