package quorumtest

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/locksqlite"
)

// pairs are the sets of databases that tests run on.
func pairs() map[string][]string {
	all := map[string][]string{"three SQLite files": {testdb.SQLite, testdb.SQLite, testdb.SQLite}}
	var mixed []string
	for _, e := range testdb.Engines() {
		if all["three on "+e] = []string{e, e, e}; e != testdb.MySQL {
			mixed = append(mixed, e, e)
		}
	}
	all["mixed"] = append(mixed, testdb.SQLite)
	return all
}

func onAll(t *testing.T, f func(t *testing.T, nodes []*node)) {
	for name, engines := range pairs() {
		t.Run(name, func(t *testing.T) { f(t, newNodes(t, engines...)) })
	}
}

func TestOneHoldsAtATimeAndTokensRise(t *testing.T) {
	onAll(t, func(t *testing.T, nodes []*node) {
		lockers := []*sqllock.Locker{newLocker(t, nodes, nil), newLocker(t, nodes, nil)}
		var inside atomic.Int32
		var tokens []int64 // of the holders, in their order
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				for range 8 {
					err := lockers[g%2].Do(within(t, 60*time.Second), "a", func(_ context.Context, lease *sqllock.Lease) error {
						if n := inside.Add(1); n != 1 {
							t.Errorf("%d hold the name", n)
						}
						tokens = append(tokens, lease.Token())
						inside.Add(-1)
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if !slices.IsSorted(tokens) || len(slices.Compact(slices.Clone(tokens))) != 32 {
			t.Errorf("the tokens of 32 terms: %d", tokens)
		}
		t.Logf("%d statements that raise for 32 grants", raises(nodes))
		for i := range nodes {
			eventually(t, "nothing is left on the databases", func() bool { return nodes[i].rows(t) == 0 })
		}
	})
}

func TestADatabaseThatIsSlowOrFrozenCostsNothing(t *testing.T) {
	onServers(t, func(t *testing.T, nodes []*node) {
		const timeout = 10 * time.Second
		l := newLocker(t, nodes, &sqllock.QuorumOptions{TTL: 60 * time.Second, NodeTimeout: timeout})
		cycle(t, l, "warm")
		nodes[1].proxy.Freeze()
		for range 5 {
			if took := cycle(t, l, "a"); took > timeout/2 {
				t.Errorf("with one of three frozen a Lock with its Unlock took %v", took)
			}
		}
		nodes[1].proxy.Thaw()
		nodes[2].proxy.Latency(timeout / 4)
		for range 5 {
			if took := cycle(t, l, "b"); took > timeout*2/5 { // a round trip takes half of the time-out
				t.Errorf("with one of three slow by %v a Lock with its Unlock took %v", timeout/4, took)
			}
		}
		nodes[2].proxy.Latency(0)
	})
}

// onServers runs a test on three databases of each server, whose network can be frozen.
func onServers(t *testing.T, f func(t *testing.T, nodes []*node)) {
	for _, e := range testdb.Engines() {
		t.Run(e, func(t *testing.T) {
			t.Parallel() // they wait most of the time
			f(t, newNodes(t, e, e, e))
		})
	}
}

func cycle(t *testing.T, l *sqllock.Locker, name string) time.Duration {
	t.Helper()
	before := time.Now()
	lease, err := l.Lock(within(t, 30*time.Second), name)
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	return time.Since(before)
}

func TestALeaseOutlivesTheMinorityAndEndsWithTheMajority(t *testing.T) {
	onServers(t, func(t *testing.T, nodes []*node) {
		const ttl = 8 * time.Second
		l := newLocker(t, nodes, &sqllock.QuorumOptions{TTL: ttl})
		lease, err := l.Lock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		nodes[0].proxy.Freeze()
		select {
		case <-lease.Context().Done():
			t.Fatalf("the lease was lost although two of three go on: %v", context.Cause(lease.Context()))
		case <-time.After(ttl + ttl/2):
		}
		nodes[1].proxy.Freeze()
		before := time.Now()
		select {
		case <-lease.Context().Done():
		case <-time.After(ttl + 10*time.Second):
		}
		if took := time.Since(before); took > ttl+5*time.Second {
			t.Errorf("the lease has not ended %v after the majority had gone, its TTL is %v", took, ttl)
		}
		nodes[0].proxy.Thaw()
		nodes[1].proxy.Thaw()
		_ = lease.Unlock(t.Context())
	})
}

// All databases are asked for one version, so that none has to be raised, unless a request takes
// longer than versions are ahead of the clocks.
func TestAGrantNeedsNoRaise(t *testing.T) {
	onAll(t, func(t *testing.T, nodes []*node) {
		l := newLocker(t, nodes, nil)
		round := 0
		eventually(t, "24 grants that nobody competes for need no raise", func() bool {
			before := raises(nodes)
			round++
			for _, name := range strings.Split("aabbccabcaabddeedeffghgh", "") {
				cycle(t, l, name+strconv.Itoa(round))
			}
			return raises(nodes) == before
		})
	})
}

func TestATokenIsNotBelowAnyClock(t *testing.T) {
	nodes := newNodes(t, testdb.SQLite, testdb.SQLite, testdb.SQLite)
	nodes[2].ahead.Store(30 * time.Second.Microseconds())
	before := time.Now().Add(30 * time.Second)
	lease, err := newLocker(t, nodes, nil).Lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if token := time.UnixMicro(lease.Token()); token.Before(before) || token.After(before.Add(20*time.Second)) {
		t.Errorf("the token is that of %v, when the fastest clock said %v", token, before)
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// A node that was down at the grant gets the name later, and then counts.
func TestADatabaseThatComesBackCounts(t *testing.T) {
	onServers(t, func(t *testing.T, nodes []*node) {
		nodes[2].proxy.Freeze()
		const ttl = 8 * time.Second
		l := newLocker(t, nodes, &sqllock.QuorumOptions{TTL: ttl})
		lease, err := l.Lock(within(t, 20*time.Second), "a")
		if err != nil {
			t.Fatal(err)
		}
		if n := nodes[2].rows(t); n != 0 {
			t.Fatalf("the database that is down keeps %d names", n)
		}
		nodes[2].proxy.Thaw()
		eventually(t, "the third database keeps the name", func() bool { return nodes[2].rows(t) == 1 })
		time.Sleep(ttl / 2) // a renewal
		nodes[0].proxy.Freeze()
		select {
		case <-lease.Context().Done():
			t.Errorf("the lease was lost: %v", context.Cause(lease.Context()))
		case <-time.After(ttl + ttl/2):
		}
		nodes[0].proxy.Thaw()
		if err := lease.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		for i := range nodes {
			eventually(t, "nothing is left", func() bool { return nodes[i].rows(t) == 0 })
		}
	})
}

func TestWhatAFrozenDatabaseKeepsIsReleasedWhenItComesBack(t *testing.T) {
	onServers(t, func(t *testing.T, nodes []*node) {
		l := newLocker(t, nodes, &sqllock.QuorumOptions{TTL: 10 * time.Minute, NodeTimeout: time.Second})
		lease, err := l.Lock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "all keep the name", func() bool { return nodes[0].rows(t)+nodes[1].rows(t)+nodes[2].rows(t) == 3 })
		nodes[1].proxy.Freeze()
		if err := lease.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock with one of three frozen: %v", err)
		}
		time.Sleep(1200 * time.Millisecond)
		nodes[1].proxy.Thaw()
		eventually(t, "the frozen database has released the name", func() bool { return nodes[1].rows(t) == 0 })
	})
}

// spread makes the versions of a name differ from node to node, so that each grant needs raises.
func spread(t *testing.T, nodes []*node) {
	t.Helper()
	for i, n := range nodes {
		eventually(t, "the row is free", func() bool { return n.rows(t) == 0 })
		if _, err := n.direct.ExecContext(t.Context(), `UPDATE quorum_lock SET version = version + 100000000 * `+strconv.Itoa(i+1)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNobodyHoldsByGrantsThatWereNotRaised(t *testing.T) {
	onAll(t, func(t *testing.T, nodes []*node) {
		l := newLocker(t, nodes, &sqllock.QuorumOptions{TTL: 5 * time.Second})
		cycle(t, l, "a")
		spread(t, nodes)
		for _, n := range nodes {
			n.unraised.Store(true)
		}
		if lease, err := l.TryLock(t.Context(), "a"); err == nil {
			t.Errorf("granted although no node has raised its version: token %d", lease.Token())
			_ = lease.Unlock(t.Context())
		}
		for _, n := range nodes {
			n.unraised.Store(false)
		}
		cycle(t, l, "a")
		if raises(nodes) == 0 {
			t.Error("there was no raise")
		}
	})
}

// What a raise whose reply is lost may have granted is released.
func TestARaiseWithoutAReplyLeavesNothing(t *testing.T) {
	onAll(t, func(t *testing.T, nodes []*node) {
		l := newLocker(t, nodes, &sqllock.QuorumOptions{TTL: 60 * time.Second, NodeTimeout: 500 * time.Millisecond})
		cycle(t, l, "a")
		spread(t, nodes)
		for _, n := range nodes {
			n.silent.Store(true)
		}
		before := rounds(nodes)
		lease, err := l.TryLock(t.Context(), "a")
		if err == nil && rounds(nodes) <= before+1 { // what a round has raised, the next one need not raise
			t.Errorf("granted although no raise was answered: token %d", lease.Token())
		}
		for _, n := range nodes {
			n.silent.Store(false)
		}
		if err == nil {
			if err := lease.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
		for i := range nodes {
			eventually(t, "nothing is left", func() bool { return nodes[i].rows(t) == 0 })
		}
		cycle(t, l, "a")
	})
}

func TestWhatOthersSee(t *testing.T) {
	onAll(t, func(t *testing.T, nodes []*node) {
		first := longTimeout()
		first.Label = "first"
		a, b := newLocker(t, nodes, first), newLocker(t, nodes, longTimeout())
		lease, err := a.Lock(t.Context(), "a", sqllock.Value([]byte("a text")))
		if err != nil {
			t.Fatal(err)
		}
		info, err := b.Inspect(t.Context(), "a")
		if err != nil || info.State != sqllock.StateHeld || info.Token != lease.Token() || info.Label != "first" || string(info.Value) != "a text" {
			t.Errorf("Inspect: %+v, %v; the token is %d", info, err, lease.Token())
		}
		var names []string
		for info, err := range b.List(t.Context()) {
			if err != nil || info.Token != lease.Token() {
				t.Errorf("List: %+v, %v", info, err)
			}
			names = append(names, info.Name)
		}
		if !slices.Equal(names, []string{"a"}) {
			t.Errorf("List: %q", names)
		}
		if state, err := b.CheckSequencer(t.Context(), lease.Sequencer()); err != nil || state != sqllock.SequencerCurrent {
			t.Errorf("CheckSequencer: %v, %v", state, err)
		}
		var held *sqllock.HeldError
		if _, err := b.TryLock(t.Context(), "a"); !errors.As(err, &held) || held.Label != "first" {
			t.Errorf("TryLock: %v", err)
		}
		if _, err := b.ForceUnlock(t.Context(), "a"); err != nil {
			t.Errorf("ForceUnlock: %v", err)
		}
		next, err := b.TryLock(t.Context(), "a")
		if err != nil || next.Token() <= lease.Token() {
			t.Fatalf("after ForceUnlock: %v, %v", next, err)
		}
		var lost *sqllock.LostError
		if err := lease.Unlock(t.Context()); !errors.As(err, &lost) || lost.Reason != sqllock.LostRevoked {
			t.Errorf("Unlock after ForceUnlock: %v", err)
		}
		if state, err := a.CheckSequencer(t.Context(), lease.Sequencer()); err != nil || state != sqllock.SequencerStale {
			t.Errorf("CheckSequencer of the earlier term: %v, %v", state, err)
		}
		if err := next.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestWhatAQuorumCannotDo(t *testing.T) {
	nodes := newNodes(t, testdb.SQLite, testdb.SQLite, testdb.SQLite)
	l := newLocker(t, nodes, nil)
	ctx := t.Context()
	lease, err := l.Lock(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	tx, err := nodes[0].direct.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	nothing := func(context.Context, *sql.Tx) error { return nil }
	election, err := l.Election("b", nil)
	if err != nil {
		t.Fatal(err)
	}
	for what, f := range map[string]func() error{
		"RLock":         func() error { _, err := l.RLock(ctx, "b"); return err },
		"TryRLock":      func() error { _, err := l.TryRLock(ctx, "b"); return err },
		"LockAll":       func() error { _, err := l.LockAll(ctx, []string{"b", "c"}); return err },
		"TryLockAll":    func() error { _, err := l.TryLockAll(ctx, []string{"b", "c"}); return err },
		"RLockAll":      func() error { _, err := l.RLockAll(ctx, []string{"b", "c"}); return err },
		"TryRLockAll":   func() error { _, err := l.TryRLockAll(ctx, []string{"b", "c"}); return err },
		"Adopt":         func() error { _, err := l.Adopt(ctx, "sqllock1_x"); return err },
		"RequestResign": func() error { return election.RequestResign(ctx) },
		"Guard":         func() error { return lease.Guard(ctx, tx) },
		"InTx":          func() error { return lease.InTx(ctx, nil, nothing) },
		"UnlockTx":      func() error { return lease.UnlockTx(ctx, tx) },
		"UnlockInTx":    func() error { return lease.UnlockInTx(ctx, nil, nothing) },
		"Detach":        func() error { _, err := lease.Detach(ctx); return err },
		"Semaphore":     func() error { _, err := l.Semaphore("b", 2, nil); return err },
		"Once": func() error {
			_, err := l.Once(ctx, "b", "k", func(context.Context, *sqllock.Run) error { return nil })
			return err
		},
		"an election that resigns on request": func() error {
			_, err := l.Election("b", &sqllock.ElectionOptions{ResignOnRequest: true})
			return err
		},
	} {
		if err := f(); !errors.Is(err, sqllock.ErrUnsupported) {
			t.Errorf("%s: %v, want ErrUnsupported", what, err)
		}
	}
	if _, err := l.RLock(ctx, ""); !errors.Is(err, sqllock.ErrInvalidName) {
		t.Errorf("RLock of no name: %v, want ErrInvalidName", err)
	}
	again, err := l.RLock(lease.Context(), "a")
	if err != nil {
		t.Fatalf("RLock of a name that the context holds: %v", err)
	}
	for _, lease := range []*sqllock.Lease{again, lease} {
		if err := lease.Unlock(ctx); err != nil {
			t.Error(err)
		}
	}
}

func TestAFenceRefusesTheTokenOfAFormerHolder(t *testing.T) {
	nodes := newNodes(t, testdb.SQLite, testdb.SQLite, testdb.SQLite, testdb.SQLite)
	l, other := newLocker(t, nodes[:3], nil), nodes[3].direct
	var tokens []int64
	for range 2 {
		lease, err := l.Lock(within(t, 30*time.Second), "a")
		if err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, lease.Token())
		if err := lease.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	fence := func(token int64) error {
		tx, err := other.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if err := locksqlite.Fence(t.Context(), tx, "resource", token, locksqlite.TablePrefix(prefix)); err != nil {
			return err
		}
		return tx.Commit()
	}
	for _, token := range []int64{tokens[1], tokens[0], tokens[1]} {
		if err := fence(token); errors.Is(err, sqllock.ErrFenced) != (token == tokens[0]) || err != nil && token != tokens[0] {
			t.Errorf("of the tokens %d: Fence with %d: %v", tokens, token, err)
		}
	}
}

func TestAnElectionOverAQuorum(t *testing.T) {
	nodes := newNodes(t, testdb.SQLite, testdb.SQLite, testdb.SQLite)
	l := newLocker(t, nodes, nil)
	e, err := l.Election("e", &sqllock.ElectionOptions{Identity: "one"})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Campaign(within(t, 20*time.Second), []byte("v")); err != nil {
		t.Fatal(err)
	}
	if err := e.Proclaim(t.Context(), []byte("w")); err != nil {
		t.Error(err)
	}
	term, err := e.Leader(t.Context())
	if err != nil || term.Identity != "one" || string(term.Value) != "w" {
		t.Errorf("Leader: %+v, %v", term, err)
	}
	if err := e.Resign(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestNewQuorumRefuses(t *testing.T) {
	nodes := newNodes(t, testdb.SQLite, testdb.SQLite, testdb.SQLite)
	dbs := databases(nodes)
	for what, c := range map[string]struct {
		dbs  []driver.UniqueDatabase
		o    *sqllock.QuorumOptions
		says string
	}{
		"one database":         {dbs[:1], nil, "1 databases"},
		"a nil database":       {[]driver.UniqueDatabase{dbs[0], nil, dbs[2]}, nil, "database 1"},
		"one database twice":   {[]driver.UniqueDatabase{dbs[0], dbs[1], nodes[1].UniqueDatabase}, nil, "the same tables"},
		"too many are faulty":  {dbs, &sqllock.QuorumOptions{FaultyNodes: 3}, "FaultyNodes 3"},
		"a negative number":    {dbs, &sqllock.QuorumOptions{FaultyNodes: -1}, "FaultyNodes -1"},
		"a short time-out":     {dbs, &sqllock.QuorumOptions{NodeTimeout: time.Millisecond}, "NodeTimeout 1ms"},
		"a long time-out":      {dbs, &sqllock.QuorumOptions{TTL: 3 * time.Second, NodeTimeout: time.Second}, "NodeTimeout 1s"},
		"the tables of unique": {[]driver.UniqueDatabase{dbs[0], dbs[1], defaultTables(t)}, nil, "table prefix"},
	} {
		l, err := sqllock.NewQuorum(t.Context(), c.dbs, c.o)
		if !errors.Is(err, sqllock.ErrInvalidOption) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want ErrInvalidOption that says %q", what, err, c.says)
		}
		if l != nil {
			_ = l.Close(t.Context())
		}
	}
}

// TestAnyMinorityMayGo freezes each two of five databases in turn, under load.
func TestAnyMinorityMayGo(t *testing.T) {
	engines := testdb.Engines()
	if len(engines) == 0 {
		return // testdb reports it
	}
	five := make([]string, 5)
	for i := range five {
		five[i] = engines[i%len(engines)]
	}
	nodes := newNodes(t, five...)
	o := sqllock.QuorumOptions{TTL: 12 * time.Second, NodeTimeout: 300 * time.Millisecond, RetryMax: 50 * time.Millisecond}
	a, b := o, o
	lockers := []*sqllock.Locker{newLocker(t, nodes, &a), newLocker(t, nodes, &b)}
	var inside atomic.Int32
	var last, grants atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for g := range 6 {
		wg.Go(func() {
			for ctx.Err() == nil {
				err := lockers[g%2].Do(ctx, "a", func(ctx context.Context, lease *sqllock.Lease) error {
					if n := inside.Add(1); n != 1 {
						t.Errorf("%d hold the name", n)
					}
					if before := last.Swap(lease.Token()); before >= lease.Token() {
						t.Errorf("the token %d follows %d", lease.Token(), before)
					}
					grants.Add(1)
					inside.Add(-1)
					return nil
				})
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range nodes {
		for k := range i {
			before := grants.Load()
			nodes[i].proxy.Freeze()
			nodes[k].proxy.Freeze()
			eventually(t, "grants go on", func() bool { return grants.Load() > before+10 })
			nodes[i].proxy.Thaw()
			nodes[k].proxy.Thaw()
			eventually(t, "grants go on", func() bool { return grants.Load() > before+20 })
		}
	}
	stop()
	wg.Wait()
	t.Logf("%d grants, %d statements that raise", grants.Load(), raises(nodes))
}
