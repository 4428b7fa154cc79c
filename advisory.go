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
	// TTL is the time after which the server ends the session of a Locker that it has not
	// heard from; from 100 ms, on MySQL from 2 s, to 24 h, default 30 s. It is the same for
	// the whole Locker. The Locker checks its session every third of it, and at least every
	// second. PostgreSQL 12 and 13 cannot end a silent session: see AllowSilentHolders.
	TTL time.Duration

	// AllowSilentHolders accepts PostgreSQL 12 and 13. By default, NewAdvisory refuses them
	// with [ErrUnsupported], because servers before version 14 have no idle_session_timeout.
	// On these servers, a paused holder keeps its names until the pause ends, whatever the
	// TTL is. If the holder's host is gone, its names stay locked until TCP keepalives
	// notice. The holder itself still loses its leases at their deadline. The default is
	// false. It has no effect on other servers.
	AllowSilentHolders bool

	Label              string
	RetryMin, RetryMax time.Duration
	StatementTimeout   time.Duration
	Logger             *slog.Logger
	Hooks              *Hooks
	Reaper             *ReaperOptions // without KeyRetention, because there are no keys

	MaxBatch, MaxInFlight int
}

// NewAdvisory returns a Locker of the advisory mode: locks are those that a session of the
// database keeps in memory, on Postgres advisory locks, on MySQL the locks of GET_LOCK. The
// Locker uses two connections of the pool, however many locks it holds: one that it always
// keeps, and one while locks are held or requested. If the second one breaks, all locks are
// lost. The database comes from lockpg.DB, lockpg.Pool or lockmysql.DB. The Locker never
// closes its handle. Options may be nil. NewAdvisory returns the errors of [NewUnique], and
// [ErrInvalidOption] if the pool may open fewer than three connections.
//
// The server keeps a hash of the name: see lockpg.AdvisoryKey and lockmysql.AdvisoryKey. Two
// names with the same hash exclude each other, and that is the only effect.
//
// When the server ends a session, for whatever reason, it frees its locks at once, before
// their holders can learn of it. Against this, use the token or [LockDelay].
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
