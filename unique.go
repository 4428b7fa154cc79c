package sqllock

import (
	"context"
	"crypto/rand"
	"log/slog"
	"sync/atomic"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/clock"
)

// NewUnique returns a Locker of the unique mode: a lease is a row under a unique index,
// with an owner and an expiry. The Locker renews it while it is held. The database comes
// from lockpg.DB, lockpg.Pool, lockmysql.DB or locksqlite.DB. The Locker never closes its
// handle. Options may be nil.
//
// NewUnique checks the server and the tables, and tries again while the database is busy.
// The context bounds these checks only. NewUnique returns [ErrInvalidOption] before any
// SQL, [ErrSchema] if the tables are missing or do not fit (run migrations.Up, or "sqllock
// migrate up"), or [ErrUnsupported] if the server cannot keep the promises.
//
// The Locker needs one connection of the pool while leases are held. It reserves that
// connection for renewals if the pool may open two or more. On Postgres, if the pool may open
// four or more, it takes another one on which the database tells waiters of their turn, from the
// first waiter until ten seconds after the last.
func NewUnique(ctx context.Context, db driver.UniqueDatabase, opts *UniqueOptions) (*Locker, error) {
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
	cfg.spread = clock.SpreadOf(db)
	var locker atomic.Pointer[Locker] // the store is opened before there is one
	client := driver.Client{
		Instance: newID(), Label: cfg.label,
		Crashed: func(c driver.Crash) {
			if l := locker.Load(); l != nil {
				l.crashed(c.Name, c.Holder)
			}
		},
		Wants: func(acq driver.ID) bool {
			l := locker.Load()
			return l != nil && l.claims.wants(acq)
		},
	}
	store, err := opened(ctx, &cfg, db.Classify, func() (driver.Store, error) { return db.OpenUnique(ctx, client) })
	if err != nil {
		return nil, openError(err)
	}
	l := newLocker(client.Instance, cfg, newUniqueMode(store, db.Classify), clock.Of(db))
	locker.Store(l)
	l.warn(store.Info())
	return l, nil
}

// opened calls open again while the database is busy, as an SQLite file may be.
func opened[S any](ctx context.Context, cfg *config, classify func(error) driver.Fault, open func() (S, error)) (S, error) {
	for pause := newBackoff(cfg); ; {
		store, err := open()
		if err == nil || isVerdict(err) || classify(err) != driver.Again || sleep(ctx, pause.next()) != nil {
			return store, err
		}
	}
}

// minPushConns is how many connections a pool must be able to open before one of them is
// used to listen.
const minPushConns = 4

func newUniqueMode(store driver.Store, classify func(error) driver.Fault) mode {
	m := mode{
		backend: store, capabilities: capabilities{queues: true}, Classify: classify,
		Guard: func(ctx context.Context, f driver.GuardFunc, req driver.GuardRequest) (driver.GuardStatus, error) {
			return f(ctx, store, req)
		},
	}
	info := store.Info()
	m.database = info.Database
	if info.MaxConns == 0 || info.MaxConns >= minPushConns {
		m.listener, _ = store.(driver.Listener)
	}
	m.keys, _ = store.(driver.OnceStore)
	m.permits, _ = store.(driver.PermitStore)
	return m
}

// warn passes on the warnings of the driver, once, at construction.
func (l *Locker) warn(info driver.Info) {
	for _, w := range info.Warnings {
		l.events.note(slog.LevelWarn, "sqllock: "+w, "server", info.Server)
	}
	if info.MaxConns == 1 {
		l.events.note(slog.LevelWarn, "sqllock: the pool has one connection: while the application uses it nothing can be renewed, "+
			"and leases are lost with the reason that the pool is exhausted; allow two or more", "server", info.Server)
	}
}

// newID returns a random ID.
func newID() (id driver.ID) {
	_, _ = rand.Read(id[:]) // never fails: crypto/rand ends the program instead
	return id
}
