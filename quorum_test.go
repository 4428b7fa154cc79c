package sqllock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/migrations"
)

// shorter is a node of a quorum that keeps names for a shorter time than it was asked to.
type shorter struct {
	driver.UniqueDatabase
	by time.Duration
}

// shorterStore is its store.
type shorterStore struct {
	driver.NodeStore
	by time.Duration
}

func (n shorter) OpenUnique(ctx context.Context, c driver.Client) (driver.Store, error) {
	s, err := n.UniqueDatabase.OpenUnique(ctx, c)
	if err != nil {
		return nil, err
	}
	return shorterStore{s.(driver.NodeStore), n.by}, nil
}

func (s shorterStore) Acquire(ctx context.Context, reqs []driver.AcquireRequest) ([]driver.AcquireResult, error) {
	res, err := s.NodeStore.Acquire(ctx, reqs)
	for i := range res {
		res[i].Remaining -= s.by
	}
	return res, err
}

func TestALeaseOfAQuorumLastsAsLongAsOnEnoughNodes(t *testing.T) {
	t.Parallel()
	var dbs []driver.UniqueDatabase
	for i, n := range nodesOf(testdb.New(t, testdb.SQLite).Open(t)) {
		if err := migrations.Up(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		dbs = append(dbs, shorter{n, time.Duration(i) * 20 * time.Minute})
	}
	locks, err := sqllock.NewQuorum(t.Context(), dbs, &sqllock.QuorumOptions{TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer closeSoon(locks)
	for range 10 { // whichever nodes answer first
		lease, err := locks.Lock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if left := lease.Remaining(); left > 40*time.Minute || left <= 0 { // two of three have it for 40 minutes
			t.Errorf("the lease lasts for %v", left)
		}
		if err := lease.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// busyNode is a node of a quorum that can be too busy to release names.
type busyNode struct {
	driver.UniqueDatabase
	busy *atomic.Bool
}

// busyStore is its store.
type busyStore struct {
	driver.NodeStore
	busy *atomic.Bool
}

var errNodeBusy = errors.New("the node is busy")

func (n busyNode) OpenUnique(ctx context.Context, c driver.Client) (driver.Store, error) {
	s, err := n.UniqueDatabase.OpenUnique(ctx, c)
	if err != nil {
		return nil, err
	}
	return busyStore{s.(driver.NodeStore), n.busy}, nil
}

func (n busyNode) Classify(err error) driver.Fault {
	if errors.Is(err, errNodeBusy) {
		return driver.Again
	}
	return n.UniqueDatabase.Classify(err)
}

func (s busyStore) Release(ctx context.Context, reqs []driver.ReleaseRequest) ([]driver.ReleaseResult, error) {
	if s.busy.Load() {
		return nil, errNodeBusy
	}
	return s.NodeStore.Release(ctx, reqs)
}

// Unlock of a guarded lease gives up sooner than others, because a transaction may be in its way.
func TestALeaseOfAQuorumIsNotGuardedByAGuardThatWasRefused(t *testing.T) {
	t.Parallel()
	var busy atomic.Bool
	var dbs []driver.UniqueDatabase
	db := testdb.New(t, testdb.SQLite).Open(t)
	for _, n := range nodesOf(db) {
		if err := migrations.Up(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		dbs = append(dbs, busyNode{n, &busy})
	}
	locks, err := sqllock.NewQuorum(t.Context(), dbs, &sqllock.QuorumOptions{TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer closeSoon(locks)
	lease, err := locks.Lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"Guard": lease.Guard(t.Context(), tx), "UnlockTx": lease.UnlockTx(t.Context(), tx)} {
		if !errors.Is(err, sqllock.ErrUnsupported) {
			t.Errorf("%s: %v, want ErrUnsupported", what, err)
		}
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	busy.Store(true)
	time.AfterFunc(time.Second, func() { busy.Store(false) }) // later than Unlock of a guarded lease waits
	if err := lease.Unlock(t.Context()); err != nil {
		t.Errorf("Unlock while the databases are busy for a second: %v", err)
	}
}
