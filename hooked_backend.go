package sqllock

import (
	"context"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/clock"
)

// hookedBackend calls the hook Statement for what a backend runs. A Locker has one only if it has
// the hook.
type hookedBackend struct {
	backend
	events *events
	clock  clock.Clock
}

var _ backend = (*hookedBackend)(nil)

// report runs a statement and reports it.
func report[R any](b *hookedBackend, operation string, requests int, run func() (R, error)) (R, error) {
	began := b.clock.Now()
	res, err := run()
	b.events.statement(StatementEvent{Operation: operation, Requests: requests, Took: b.clock.Now() - began, Err: err})
	return res, err
}

func (b *hookedBackend) Acquire(ctx context.Context, reqs []driver.AcquireRequest) ([]driver.AcquireResult, error) {
	return report(b, "acquire", len(reqs), func() ([]driver.AcquireResult, error) { return b.backend.Acquire(ctx, reqs) })
}

func (b *hookedBackend) Renew(ctx context.Context, reqs []driver.RenewRequest, wait bool) (driver.RenewResults, error) {
	return report(b, "renew", len(reqs), func() (driver.RenewResults, error) { return b.backend.Renew(ctx, reqs, wait) })
}

func (b *hookedBackend) Release(ctx context.Context, reqs []driver.ReleaseRequest) ([]driver.ReleaseResult, error) {
	return report(b, "release", len(reqs), func() ([]driver.ReleaseResult, error) { return b.backend.Release(ctx, reqs) })
}

func (b *hookedBackend) Read(ctx context.Context, req driver.ReadRequest) (driver.ReadResult, error) {
	return report(b, "read", max(len(req.Names), 1), func() (driver.ReadResult, error) { return b.backend.Read(ctx, req) })
}

func (b *hookedBackend) Revoke(ctx context.Context, reqs []driver.RevokeRequest) ([]driver.RevokeResult, error) {
	return report(b, "revoke", len(reqs), func() ([]driver.RevokeResult, error) { return b.backend.Revoke(ctx, reqs) })
}

func (b *hookedBackend) Sweep(ctx context.Context, req driver.SweepRequest) (driver.SweepResult, error) {
	return report(b, "sweep", 1, func() (driver.SweepResult, error) { return b.backend.Sweep(ctx, req) })
}

func (b *hookedBackend) SetValue(ctx context.Context, req driver.SetValueRequest) (bool, error) {
	return report(b, "set value", 1, func() (bool, error) { return b.backend.SetValue(ctx, req) })
}
