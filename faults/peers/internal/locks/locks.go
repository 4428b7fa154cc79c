//go:build linux

// Package locks has one small interface for all compared locks: this project's and
// others. Each is used as its authors recommend.
package locks

import (
	"context"
	"time"

	"github.com/sqllock/sqllock/faults/internal/server"
)

// Site describes the server and the settings of a system. It is sent to other processes.
type Site struct {
	Addr        string // host:port of the server
	Driver, DSN string // of SQL databases
	Proc        string // the name of the client, for people
	TTL         time.Duration
	Workers     int
}

// Client takes locks from one process. Lock is safe for concurrent use, with one call at
// a time for each worker.
type Client interface {
	// Lock waits for a name, in the way of the library, until ctx ends. A client gets
	// over an error by itself: the next call may succeed.
	Lock(ctx context.Context, worker int, name string) (Held, error)
	// Close frees the connections. No lock is held any more.
	Close() error
}

// Held is a lock that is held.
type Held interface {
	// Token distinguishes this term from others at a resource. It is 0 if there is none.
	Token() int64
	// Holds asks, in the way of the library, whether the lock is held still; false if
	// that cannot be known. It is safe for concurrent use, but not with Unlock.
	Holds(ctx context.Context) bool
	// Unlock is called once.
	Unlock(ctx context.Context) error
}

// System is one of those that are compared.
type System struct {
	Name   string
	Server string // of package server
	Ours   bool
	Token  string // the kind of the token, "" if there is none
	Knows  string // how a holder knows that it holds
	Claims string // the promise of its authors
	// Overlap are the faults under which two may believe that they hold, with the rows of
	// the documentation that say so.
	Overlap map[string]string
	// Prepare prepares the server for the clients, once. It may be nil.
	Prepare func(ctx context.Context, s Site) error
	Open    func(ctx context.Context, s Site) (Client, error)
	// Clock returns the time of the server. If it is nil, NoClock says why its clock is
	// not set.
	Clock   func(ctx context.Context, s Site) (time.Time, error)
	NoClock string
	// Only is the one fault that this system is there for, "" for all.
	Only string
}

// All returns the systems that are compared, ours first.
func All() []System {
	return append(ours(), redislocks(server.Redis), redislocks(server.RedisAlways), rueidislocks(), etcd(), zookeeper())
}

// ByName returns a system, also one of those that test the comparison itself.
func ByName(name string) (System, bool) {
	for _, s := range append(All(), sqlite(), nothing()) {
		if s.Name == name {
			return s, true
		}
	}
	return System{}, false
}
