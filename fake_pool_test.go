package sqllock_test

import (
	"context"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/reserved"
)

// pooled is a fake database whose calls choose a connection as those of the real ones do.
type pooled struct {
	*fake
	pool  caller
	conns *reserved.Conns[caller]
}

// caller makes calls on one connection, or on those of a pool.
type caller interface {
	Acquire(ctx context.Context, reqs []driver.AcquireRequest) ([]driver.AcquireResult, error)
	Renew(ctx context.Context, reqs []driver.RenewRequest, wait bool) (driver.RenewResults, error)
	Release(ctx context.Context, reqs []driver.ReleaseRequest) ([]driver.ReleaseResult, error)
	Read(ctx context.Context, req driver.ReadRequest) (driver.ReadResult, error)
}

// newPooled returns a pooled fake of which conn is the reserved connection.
func newPooled(f *fake, pool, conn caller, exhausted func() bool) *pooled {
	return &pooled{fake: f, pool: pool, conns: reserved.New(reserved.Options[caller]{
		Pool: pool, MaxConns: 5, Exhausted: exhausted, Classify: f.Classify,
		Reserve: func(context.Context, bool) (caller, func() error, error) {
			return conn, func() error { return nil }, nil
		},
	})}
}

func (p *pooled) Info() driver.Info { return driver.Info{Server: "pooled", MaxConns: 5} }

func (p *pooled) Acquire(ctx context.Context, reqs []driver.AcquireRequest) (res []driver.AcquireResult, err error) {
	err = p.conns.Any(ctx, func(c caller) error {
		res, err = c.Acquire(ctx, reqs)
		return err
	})
	return res, err
}

func (p *pooled) Renew(ctx context.Context, reqs []driver.RenewRequest, wait bool) (res driver.RenewResults, err error) {
	choose := p.conns.Urgent
	if wait {
		choose = p.conns.Pool
	}
	err = choose(ctx, func(c caller) error {
		res, err = c.Renew(ctx, reqs, wait)
		return err
	})
	return res, err
}

func (p *pooled) Release(ctx context.Context, reqs []driver.ReleaseRequest) (res []driver.ReleaseResult, err error) {
	if reqs[0].Version == 0 {
		return p.pool.Release(ctx, reqs)
	}
	err = p.conns.Any(ctx, func(c caller) error {
		res, err = c.Release(ctx, reqs)
		return err
	})
	return res, err
}

func (p *pooled) Read(ctx context.Context, req driver.ReadRequest) (res driver.ReadResult, err error) {
	err = p.conns.Pool(ctx, func(c caller) error {
		res, err = c.Read(ctx, req)
		return err
	})
	return res, err
}

func (p *pooled) CloseIdle() bool { return p.conns.CloseIdle() }

func (p *pooled) Close() error {
	p.conns.Close()
	return nil
}

func always() bool { return true }
func never() bool  { return false }
