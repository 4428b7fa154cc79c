package sqllock

import (
	"context"
	"log/slog"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// AdvisoryOptions are the options of [NewAdvisory]. The zero value of each field
// means its default. Fields that [UniqueOptions] has too mean what they mean there.
type AdvisoryOptions struct {
	// TTL is after which silence of the Locker the server ends the session that keeps
	// its locks; from 100 ms, on MySQL from 2 s, to 24 h, default 30 s. It is one for
	// the whole Locker. The session is asked every third of it, and every second at
	// least, whether it lives. PostgreSQL 12 and 13 cannot end a silent session:
	// see AllowSilentHolders.
	TTL time.Duration

	// AllowSilentHolders accepts PostgreSQL 12 and 13, which NewAdvisory refuses
	// otherwise with [ErrUnsupported]: before version 14 the server has no
	// idle_session_timeout. A holder that is paused then keeps its names for as long as
	// the pause takes, whatever the TTL is; one whose host has vanished keeps them until
	// TCP keepalives notice. The holder itself still loses its leases at their deadline.
	// The default is false. Other servers are not affected.
	AllowSilentHolders bool

	Label              string
	RetryMin, RetryMax time.Duration
	StatementTimeout   time.Duration
	Logger             *slog.Logger
	Hooks              *Hooks
	Reaper             *ReaperOptions

	MaxBatch, MaxInFlight int
}

// NewAdvisory returns a Locker of the mode advisory: locks are those that a session
// of the database keeps in memory, on Postgres advisory locks, on MySQL those of
// GET_LOCK. The Locker uses two connections of the pool, however many locks it
// holds: one that it keeps, and one while locks are held or asked for. If that one
// breaks, all of its locks are lost. The database comes from lockpg.DB, lockpg.Pool
// or lockmysql.DB; its handle stays the caller's and is never closed. Options may be
// nil. Errors are those of [NewUnique], and [ErrInvalidOption] if the pool may open
// less than three connections.
//
// What the server keeps is a hash of the name: see lockpg.AdvisoryKey and
// lockmysql.AdvisoryKey. Two names of one hash wait for each other and no more.
//
// A session that the server ends, for whatever reason, lets go of its locks at once,
// before their holders can hear of it: there the token protects, and [LockDelay].
func NewAdvisory(ctx context.Context, db driver.AdvisoryDatabase, opts *AdvisoryOptions) (*Locker, error) {
	cfg, err := opts.config()
	if err != nil {
		return nil, err
	}
	if err := driver.CheckContext(ctx); err != nil {
		return nil, err
	}
	if db == nil {
		return nil, driver.NilError("database")
	}
	return newSessionLocker(ctx, cfg, db.Classify, db.OpenAdvisory, func(int) int { return 0 }, opts != nil && opts.AllowSilentHolders)
}

func (o *AdvisoryOptions) config() (config, error) {
	if o == nil {
		o = &AdvisoryOptions{}
	}
	u := UniqueOptions{TTL: o.TTL, Label: o.Label, RetryMin: o.RetryMin, RetryMax: o.RetryMax, StatementTimeout: o.StatementTimeout,
		Logger: o.Logger, Hooks: o.Hooks, Reaper: o.Reaper, MaxBatch: o.MaxBatch, MaxInFlight: o.MaxInFlight}
	return u.config()
}
