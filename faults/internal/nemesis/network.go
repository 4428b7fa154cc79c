//go:build linux

package nemesis

import (
	"bytes"
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/faults/internal/check"
	"github.com/sqllock/sqllock/internal/netproxy"
)

// networks are the faults of the network between one client and the server.
var networks = []*Nemesis{
	network("net-freeze", "the network keeps what both sides send, for longer or shorter than a TTL, and delivers it then", false,
		func(ctx context.Context, p *netproxy.Proxy, d time.Duration, _ *rand.Rand) int {
			p.Freeze()
			sleep(ctx, d)
			p.Thaw()
			return 1
		}),
	network("net-freeze-one-way", "the network keeps what one side sends, and delivers it then", false,
		func(ctx context.Context, p *netproxy.Proxy, d time.Duration, rng *rand.Rand) int {
			if rng.IntN(2) == 0 {
				p.FreezeUp()
			} else {
				p.FreezeDown()
			}
			sleep(ctx, d)
			p.Thaw()
			return 1
		}),
	network("net-lost-reply", "connections are reset after a request was carried out, before its reply", true, loseReplies),
	network("net-reset", "all connections of a client are reset, several times", true,
		func(ctx context.Context, p *netproxy.Proxy, d time.Duration, rng *rand.Rand) int {
			n := 1 + rng.IntN(3)
			for range n {
				p.Reset()
				sleep(ctx, d/8)
			}
			return n
		}),
	halfOpen,
	network("net-latency", "each way takes up to 50 ms longer", false,
		func(ctx context.Context, p *netproxy.Proxy, d time.Duration, rng *rand.Rand) int {
			p.Latency(between(rng, time.Millisecond, 50*time.Millisecond))
			sleep(ctx, d)
			p.Latency(0)
			return 1
		}),
}

// network makes a nemesis of do, which returns how many faults it was.
func network(name, about string, ends bool, do func(context.Context, *netproxy.Proxy, time.Duration, *rand.Rand) int) *Nemesis {
	return &Nemesis{
		Name: name, About: about, NotFor: networked,
		Inject: func(ctx context.Context, s *Site, rng *rand.Rand) error {
			victim := s.victim(rng)
			d := s.within(rng)
			if rng.IntN(2) == 0 {
				d = s.beyond(rng)
			}
			defer s.fault(name, victim.Proc(), ends)()
			s.single = do(ctx, victim.Net, d, rng)
			return nil
		},
	}
}

// loseReplies cuts connections when they have sent something that ends or is a
// transaction: every COMMIT, and every tenth of the other requests.
func loseReplies(ctx context.Context, p *netproxy.Proxy, d time.Duration, rng *rand.Rand) int {
	var n, lost atomic.Uint64
	offset := rng.Uint64N(10)
	p.OnUp(func(_ int, b []byte) netproxy.Action {
		if bytes.Contains(bytes.ToLower(b), []byte("commit")) || (n.Add(1)+offset)%10 == 0 {
			lost.Add(1)
			return netproxy.CutAfterReply
		}
		return netproxy.Pass
	})
	sleep(ctx, d)
	p.OnUp(nil)
	return int(lost.Load())
}

// halfOpen simulates a host that vanishes: its connections remain only on the server.
var halfOpen = &Nemesis{
	Name: "net-half-open", About: "a client vanishes without a word: it is killed behind a frozen network", NotFor: networked,
	Inject: func(ctx context.Context, s *Site, rng *rand.Rand) error {
		victim := s.victim(rng)
		victim.Net.Freeze()
		defer s.fault(check.Kill, victim.Proc(), true)()
		if err := victim.Kill(); err != nil {
			return err
		}
		sleep(ctx, s.beyond(rng))
		victim.Net.Thaw()
		return victim.Start()
	},
}
