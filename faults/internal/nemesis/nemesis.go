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

// Site is what can be harmed, and in which cell. One strike at a time uses it.
type Site struct {
	Mode, Database string
	TTL, Delay     time.Duration // Delay is the longest LockDelay
	Clients        []*fleet.Client
	Server         *server.Server
	Admin          *sql.DB // directly to the server; nil for SQLite
	Log            *history.Writer
	// Aims are where a process is to be when it is paused, in turn: operations of package
	// history, "" is anywhere. nil is what the clients of the library can do.
	Aims []string

	pauses, next int // pauses and faults so far
	single       int // of how many single ones the present fault consists, if of several
}

// Nemesis is a kind of fault.
type Nemesis struct {
	Name  string
	About string
	// NotFor says why a mode and a database do not have this fault; "" if they do. It
	// may be nil.
	NotFor func(mode, database string) string
	// Inject does harm, and undoes it, before it returns.
	Inject func(ctx context.Context, s *Site, rng *rand.Rand) error
	// Unsteady says that two may hold by nature, see docs/guarantees.md.
	Unsteady bool
	// Pool is how many connections the pool of the locks may open; 0 is enough.
	Pool int
	// Steps says that the clock of the server is set.
	Steps bool
	// Standby says that there is a second server; with Loses it does not know of all
	// commits, so that what the locks protect must be elsewhere.
	Standby, Loses bool
}

// Applies returns why the nemesis cannot be had in a cell, "" if it can.
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
	all = append(all, onePool, clockSteps, promotion, lossyPromotion)
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

// fault writes down a strike of a kind on a process, "" for all, and returns what writes
// down that it has healed.
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

// victim returns a client to harm.
func (s *Site) victim(rng *rand.Rand) *fleet.Client { return s.Clients[rng.IntN(len(s.Clients))] }

// beyond returns a time after which what a silent holder held is somebody else's.
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

// onePool does harm by what the cell is like.
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
