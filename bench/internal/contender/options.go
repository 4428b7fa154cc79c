package contender

import (
	"sync/atomic"

	"github.com/sqllock/sqllock"
)

// sqlConns is how many connections each SQL contender may open: enough that none
// waits for one while the disk is flushed, on a machine with few cores.
const sqlConns = 64

// All options of this project's Lockers are here. They are the defaults, except as the
// comments say.

// uniqueOptions have all hooks if a site says so.
func uniqueOptions(s Site) *sqllock.UniqueOptions {
	o := &sqllock.UniqueOptions{TTL: ttl}
	if s.Hooks {
		o.Hooks = countingHooks()
	}
	return o
}

// countingHooks are all hooks that there are. Each does the least that one of an application
// does: it counts.
func countingHooks() *sqllock.Hooks {
	n := new(atomic.Int64)
	return &sqllock.Hooks{
		Waiting:    counting[sqllock.WaitingEvent](n),
		Skipped:    counting[sqllock.SkippedEvent](n),
		Reentered:  counting[sqllock.ReenteredEvent](n),
		Failed:     counting[sqllock.FailedEvent](n),
		Acquired:   counting[sqllock.AcquiredEvent](n),
		Renewed:    counting[sqllock.RenewedEvent](n),
		Jeopardy:   counting[sqllock.JeopardyEvent](n),
		Lost:       counting[sqllock.LostEvent](n),
		Unlocked:   counting[sqllock.UnlockedEvent](n),
		HandedOver: counting[sqllock.HandedOverEvent](n),
		ClockJump:  counting[sqllock.ClockJumpEvent](n),
		Crashed:    counting[sqllock.CrashedEvent](n),
		Statement:  counting[sqllock.StatementEvent](n),
	}
}

func counting[E any](n *atomic.Int64) func(E) { return func(E) { n.Add(1) } }

func advisoryOptions() *sqllock.AdvisoryOptions { return &sqllock.AdvisoryOptions{TTL: ttl} }

// forUpdateOptions let the mode use the pool: a name that is held costs it a
// connection, and the default is made for few.
func forUpdateOptions() *sqllock.ForUpdateOptions {
	return &sqllock.ForUpdateOptions{TTL: ttl, MaxConns: sqlConns - 2}
}
