package sqllock_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
)

// sentTotal sums up statements of one kind.
type sentTotal struct {
	statements, requests, failed int
	took                         time.Duration
}

// countingStore counts what is sent to a fake.
type countingStore struct {
	*fake
	mu    sync.Mutex
	total map[string]sentTotal
}

// count returns what ends a statement.
func (c *countingStore) count(operation string, requests int, err *error) func() {
	began := time.Now()
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.total[operation] = c.total[operation].plus(requests, time.Since(began), *err)
	}
}

func (s sentTotal) plus(requests int, took time.Duration, err error) sentTotal {
	failed := 0
	if err != nil {
		failed = 1
	}
	return sentTotal{s.statements + 1, s.requests + requests, s.failed + failed, s.took + took}
}

func (c *countingStore) Acquire(ctx context.Context, reqs []driver.AcquireRequest) (_ []driver.AcquireResult, err error) {
	defer c.count("acquire", len(reqs), &err)()
	return c.fake.Acquire(ctx, reqs)
}

func (c *countingStore) Renew(ctx context.Context, reqs []driver.RenewRequest, wait bool) (_ driver.RenewResults, err error) {
	defer c.count("renew", len(reqs), &err)()
	return c.fake.Renew(ctx, reqs, wait)
}

func (c *countingStore) Release(ctx context.Context, reqs []driver.ReleaseRequest) (_ []driver.ReleaseResult, err error) {
	defer c.count("release", len(reqs), &err)()
	return c.fake.Release(ctx, reqs)
}

func (c *countingStore) Read(ctx context.Context, req driver.ReadRequest) (_ driver.ReadResult, err error) {
	defer c.count("read", max(len(req.Names), 1), &err)()
	return c.fake.Read(ctx, req)
}

func (c *countingStore) Revoke(ctx context.Context, reqs []driver.RevokeRequest) (_ []driver.RevokeResult, err error) {
	defer c.count("revoke", len(reqs), &err)()
	return c.fake.Revoke(ctx, reqs)
}

func (c *countingStore) Sweep(ctx context.Context, req driver.SweepRequest) (_ driver.SweepResult, err error) {
	defer c.count("sweep", 1, &err)()
	return c.fake.Sweep(ctx, req)
}

func (c *countingStore) SetValue(ctx context.Context, req driver.SetValueRequest) (_ bool, err error) {
	defer c.count("set value", 1, &err)()
	return c.fake.SetValue(ctx, req)
}

func TestTheHookStatementTellsOfEachStatementAndItsSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		store := &countingStore{fake: db, total: make(map[string]sentTotal)}
		got := make(map[string]sentTotal)
		b := newBenchOn(t, store, db, &sqllock.UniqueOptions{TTL: ttl, Hooks: &sqllock.Hooks{
			Statement: func(e sqllock.StatementEvent) { got[e.Operation] = got[e.Operation].plus(e.Requests, e.Took, e.Err) },
		}})
		b.sendOneOfEachOperation()
		b.close()
		if !maps.Equal(got, store.total) {
			t.Errorf("the hook told %+v,\nwant %+v", got, store.total)
		}
		if len(got) != 7 || got["acquire"].requests < 50 || got["acquire"].statements > 10 || got["acquire"].failed != 1 || got["acquire"].took < 10*time.Millisecond {
			t.Errorf("the hook told %+v", got)
		}
	})
}

func TestWithoutTheHookStatementNothingStandsBetween(t *testing.T) {
	for _, hooks := range []*sqllock.Hooks{nil, {}, {Acquired: func(sqllock.AcquiredEvent) {}}, {Statement: func(sqllock.StatementEvent) {}}} {
		b := newBench(t, newFake(), &sqllock.UniqueOptions{TTL: ttl, Hooks: hooks})
		if want := hooks != nil && hooks.Statement != nil; b.Hooked() != want {
			t.Errorf("with the hooks %+v a backend calls the hook: %t, want %t", hooks, b.Hooked(), want)
		}
		b.close()
	}
}

// sendOneOfEachOperation has 50 callers lock names together, renews their leases, and sends each
// other kind of statement.
func (b *bench) sendOneOfEachOperation() {
	b.t.Helper()
	b.db.set(func(f *fake) { f.before = after("grant", 10*time.Millisecond) })
	_, leases := b.manyCallers(50)
	b.db.set(func(f *fake) { f.before = failing("grant", errDenied) })
	if _, err := b.TryLock(b.t.Context(), "denied"); !errors.Is(err, errDenied) {
		b.t.Errorf("TryLock = %v", err)
	}
	b.db.set(func(f *fake) { f.before = nil })
	time.Sleep(ttl)
	for _, lease := range leases {
		b.unlock(lease)
	}
	e := b.candidate("a", me)
	term := b.campaign(e, "value")
	if err := e.Proclaim(b.t.Context(), []byte("v")); err != nil {
		b.t.Error(err)
	}
	if _, err := b.ForceUnlock(b.t.Context(), "a"); err != nil {
		b.t.Error(err)
	}
	_ = term.Unlock(b.t.Context())
	if _, err := b.Inspect(b.t.Context(), "a"); err != nil {
		b.t.Error(err)
	}
	if _, err := b.Reaper().Reap(b.t.Context()); err != nil {
		b.t.Error(err)
	}
}
