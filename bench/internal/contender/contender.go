// Package contender has one small interface for everything that the benchmarks compare:
// this project's locks, others' locks, and bare statements as a floor.
package contender

import (
	"context"
	"time"
)

// ttl is that of all contenders: the default of this project. No round is longer.
const ttl = 30 * time.Second

// Site describes the servers and the settings of a contender. It is sent to other
// processes.
type Site struct {
	Addrs    map[string]string // host:port by name of the server
	Delay    time.Duration     // by which each round trip takes longer
	Database string            // which the contender has for itself; on key-value servers a prefix
	Prefix   string            // of the tables, "" for the default
	Count    bool              // sessions of Postgres have their statements counted
	Shrink   bool              // idle connections are closed after a second
	Conns    int               // of the pool at most, 0 for the usual number
	Hooks    bool              // Lockers of unique mode call hooks that count
	Flush    time.Duration     // by which each flush of Postgres takes longer
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
	// Waits means that Lock waits while the name is held.
	Waits bool
	// OnlyWaits leaves the contender out of workloads without waiters.
	OnlyWaits bool
	// Prepare prepares the server for the clients, once. It may be nil.
	Prepare func(ctx context.Context, s Site) error
	Open    func(ctx context.Context, s Site) (Client, error)
	// OpenMany opens clients that share their connections, as far as they can. It is nil
	// for others' locks.
	OpenMany func(ctx context.Context, s Site, n int) ([]Client, error)
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
