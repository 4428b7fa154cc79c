//go:build linux

package locks

import (
	"context"
	"math"

	"github.com/sqllock/sqllock/faults/internal/server"
)

// nothing grants every request, with the same token. A check that does not report it does
// not work.
func nothing() System {
	return System{
		Name: "nothing", Server: server.SQLite, // which is no server
		Token: "the same for all", Knows: "not at all", Claims: "nothing",
		Open: func(context.Context, Site) (Client, error) { return nobody{}, nil },
	}
}

type nobody struct{}

func (nobody) Lock(context.Context, int, string) (Held, error) { return nobody{}, nil }
func (nobody) Close() error                                    { return nil }
func (nobody) Token() int64                                    { return math.MaxInt64 }
func (nobody) Holds(context.Context) bool                      { return true }
func (nobody) Unlock(context.Context) error                    { return nil }
