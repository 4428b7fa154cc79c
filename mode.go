package sqllock

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// mode is a kind of locks. Everything above it is the same for all kinds.
type mode struct {
	backend
	capabilities

	// Classify tells what an error of a method means.
	Classify func(err error) driver.Fault
	// Guard runs f for a lease in a transaction of the application that f knows.
	Guard func(ctx context.Context, f driver.GuardFunc, req driver.GuardRequest) (driver.GuardStatus, error)

	events *events // which the backend uses, too; nil: the Locker makes its own
}

// backend runs the statements of a mode. Its methods mean what those of
// [driver.Store] mean, and are safe for concurrent use. A backend chooses the
// connection for each statement. It may have more than one database.
type backend interface {
	// Acquire grants nothing to a request that resumes if sessions keep the locks: it asks
	// the holder to release the name.
	Acquire(ctx context.Context, reqs []driver.AcquireRequest) ([]driver.AcquireResult, error)
	Renew(ctx context.Context, reqs []driver.RenewRequest, wait bool) (driver.RenewResults, error)
	Release(ctx context.Context, reqs []driver.ReleaseRequest) ([]driver.ReleaseResult, error)
	Read(ctx context.Context, req driver.ReadRequest) (driver.ReadResult, error)
	Revoke(ctx context.Context, reqs []driver.RevokeRequest) ([]driver.RevokeResult, error)
	Sweep(ctx context.Context, req driver.SweepRequest) (driver.SweepResult, error)
	SetValue(ctx context.Context, req driver.SetValueRequest) (bool, error)
	Begin(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)

	// CloseIdle gives back the connection that is kept for renewals, until the next grant.
	// It is called when no lease has been held for a while. It does not block. It reports
	// false if the connection is in use and CloseIdle must be called again.
	CloseIdle() bool
	Close() error
}

// readRows reads the rows of names.
func (m *mode) readRows(ctx context.Context, names []string) ([]driver.Row, error) {
	res, err := m.Read(ctx, driver.ReadRequest{Names: names})
	return res.Rows, err
}

// capabilities say what a mode can do. A nil field says that the mode cannot do it.
type capabilities struct {
	// sessions is set if sessions of the database keep the locks. Then the TTL is the same
	// for the whole Locker, and a name is free as soon as its session has ended. Otherwise
	// a lock is a row that expires.
	sessions sessionLocks
	// queues says that waiters queue in the database.
	queues bool
	// listener is set if the database tells waiters of this process that they were granted
	// a name.
	listener driver.Listener
	// database is the id of the tables, see [driver.Info].
	database string
	// keys is set if the database keeps which keys are complete.
	keys driver.OnceStore
	// permits is set if a name can have permits.
	permits driver.PermitStore
	// tx is set if transactions of the caller can take locks.
	tx driver.TxStore

	// quorum says that several databases keep a name, for one holder at a time. Requests that
	// compete can all lose.
	quorum    bool
	isolated  bool // each statement serves one request only
	waitsInDB bool // a grant may wait in the database until the name is free
}

// sessionLocks knows which locks the sessions of this process hold.
type sessionLocks interface {
	// Holds reports whether an acquisition is held, as far as this process knows.
	Holds(acq driver.ID) bool
	// Session tells the session that holds an acquisition from others. It is nil if none does, as
	// far as this process knows.
	Session(acq driver.ID) any
	// OnEnd has f called when a session has ended, with the acquisitions that it held,
	// until the mode is closed.
	OnEnd(f func(acqs map[driver.ID]struct{}))
}

// maxSessionInterval is the longest time between two renewals of a lock that a session
// keeps. If the session ends unnoticed, the holder learns of it by the next renewal, and so within
// a second.
const maxSessionInterval = 800 * time.Millisecond

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
	rows, err := m.readRows(ctx, []string{name})
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

// permitEndReason is endReason for a permit. Whoever revokes ends all permits that are held, and
// each has a token of its own.
func (m *mode) permitEndReason(ctx context.Context, name string, acq driver.ID, token int64) (Reason, error) {
	res, err := m.Read(ctx, driver.ReadRequest{Names: []string{name}, Slots: true})
	switch {
	case err != nil:
		return 0, err
	case slices.ContainsFunc(res.Rows[0].Slots, func(s driver.Slot) bool { return s.Acq == acq && s.Version == token }):
		return 0, nil
	case res.Rows[0].Revoked >= token:
		return LostRevoked, nil
	}
	return LostTaken, nil
}

// sessionEndReason asks the session itself, which may have ended unnoticed.
func (m *mode) sessionEndReason(ctx context.Context, name string, acq driver.ID, token int64, ttl time.Duration) (Reason, error) {
	res, err := m.Renew(ctx, []driver.RenewRequest{{Name: name, Acq: acq, Version: token, TTL: ttl, Holds: 1}}, false)
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
