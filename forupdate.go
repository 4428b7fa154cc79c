package sqllock

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/clock"
	"github.com/sqllock/sqllock/internal/session"
)

// Defaults of [ForUpdateOptions].
const (
	DefaultMaxConns = 8
	DefaultMaxHold  = time.Hour
)

// ForUpdateOptions are the options of [NewForUpdate]. The zero value of each field
// means its default. Fields that [UniqueOptions] has too mean what they mean there.
type ForUpdateOptions struct {
	// TTL is the time after which the server ends the session of a holder that it has not
	// heard from; from 100 ms, on MySQL from 2 s, to 24 h, default 30 s. It is the same for
	// the whole Locker. The Locker checks its sessions every third of it, and at least
	// every second.
	TTL time.Duration

	Label              string
	RetryMin, RetryMax time.Duration
	StatementTimeout   time.Duration
	Logger             *slog.Logger
	Hooks              *Hooks
	Reaper             *ReaperOptions // without KeyRetention, because there are no keys

	// MaxConns bounds the connections of the pool that the Locker uses: one that it always
	// keeps, and one for each name that is held or asked for. At least 2, default 8. A higher
	// value than one less than the pool may open is lowered to that. So the Locker holds at
	// most MaxConns - 1 names at a time. For one more, Lock waits until another name is
	// unlocked, and TryLock returns [ErrPoolExhausted] after the time of one statement, even if
	// the name is free. At most half of the connections for names wait in the database at a
	// time. Other waiters poll.
	MaxConns int

	// MaxHold bounds how long a name is held; default 1 h. The option [MaxHold] overrides it
	// for one call. While a transaction is open, the server cannot clean up after any other.
	MaxHold time.Duration
}

// NewForUpdate returns a Locker of the for-update mode: a lock is a row that an open
// transaction of the Locker has locked, on a connection of its own. Waiters wait in the
// database. The database comes from lockpg.DB, lockpg.Pool or lockmysql.DB. The Locker
// never closes its handle. Options may be nil. NewForUpdate returns the errors of
// [NewUnique], and [ErrInvalidOption] if the pool may open fewer than three connections.
//
// When the server ends a session, for whatever reason, it frees the lock at once, before
// the holder can learn of it. Against this, use the token or [LockDelay].
func NewForUpdate(ctx context.Context, db driver.ForUpdateDatabase, opts *ForUpdateOptions) (*Locker, error) {
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
	return newSessionLocker(ctx, cfg, db.Classify, db.OpenForUpdate, opts.sessions, false)
}

func (o *ForUpdateOptions) config() (config, error) {
	if o == nil {
		o = &ForUpdateOptions{}
	}
	u := UniqueOptions{TTL: o.TTL, Label: o.Label, RetryMin: o.RetryMin, RetryMax: o.RetryMax,
		StatementTimeout: o.StatementTimeout, Logger: o.Logger, Hooks: o.Hooks, Reaper: o.Reaper}
	cfg, err := u.config()
	if err != nil {
		return cfg, err
	}
	cfg.maxHold = min(orDefault(o.MaxHold, DefaultMaxHold), forever)
	switch {
	case cfg.maxHold < MinTTL:
		return cfg, fmt.Errorf("%w: MaxHold %v: must be at least %v", ErrInvalidOption, o.MaxHold, MinTTL)
	case o.MaxConns != 0 && o.MaxConns < 2:
		return cfg, fmt.Errorf("%w: MaxConns %d: must be at least 2", ErrInvalidOption, o.MaxConns)
	}
	return cfg, nil
}

// sessions returns how many sessions may be open at a time, where the pool may open
// poolConns connections. The Locker keeps one more connection.
func (o *ForUpdateOptions) sessions(poolConns int) int {
	conns := DefaultMaxConns
	if o != nil && o.MaxConns != 0 {
		conns = o.MaxConns
	}
	if poolConns > 0 {
		conns = min(conns, poolConns-1)
	}
	return max(conns-1, 1)
}

// newSessionLocker opens a mode that keeps locks in sessions. maxConns returns how many
// sessions may be open at a time, each for one lock; 0: one session holds all locks.
func newSessionLocker(ctx context.Context, cfg config, classify func(error) driver.Fault,
	open func(context.Context, driver.Client, driver.SessionOptions) (driver.SessionStore, error),
	maxConns func(poolConns int) int, silentHolders bool) (*Locker, error) {
	id := newID()
	client := driver.Client{Instance: id, Label: cfg.label}
	store, err := opened(ctx, &cfg, classify, func() (driver.SessionStore, error) {
		return open(ctx, client, driver.SessionOptions{TTL: cfg.ttl, Timeout: cfg.timeout(cfg.ttl), AllowSilentHolders: silentHolders})
	})
	if err != nil {
		return nil, openError(err)
	}
	info := store.Info()
	l := newLocker(id, cfg, newSessionMode(store, &cfg, maxConns(info.MaxConns)), clock.System{})
	l.warn(info)
	return l, nil
}

func newSessionMode(store driver.SessionStore, cfg *config, maxConns int) mode {
	b := session.New(store, session.Options{TTL: cfg.ttl, Label: cfg.label, MaxConns: maxConns, ErrClosed: ErrClosed})
	return mode{
		backend: b, capabilities: capabilities{sessions: b, tx: store, isolated: maxConns > 0, waitsInDB: maxConns > 0},
		Classify: b.Classify, Guard: b.Guard,
	}
}
