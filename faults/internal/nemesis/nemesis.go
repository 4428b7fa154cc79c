//go:build linux

// Package nemesis does harm to the clients, the network and the server of a fault run:
// one fault at a time, from its strike until it has healed.
package nemesis

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sqllock/sqllock/faults/internal/fleet"
	"github.com/sqllock/sqllock/faults/internal/history"
	"github.com/sqllock/sqllock/faults/internal/server"
)

// Site has the targets of a cell. One fault at a time uses it.
type Site struct {
	Mode, Database string
	TTL, Delay     time.Duration   // Delay is the longest LockDelay
	TTLs           []time.Duration // of which an outage takes half
	Clients        []*fleet.Client
	Server         *server.Server
	Admin          *sql.DB // directly to the server; nil for SQLite
	Log            *history.Writer
	// Aims are the operations in which a process is paused, in turn: operations of
	// package history, or "" for anywhere. nil means the operations of the library's
	// clients.
	Aims []string

	pauses, next int // pauses and faults so far
	single       int // of how many single ones the present fault consists, if of several
}

// Nemesis is a kind of fault.
type Nemesis struct {
	Name  string
	About string
	// NotFor returns why a mode and a database do not have this fault, or "" if they do.
	// It may be nil.
	NotFor func(mode, database string) string
	// Inject does harm, and undoes it, before it returns.
	Inject func(ctx context.Context, s *Site, rng *rand.Rand) error
	// Rest is the longest pause after a fault; 0 is a quarter of a TTL.
	Rest time.Duration
	// Unsteady means that two clients may hold one name, see docs/guarantees.md.
	Unsteady bool
	// Pool is how many connections the pool of the locks may open; 0 is enough.
	Pool int
	// Steps means that the clock of the server is set.
	Steps bool
	// Standby means that there is a second server. With Loses it misses some commits, so
	// that the registers must be in another database.
	Standby, Loses bool
	// Pair means that clients know the addresses of both servers, and use neither through a proxy.
	Pair bool
	// Keeps means that clients keep leases meanwhile that must not be lost, and that their pool is
	// full of other work.
	Keeps bool
	// Nodes means that it is for the nodes of a cluster only.
	Nodes bool
}

// Applies returns why the nemesis is not possible in a cell, or "" if it is.
func (n *Nemesis) Applies(mode, database string) string {
	if n.NotFor == nil {
		return ""
	}
	return n.NotFor(mode, database)
}

// All returns every nemesis, the calm first.
func All() []*Nemesis {
	all := []*Nemesis{noFault, kill, pause}
	all = append(all, networks...)
	all = append(all, servers...)
	all = append(all, members...)
	all = append(all, commitPause, demotion, outage, onePool, clockSteps, promotion, frozenPromotion, lossyPromotion)
	return append(all, mixed(all))
}

// ByName returns the nemesis of a name, nil if there is none.
func ByName(name string) *Nemesis {
	for _, n := range All() {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// fault writes the start of a fault of a process, or of all if proc is "". The function
// that it returns writes the end.
func (s *Site) fault(kind, proc string, endsSessions bool) (healed func()) {
	s.next++
	s.single = 0
	e := history.Event{Op: history.Fault, ID: fmt.Sprintf("fault/%d", s.next), Reason: kind, Proc: proc, Ends: endsSessions}
	e.T = history.Now()
	s.Log.Write(e)
	return func() {
		e.T, e.Ret, e.N = history.Now(), true, int64(s.single)
		s.Log.Write(e)
	}
}

// outage writes that the server takes no writes from now on. The function that it returns writes
// that it does.
func (s *Site) outage() (up func()) {
	e := history.Event{Op: history.Outage, ID: fmt.Sprintf("outage/%d", s.next), T: history.Now()}
	s.Log.Write(e)
	return func() {
		e.T, e.Ret = history.Now(), true
		s.Log.Write(e)
	}
}

// victim returns a client to harm.
func (s *Site) victim(rng *rand.Rand) *fleet.Client { return s.Clients[rng.IntN(len(s.Clients))] }

// beyond returns a time that is longer than a lease without renewals lasts.
func (s *Site) beyond(rng *rand.Rand) time.Duration {
	return s.TTL + s.Delay + between(rng, 300*time.Millisecond, s.TTL)
}

// within returns a time that a lease may survive.
func (s *Site) within(rng *rand.Rand) time.Duration {
	return between(rng, 10*time.Millisecond, s.TTL/2)
}

func between(rng *rand.Rand, a, b time.Duration) time.Duration {
	return a + time.Duration(rng.Int64N(int64(b-a)))
}

// sleep waits, or until ctx ends: a fault heals early then.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

var noFault = &Nemesis{
	Name: "none", About: "nothing happens",
	Inject: func(ctx context.Context, s *Site, rng *rand.Rand) error {
		sleep(ctx, s.within(rng))
		return nil
	},
}

// onePool needs no injection: the cell itself has a pool of one connection.
var onePool = &Nemesis{
	Name: "pool-of-one", About: "the locks have a pool of one connection", Pool: 1,
	NotFor: func(mode, _ string) string {
		if mode != "unique" {
			return "the mode needs three connections, and refuses fewer"
		}
		return ""
	},
	Inject: noFault.Inject,
}

func networked(_, database string) string {
	if database == server.SQLite {
		return "SQLite has no network and no server"
	}
	return ""
}
