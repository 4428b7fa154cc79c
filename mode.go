package sqllock

import (
	"context"
	"database/sql"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// mode is a kind of locks. Everything above it is the same for all kinds.
type mode struct {
	backend
	capabilities
}

// backend runs the statements of a mode. Its methods mean what those of
// [driver.Store] mean, and are safe for concurrent use. A backend chooses the
// connection for each statement. It may have more than one database.
type backend interface {
	Grant(ctx context.Context, reqs []driver.AcquireRequest) ([]driver.AcquireResult, error)
	// Renew waits for a connection no longer than maxWait, if there is another one. With
	// wait, Renew is not urgent: it may wait for rows that somebody has locked.
	Renew(ctx context.Context, reqs []driver.RenewRequest, wait bool, maxWait time.Duration) (driver.RenewResults, error)
	Release(ctx context.Context, reqs []driver.ReleaseRequest) ([]driver.ReleaseResult, error)
	Abandon(ctx context.Context, reqs []driver.ReleaseRequest) error

	Look(ctx context.Context, names []string) ([]driver.Row, error)
	List(ctx context.Context, req driver.ListRequest) (driver.Page, error)
	Revoke(ctx context.Context, reqs []driver.RevokeRequest) ([]driver.RevokeResult, error)
	Sweep(ctx context.Context, req driver.SweepRequest) (driver.SweepResult, error)
	SweepDue(ctx context.Context, every time.Duration) (bool, error)

	// Resume grants nothing if sessions keep the locks: it asks the holder to let go.
	Resume(ctx context.Context, req driver.ResumeRequest) (driver.AcquireResult, error)
	Proclaim(ctx context.Context, req driver.SetValueRequest) (bool, error)

	Guard(ctx context.Context, f driver.GuardFunc, req driver.GuardRequest) (driver.GuardStatus, error)
	Begin(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
	Classify(err error) driver.Fault

	// CloseIdle gives back the connection that is kept for renewals, until the next grant.
	// It is called when no lease has been held for a while. It does not block. It reports
	// false if the connection is in use and CloseIdle must be called again.
	CloseIdle() bool
	Close() error
}

// capabilities say what a mode can do. A nil field says that the mode cannot do it.
type capabilities struct {
	// sessions is set if sessions of the database keep the locks. Then the TTL is the same
	// for the whole Locker, and a name is free as soon as its session has ended. Otherwise
	// a lock is a row that expires.
	sessions sessionLocks
	// queue is set if waiters queue in the database.
	queue queueStore
	// keys is set if the database keeps which keys are complete.
	keys keyStore
	// tx is set if transactions of the caller can take locks.
	tx driver.TxStore

	isolated  bool // each statement serves one request only
	waitsInDB bool // a grant may wait in the database until the name is free
}

// sessionLocks knows which locks the sessions of this process hold.
type sessionLocks interface {
	// Holds reports whether an acquisition is held, as far as this process knows.
	Holds(acq driver.ID) bool
	// OnEnd has f called when a session has ended, with the acquisitions that it held,
	// until the mode is closed.
	OnEnd(f func(acqs map[driver.ID]struct{}))
}

// queueStore keeps the queues of waiters in the database.
type queueStore interface {
	Queue(ctx context.Context, reqs []driver.AcquireRequest) ([]driver.AcquireResult, error)
	Waits(ctx context.Context) ([]driver.Waiter, error)
	Look(ctx context.Context, names []string) ([]driver.Row, error)
	Listen(ctx context.Context, heard func(driver.ID)) error
}

// keyStore keeps which keys are complete.
type keyStore interface {
	// Keys calls f with the store on a connection.
	Keys(ctx context.Context, f func(driver.OnceStore) error) error
	// KeysTx returns the store for transactions of the application.
	KeysTx() driver.OnceStore
}

// maxSessionInterval is the longest time between two renewals of a lock that a session
// keeps. If the session ends unnoticed, the holder learns of it by the next renewal.
const maxSessionInterval = time.Second

// renewInterval returns the time between two renewals, where third is a third of the time
// for which the lease is trusted.
func (c *capabilities) renewInterval(third time.Duration) time.Duration {
	if c.sessions != nil {
		return min(third, maxSessionInterval)
	}
	return third
}

// endReason asks the database why a term has ended. The reason is 0 if it has not. ttl is
// the one of the Locker.
func (m *mode) endReason(ctx context.Context, name string, acq driver.ID, token int64, ttl time.Duration) (Reason, error) {
	if m.sessions != nil {
		return m.sessionEndReason(ctx, name, acq, token, ttl)
	}
	rows, err := m.Look(ctx, []string{name})
	switch {
	case err != nil:
		return 0, err
	case rows[0].Holder.Acq == acq && rows[0].Holder.Version == token:
		return 0, nil
	case rows[0].Revoked == token:
		return LostRevoked, nil
	}
	return LostTaken, nil
}

// sessionEndReason asks the session itself, which may have ended unnoticed.
func (m *mode) sessionEndReason(ctx context.Context, name string, acq driver.ID, token int64, ttl time.Duration) (Reason, error) {
	res, err := m.Renew(ctx, []driver.RenewRequest{{Name: name, Acq: acq, Version: token, TTL: ttl, Holds: 1}}, false, 0)
	switch {
	case err != nil && m.sessions.Holds(acq):
		return 0, err
	case err != nil:
		return LostSession, nil
	case res.Status[0] == driver.Renewed:
		return 0, nil
	case res.Status[0] == driver.Revoked:
		return LostRevoked, nil
	}
	return LostSession, nil
}
