package sqllock

import (
	"context"
	"database/sql"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// mode is what tells the kinds of lock apart; everything above it is shared.
// Its methods mean what those of [driver.LeaseStore] mean and are safe for
// concurrent use. A mode decides on which connection a statement runs.
//
// Nothing says that a mode has one database below it.
type mode interface {
	Grant(ctx context.Context, reqs []driver.GrantRequest) ([]driver.GrantResult, error)
	// renew does not wait for a connection for longer than patience if there is
	// another. With wait it is never urgent.
	Renew(ctx context.Context, reqs []driver.RenewRequest, wait bool, patience time.Duration) (driver.RenewResults, error)
	Release(ctx context.Context, reqs []driver.ReleaseRequest) ([]driver.ReleaseResult, error)
	Abandon(ctx context.Context, reqs []driver.AbandonRequest) error
	// why tells why a term is over. The reason is 0 if it is not.
	why(ctx context.Context, name string, acq driver.ID, token int64) (Reason, error)

	// lives is why for what this process knows by itself.
	lives(acq driver.ID) bool

	Look(ctx context.Context, names []string) ([]driver.Row, error)
	List(ctx context.Context, req driver.ListRequest) (driver.Page, error)
	Revoke(ctx context.Context, names []string) ([]driver.RevokeResult, error)
	Sweep(ctx context.Context, req driver.SweepRequest) (driver.SweepResult, error)
	SweepDue(ctx context.Context, every time.Duration) (bool, error)

	// resume, in a mode that keeps locks in sessions, asks the holder to let go and
	// grants nothing.
	Resume(ctx context.Context, req driver.ResumeRequest) (driver.GrantResult, error)
	Proclaim(ctx context.Context, req driver.ProclaimRequest) (bool, error)

	Guard(ctx context.Context, f driver.GuardFunc, req driver.GuardRequest) (driver.GuardStatus, error)
	Begin(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
	// single says that a statement serves one request only.
	single() bool
	// lining is nil if waiters do not stand in line in the database.
	lining() lining

	// txs takes locks in transactions of the caller. It is nil if the mode cannot.
	txs() driver.TxStore
	Classify(err error) driver.Fault

	// watch has lost called, until the mode is closed, with the acquisitions that
	// the mode finds ended by itself.
	watch(lost func(acqs map[driver.ID]struct{}))

	// rest is called when no lease has been held for a while: what is kept for
	// renewals can go back until the next grant. It does not block, and reports
	// false if it is to be called again because something is in use.
	CloseIdle() bool
	Close() error
}
