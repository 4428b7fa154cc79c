package sqllock

import (
	"context"
	"crypto/rand"
	"database/sql"
	"log/slog"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/clock"
	"github.com/sqllock/sqllock/internal/reserved"
)

// NewUnique returns a Locker of the unique mode: a lease is a row under a unique
// index, with an owner and an expiry, renewed while it is held. The database
// comes from lockpg.DB, lockpg.Pool, lockmysql.DB or locksqlite.DB; its handle
// stays the caller's and is never closed. Options may be nil.
//
// NewUnique checks the server and the tables and returns [ErrInvalidOption],
// before any SQL, [ErrSchema] if the tables are missing or do not fit (run
// migrations.Up, or "sqllock migrate up"), or [ErrUnsupported] if the server
// cannot keep the promises. The context bounds the checks only; while the
// database is busy they are tried again.
//
// A Locker needs one connection of the pool while leases are held, and keeps it
// reserved for renewals if the pool may open two or more.
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
	id := newID()
	store, err := opened(ctx, &cfg, db.Classify, func() (driver.LeaseStore, error) {
		return db.OpenUnique(ctx, driver.Client{Instance: id, Label: cfg.label})
	})
	if err != nil {
		return nil, openError(err)
	}
	l := newLocker(id, cfg, newUniqueMode(store), clock.System{})
	l.warn(store.Info())
	return l, nil
}

// opened tries again while the database is busy: an SQLite file may be.
func opened[S any](ctx context.Context, cfg *config, classify func(error) driver.Fault, open func() (S, error)) (S, error) {
	for pause := newBackoff(cfg); ; {
		store, err := open()
		if err == nil || isVerdict(err) || classify(err) != driver.Again || sleep(ctx, pause.next()) != nil {
			return store, err
		}
	}
}

// unique is the mode of leases in rows.
type unique struct {
	store driver.LeaseStore
	conns *reserved.Store
}

var (
	_ backend    = (*unique)(nil)
	_ queueStore = (*unique)(nil)
)

func newUniqueMode(store driver.LeaseStore) mode {
	u := &unique{store: store, conns: reserved.New(store)}
	return mode{u, capabilities{queue: u}}
}

func (u *unique) Grant(ctx context.Context, reqs []driver.GrantRequest) (res []driver.GrantResult, err error) {
	// The connection is reserved before the first lease is granted, not when it must be renewed.
	err = u.conns.Any(ctx, func(s driver.LeaseStore) error {
		res, err = s.Grant(ctx, reqs)
		return err
	})
	return res, err
}

func (u *unique) Renew(ctx context.Context, reqs []driver.RenewRequest, wait bool, patience time.Duration) (res driver.RenewResults, err error) {
	f := func(s driver.LeaseStore) error {
		res, err = s.Renew(ctx, reqs, wait)
		return err
	}
	if wait { // it may take a second: not on the reserved connection if there is another one
		err = u.conns.Pool(ctx, f)
	} else {
		err = u.conns.Urgent(ctx, patience, f)
	}
	return res, err
}

func (u *unique) Release(ctx context.Context, reqs []driver.ReleaseRequest) (res []driver.ReleaseResult, err error) {
	err = u.conns.Any(ctx, func(s driver.LeaseStore) error {
		res, err = s.Release(ctx, reqs)
		return err
	})
	return res, err
}

func (u *unique) Abandon(ctx context.Context, reqs []driver.AbandonRequest) error {
	// It is repeated anyway: let it wait for a connection rather than reserve one.
	return u.store.Abandon(ctx, reqs)
}

func (u *unique) Look(ctx context.Context, names []string) (rows []driver.Row, err error) {
	err = u.conns.Pool(ctx, func(s driver.LeaseStore) error {
		rows, err = s.Look(ctx, names)
		return err
	})
	return rows, err
}

func (u *unique) List(ctx context.Context, req driver.ListRequest) (page driver.Page, err error) {
	err = u.conns.Pool(ctx, func(s driver.LeaseStore) error {
		page, err = s.List(ctx, req)
		return err
	})
	return page, err
}

// Statements of an operator or of the reaper can wait for a connection of the pool. On the
// reserved connection they would delay renewals while they wait for a row.

func (u *unique) Revoke(ctx context.Context, names []string) ([]driver.RevokeResult, error) {
	return u.store.Revoke(ctx, names)
}

func (u *unique) Sweep(ctx context.Context, req driver.SweepRequest) (driver.SweepResult, error) {
	return u.store.Sweep(ctx, req)
}

func (u *unique) SweepDue(ctx context.Context, every time.Duration) (bool, error) {
	return u.store.Turn(ctx, every)
}

func (u *unique) Resume(ctx context.Context, req driver.ResumeRequest) (driver.GrantResult, error) {
	var res driver.GrantResult
	err := u.conns.Any(ctx, func(s driver.LeaseStore) (err error) {
		res, err = s.Resume(ctx, req)
		return err
	})
	return res, err
}

func (u *unique) Proclaim(ctx context.Context, req driver.ProclaimRequest) (bool, error) {
	done := false
	err := u.conns.Pool(ctx, func(s driver.LeaseStore) (err error) {
		done, err = s.Proclaim(ctx, req)
		return err
	})
	return done, err
}

// guard runs in a transaction of the application, which has a connection.
func (u *unique) Guard(ctx context.Context, f driver.GuardFunc, req driver.GuardRequest) (driver.GuardStatus, error) {
	return f(ctx, u.store, req)
}

func (u *unique) Begin(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error) {
	return u.store.Begin(ctx, opts)
}

func (u *unique) Queue(ctx context.Context, reqs []driver.TicketRequest) (res []driver.TicketResult, err error) {
	err = u.conns.Any(ctx, func(s driver.LeaseStore) error {
		res, err = s.Line(ctx, reqs)
		return err
	})
	return res, err
}

func (u *unique) Waits(ctx context.Context) (waits []driver.Wait, err error) {
	err = u.conns.Pool(ctx, func(s driver.LeaseStore) error {
		waits, err = s.Waits(ctx)
		return err
	})
	return waits, err
}

func (u *unique) Listen(ctx context.Context, heard func(driver.ID)) error {
	listener, ok := u.store.(driver.Listener)
	if conns := u.store.Info().MaxConns; !ok || conns != 0 && conns < minPushConns {
		return errNoPush
	}
	return listener.Listen(ctx, heard)
}

func (u *unique) Classify(err error) driver.Fault { return u.store.Classify(err) }

func (u *unique) CloseIdle() bool { return u.conns.CloseIdle() }

func (u *unique) Close() error {
	u.conns.Close()
	return u.store.Close()
}

// warn passes on what the driver found out, once, at construction.
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
