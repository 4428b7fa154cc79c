package quorumtest

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/netproxy"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockmysql"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
)

func TestMain(m *testing.M) { testdb.Main(m) }

const prefix = "quorum_"

// node is one database of a test. It stands between the database and the Locker: it can freeze, and
// it can fail to raise.
type node struct {
	driver.UniqueDatabase
	direct   *sql.DB         // not through the proxy
	proxy    *netproxy.Proxy // nil of SQLite
	raises   atomic.Int64
	unraised atomic.Bool // raises are not done
	silent   atomic.Bool // raises are done, and the replies are lost
	down     atomic.Bool // it cannot be opened
	muted    atomic.Bool // Acquires are done, and the replies are lost
	acquires atomic.Int64
	setValue atomic.Pointer[lateValue] // the last
	ahead    atomic.Int64              // microseconds, by which its clock is told to be ahead

	// Each is called, if it is set, with the context of a statement.
	beforeRead, beforeRevoke, afterAcquire, beforeRelease, afterRelease, beforeSetValue, beforeOpen atomic.Pointer[hook]
}

type hook func(ctx context.Context)

// lateValue is a request that can come once more.
type lateValue struct {
	to  driver.NodeStore
	req driver.SetValueRequest
}

func call(ctx context.Context, h *atomic.Pointer[hook]) {
	if f := h.Load(); f != nil {
		(*f)(ctx)
	}
}

// set makes a hook.
func set(h *atomic.Pointer[hook], f hook) { h.Store(&f) }

// until waits for a channel to be closed, or for the end of a statement.
func until(ch <-chan struct{}) hook {
	return func(ctx context.Context) {
		select {
		case <-ch:
		case <-ctx.Done():
		}
	}
}

// first calls f in the first of all calls, only.
func first(f hook) hook {
	var called atomic.Bool
	return func(ctx context.Context) {
		if called.CompareAndSwap(false, true) {
			f(ctx)
		}
	}
}

// newNodes makes a database with tables on each engine.
func newNodes(t testing.TB, engines ...string) []*node {
	t.Helper()
	nodes := make([]*node, len(engines))
	for i, e := range engines {
		d := testdb.New(t, e)
		n := &node{}
		if nodes[i] = n; e == testdb.SQLite {
			n.direct = d.Open(t, "_pragma=journal_mode(wal)")
			n.UniqueDatabase = database(e, n.direct)
		} else {
			n.proxy = netproxy.New(t, d.Addr())
			n.direct = d.Open(t)
			n.UniqueDatabase = database(e, d.OpenVia(t, n.proxy.Addr()))
		}
		if err := migrations.Up(t.Context(), database(e, n.direct)); err != nil {
			t.Fatal(err)
		}
	}
	return nodes
}

// migratable is what lockpg, lockmysql and locksqlite return.
type migratable interface {
	driver.UniqueDatabase
	driver.Migratable
}

func database(engine string, db *sql.DB) migratable {
	switch engine {
	case testdb.Postgres:
		return lockpg.DB(db, lockpg.TablePrefix(prefix))
	case testdb.SQLite:
		return locksqlite.DB(db, locksqlite.TablePrefix(prefix))
	}
	return lockmysql.DB(db, lockmysql.TablePrefix(prefix))
}

func (n *node) OpenUnique(ctx context.Context, c driver.Client) (driver.Store, error) {
	if n.down.Load() {
		return nil, errDown
	}
	call(ctx, &n.beforeOpen)
	s, err := n.UniqueDatabase.OpenUnique(ctx, c)
	if err != nil {
		return nil, err
	}
	return &store{s.(driver.NodeStore), n}, nil
}

type store struct {
	driver.NodeStore
	node *node
}

var errDown = errors.New("the database is down")

// Acquire, Renew and Read tell another clock than that of the database, which a test cannot set.
func (s *store) Acquire(ctx context.Context, reqs []driver.AcquireRequest) ([]driver.AcquireResult, error) {
	s.node.acquires.Add(1)
	res, err := s.NodeStore.Acquire(ctx, reqs)
	if s.node.muted.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	call(ctx, &s.node.afterAcquire)
	for i := range res {
		res[i].Now += s.node.ahead.Load()
		res[i].Holder.Until += s.node.ahead.Load()
	}
	return res, err
}

func (s *store) Renew(ctx context.Context, reqs []driver.RenewRequest, wait bool) (driver.RenewResults, error) {
	res, err := s.NodeStore.Renew(ctx, reqs, wait)
	res.Now += s.node.ahead.Load()
	return res, err
}

func (s *store) Read(ctx context.Context, req driver.ReadRequest) (driver.ReadResult, error) {
	call(ctx, &s.node.beforeRead)
	res, err := s.NodeStore.Read(ctx, req)
	for i := range res.Rows {
		r := &res.Rows[i]
		for _, at := range []*int64{&r.Now, &r.Gate, &r.Holder.Until, &r.Holder.Since} {
			*at += s.node.ahead.Load()
		}
	}
	return res, err
}

func (s *store) Release(ctx context.Context, reqs []driver.ReleaseRequest) ([]driver.ReleaseResult, error) {
	call(ctx, &s.node.beforeRelease)
	res, err := s.NodeStore.Release(ctx, reqs)
	call(ctx, &s.node.afterRelease)
	return res, err
}

func (s *store) Revoke(ctx context.Context, reqs []driver.RevokeRequest) ([]driver.RevokeResult, error) {
	call(ctx, &s.node.beforeRevoke)
	return s.NodeStore.Revoke(ctx, reqs)
}

func (s *store) SetValue(ctx context.Context, req driver.SetValueRequest) (bool, error) {
	s.node.setValue.Store(&lateValue{s.NodeStore, req})
	call(ctx, &s.node.beforeSetValue)
	return s.NodeStore.SetValue(ctx, req)
}

func (s *store) Raise(ctx context.Context, reqs []driver.RaiseRequest) ([]bool, error) {
	s.node.raises.Add(1)
	if s.node.unraised.Load() {
		return make([]bool, len(reqs)), nil
	}
	res, err := s.NodeStore.Raise(ctx, reqs)
	if s.node.silent.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return res, err
}

// raises returns how many statements have raised versions.
func raises(nodes []*node) (n int64) {
	for i := range nodes {
		n += nodes[i].raises.Load()
	}
	return n
}

// rounds returns how often the nodes were asked for names: how often the one was that was asked most.
func rounds(nodes []*node) (n int64) {
	for i := range nodes {
		n = max(n, nodes[i].acquires.Load())
	}
	return n
}

// rows returns how many rows a node has that keep a name.
func (n *node) rows(t testing.TB) (held int) {
	t.Helper()
	if err := n.direct.QueryRowContext(t.Context(), `SELECT count(*) FROM quorum_lock WHERE acq IS NOT NULL`).Scan(&held); err != nil {
		t.Fatal(err)
	}
	return held
}

// kept returns how many databases keep a name.
func kept(t testing.TB, nodes ...*node) (n int) {
	t.Helper()
	for i := range nodes {
		n += nodes[i].rows(t)
	}
	return n
}

func databases(nodes []*node) []driver.UniqueDatabase {
	dbs := make([]driver.UniqueDatabase, len(nodes))
	for i, n := range nodes {
		dbs[i] = n
	}
	return dbs
}

func newLocker(t testing.TB, nodes []*node, o *sqllock.QuorumOptions) *sqllock.Locker {
	t.Helper()
	if o == nil {
		o = &sqllock.QuorumOptions{}
	}
	if o.Reaper == nil {
		o.Reaper = &sqllock.ReaperOptions{Off: true}
	}
	l, err := sqllock.NewQuorum(t.Context(), databases(nodes), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return l
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits until ok returns true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after a minute: not yet: %s", what)
		}
	}
}

// defaultTables is a database whose table prefix is that of unique mode.
func defaultTables(t testing.TB) driver.UniqueDatabase {
	return locksqlite.DB(testdb.New(t, testdb.SQLite).Open(t))
}
