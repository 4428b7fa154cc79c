// Package contender has what the benchmarks compare behind one small interface:
// this project's locks, those of others, and bare statements as a floor.
package contender

import (
	"context"
	"time"
)

// ttl is that of all contenders: the default of this project. No round is longer.
const ttl = 30 * time.Second

// Site says where a contender finds its servers and how it shall behave. It
// travels to other processes.
type Site struct {
	Addrs    map[string]string // host:port by name of the server
	Delay    time.Duration     // by which each round trip takes longer
	Database string            // which the contender has for itself; on key-value servers a prefix
	Prefix   string            // of the tables, "" for the default
	Count    bool              // sessions of Postgres have their statements counted
	Shrink   bool              // connections that nobody needs are closed after a second
}

// Lock is one that is held. Unlock is called once.
type Lock interface {
	Unlock(ctx context.Context) error
}

// Client takes locks from one process. Lock is safe for concurrent use.
type Client interface {
	// Lock waits for a name. The caller's number is from 0 up and has one call at
	// a time.
	Lock(ctx context.Context, caller int, name string) (Lock, error)
	// Close frees the connections. No lock is held any more.
	Close() error
}

// Contender is one of those that are compared.
type Contender struct {
	Name    string
	Server  string
	Durable bool // a lock that was granted outlives a crash of the server
	Floor   bool // bare statements that lock nothing
	// Waits says that Lock waits while somebody else has the name.
	Waits bool
	// OnlyWaits leaves it out where nobody waits.
	OnlyWaits bool
	// Prepare makes what the clients need, once; nil if nothing is needed.
	Prepare func(ctx context.Context, s Site) error
	Open    func(ctx context.Context, s Site) (Client, error)
}

// All returns the contenders in the order in which they take turns.
func All() []Contender {
	var all []Contender
	for _, some := range [][]Contender{ours(), redis(), others(), floors()} {
		all = append(all, some...)
	}
	return all
}

// ByName returns a contender.
func ByName(name string) (Contender, bool) {
	for _, c := range All() {
		if c.Name == name {
			return c, true
		}
	}
	return Contender{}, false
}
