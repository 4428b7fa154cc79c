package contender

import "github.com/sqllock/sqllock"

// sqlConns is how many connections each SQL contender may open: enough that none
// waits for one while the disk is flushed, on a machine with few cores.
const sqlConns = 64

// All options of this project's Lockers are here. They are the defaults, except as the
// comments say.

func uniqueOptions() *sqllock.UniqueOptions { return &sqllock.UniqueOptions{TTL: ttl} }

func advisoryOptions() *sqllock.AdvisoryOptions { return &sqllock.AdvisoryOptions{TTL: ttl} }

// forUpdateOptions let the mode use the pool: a name that is held costs it a
// connection, and the default is made for few.
func forUpdateOptions() *sqllock.ForUpdateOptions {
	return &sqllock.ForUpdateOptions{TTL: ttl, MaxConns: sqlConns - 2}
}
