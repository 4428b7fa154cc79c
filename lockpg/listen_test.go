package lockpg_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/netproxy"
	"github.com/sqllock/sqllock/lockpg"
)

// listener is a client that listens.
type listener struct {
	driver.Store
	heard chan driver.ID
	ended chan error
	stop  context.CancelFunc
}

// listen returns when the client hears.
func listen(t *testing.T, store driver.Store) *listener {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &listener{store, make(chan driver.ID, 100), make(chan error, 1), cancel}
	go func() {
		l.ended <- store.(driver.Listener).Listen(ctx, func(id driver.ID) { l.heard <- id })
		close(l.ended)
	}()
	t.Cleanup(func() {
		cancel()
		for range l.ended {
		}
	})
	l.hears(t, driver.ID{})
	return l
}

func (l *listener) hears(t *testing.T, want driver.ID) {
	t.Helper()
	select {
	case id := <-l.heard:
		if id != want {
			t.Errorf("heard %v, want %v", id, want)
		}
	case err := <-l.ended:
		t.Fatalf("Listen = %v", err)
	case <-time.After(20 * time.Second):
		t.Fatalf("did not hear %v", want)
	}
}

// hearsNothing before a word that is said now.
func (l *listener) hearsNothing(t *testing.T, db *sql.DB, instance byte) {
	t.Helper()
	mustExec(t, db, `SELECT pg_notify($1, $2)`, "sqllock_"+driver.ID{instance}.String(), acq(999).String())
	l.hears(t, acq(999))
}

func (l *listener) fails(t *testing.T) error {
	t.Helper()
	select {
	case err := <-l.ended:
		if err == nil {
			t.Error("Listen returned without an error")
		}
		return err
	case <-time.After(20 * time.Second):
		t.Fatal("Listen goes on")
	}
	return nil
}

func TestThoseOfOthersAreToldWhenTheNameIsHandedOver(t *testing.T) {
	t.Parallel()
	d := withTables(t)
	db := d.Open(t)
	pool, err := pgxpool.New(t.Context(), d.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	a, b := listen(t, openAs(t, lockpg.DB(db), 1)), listen(t, openAs(t, lockpg.Pool(pool), 2))
	v := grant(t, a, request("a", 1, time.Minute))[0].Version
	line(t, b, waiter("a", 2))
	line(t, a, waiter("a", 3))
	line(t, b, waitingReader("a", 4))
	line(t, a, waitingReader("a", 5))
	line(t, b, waiter("a", 6))

	if res := let(t, a, releasing("a", 1, v)); !res[0].Freed || len(res[0].Next) > 0 {
		t.Fatalf("%+v", res)
	}
	b.hears(t, acq(2))
	got := line(t, b, waiter("a", 2))[0]
	if !got.Found || got.Remaining > 5*time.Second {
		t.Errorf("%+v", got)
	}
	if _, err := b.Release(t.Context(), []driver.ReleaseRequest{{Name: "a", Acq: acq(2)}}); err != nil {
		t.Fatal(err)
	}
	a.hears(t, acq(3))

	res := let(t, a, releasing("a", 3, line(t, a, waiter("a", 3))[0].Version))
	isNext(t, res[0], 5, got.Version) // whose client is told by the reply
	b.hears(t, acq(4))
	a.hearsNothing(t, db, 1)
	for i, c := range []*listener{b, a} {
		r := releasing("a", 4+i, res[0].Next[0].Version)
		r.Shared = true
		let(t, c, r)
	}
	b.hears(t, acq(6)) // from the last of them, who is another's
	if _, err := b.Release(t.Context(), []driver.ReleaseRequest{{Name: "a", Acq: acq(6)}}); err != nil {
		t.Fatal(err)
	}
	b.hearsNothing(t, db, 2)
}

func TestOnesOwnAreToldOfWhatNoReplyTells(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	l := listen(t, openAs(t, lockpg.DB(db), 1))
	v := grant(t, l, request("a", 1, time.Minute), request("b", 2, time.Minute), request("c", 3, time.Minute))
	line(t, l, waiter("a", 4), waiter("b", 5), waiter("c", 6), waiter("c", 7))
	if _, err := l.Release(t.Context(), []driver.ReleaseRequest{{Name: "a", Acq: acq(1)}}); err != nil {
		t.Fatal(err)
	}
	l.hears(t, acq(4))
	if _, err := l.Revoke(t.Context(), []driver.RevokeRequest{{Name: "b"}}); err != nil {
		t.Fatal(err)
	}
	l.hears(t, acq(5))
	r := releasing("c", 3, v[2].Version) // before its minimum hold time is over
	r.MinHold = time.Hour
	if res := let(t, l, r); !res[0].Freed || len(res[0].Next) > 0 {
		t.Errorf("%+v", res)
	}
	l.hears(t, acq(6))
	until := get[int64](t, db, `SELECT since FROM sqllock_lock WHERE name = 'c'`) + time.Hour.Microseconds()
	if r := line(t, l, waiter("c", 6))[0]; r.Granted || r.Holder != (driver.Holder{Until: until}) {
		t.Errorf("%+v", r)
	}
	if _, err := l.Release(t.Context(), []driver.ReleaseRequest{{Name: "c", Acq: acq(6)}}); err != nil {
		t.Fatal(err)
	}
	l.hears(t, acq(7))
}

// A transaction that notifies keeps all others that do waiting until its flush: it is another
// one than that which hands over, and its failure is not that of the hand-over.
func TestAWakeUpComesAfterTheCommitInATransactionOfItsOwn(t *testing.T) {
	t.Parallel()
	const path = "search_path=fake,pg_catalog,public"
	for _, name := range []string{"pgx", "another driver"} {
		database := withTables(t)
		admin := database.Open(t)
		mustExec(t, admin, `CREATE SCHEMA fake; CREATE TABLE fake.told (payload text, told bigint, handed bigint, flushed text);
			CREATE FUNCTION fake.pg_notify(channel text, payload text) RETURNS void LANGUAGE plpgsql AS $$
			BEGIN
				INSERT INTO fake.told SELECT payload, txid_current(), l.xmin::text::bigint, current_setting('synchronous_commit') FROM sqllock_lock l;
				IF payload::uuid = '`+acq(3).String()+`' THEN RAISE EXCEPTION 'nobody is told'; END IF;
			END $$`)
		db := database.Open(t, path)
		if name != "pgx" {
			db = hide(t, database.DSN(path))
		}
		store, other := open(t, db), openAs(t, lockpg.DB(admin), 1)
		v := grant(t, store, request("a", 1, time.Minute))[0].Version
		line(t, other, waiter("a", 2), waiter("a", 3))
		let(t, store, releasing("a", 1, v))
		if got := get[string](t, admin, `SELECT payload || (told <> handed) || flushed FROM fake.told`); got != uuid(acq(2))+"true"+"off" {
			t.Errorf("%s: %s was told", name, got)
		}
		v = line(t, other, waiter("a", 2))[0].Version
		let(t, store, releasing("a", 2, v))
		if r := line(t, other, waiter("a", 3))[0]; !r.Granted || !r.Found {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// uuid is an ID as the server writes it.
func uuid(id driver.ID) string {
	s := id.String()
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}

// listeners are the sessions that were last used to listen, or to find out whether they still do.
const listeners = `datname = current_database() AND (query LIKE 'LISTEN%' OR query = '-- ping')`

func TestWhoListensLeavesNoConnectionThatDoes(t *testing.T) {
	t.Parallel()
	d := withTables(t)
	db := d.Open(t)
	pool, err := pgxpool.New(t.Context(), d.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	const sessions = `SELECT count(*) FROM pg_stat_activity WHERE ` + listeners
	for _, database := range []*lockpg.Database{lockpg.DB(d.Open(t)), lockpg.Pool(pool)} {
		l := listen(t, openAs(t, database, 1))
		if n := get[int](t, db, sessions); n != 1 {
			t.Errorf("%d sessions listen", n)
		}
		l.stop()
		if err := l.fails(t); !errors.Is(err, context.Canceled) {
			t.Errorf("Listen = %v", err)
		}
		eventually(t, "nobody listens", 20*time.Second, func() bool { return get[int](t, db, sessions) == 0 })
	}
	// The pool takes a connection that was ended back in the background.
	eventually(t, "no connection is in use", 20*time.Second, func() bool { return pool.Stat().AcquiredConns() == 0 })
}

func TestWhoCannotListenIsTold(t *testing.T) {
	t.Parallel()
	d := withTables(t)
	db := d.Open(t)
	store := openAs(t, lockpg.DB(hide(t, d.DSN())), 1)
	if err := store.(driver.Listener).Listen(t.Context(), nil); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("through another driver: %v", err)
	}
	l := listen(t, openAs(t, lockpg.DB(db), 1))
	mustExec(t, db, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE `+listeners)
	if err := l.fails(t); errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("a session that was ended: %v", err)
	}
	mustExec(t, db, `CREATE SCHEMA fake;
		CREATE FUNCTION fake.pg_notify(channel text, payload text) RETURNS void LANGUAGE plpgsql AS 'BEGIN END'`)
	silent := openAs(t, lockpg.DB(d.Open(t, "search_path=fake,pg_catalog,public")), 1)
	err := silent.(driver.Listener).Listen(t.Context(), func(driver.ID) { t.Error("heard something") })
	if !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), "did not arrive") {
		t.Errorf("where no notification arrives: %v", err)
	}
	small := d.Open(t)
	small.SetMaxOpenConns(1)
	began := time.Now()
	err = openAs(t, lockpg.DB(small), 1).(driver.Listener).Listen(t.Context(), func(driver.ID) { t.Error("heard something") })
	if !errors.Is(err, driver.ErrNoConnection) || errors.Is(err, driver.ErrUnsupported) || time.Since(began) > 20*time.Second {
		t.Errorf("with a pool of one: %v after %v", err, time.Since(began))
	}
	if n := small.Stats().InUse; n != 0 {
		t.Errorf("%d connections are still in use", n)
	}
}

// lateConn is a connection on which, once it listens, something arrives only with the reply to what
// was sent: as if the process, or the server, had paused for as long as one waits.
type lateConn struct {
	net.Conn
	mu       sync.Mutex
	listens  bool
	sent     bool // and not all of the reply was read
	deadline time.Time
}

func (c *lateConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	c.listens, c.sent = c.listens || bytes.Contains(b, []byte("LISTEN")), true
	c.mu.Unlock()
	return c.Conn.Write(b)
}

func (c *lateConn) SetDeadline(at time.Time) error {
	c.mu.Lock()
	c.deadline = at
	c.mu.Unlock()
	return c.Conn.SetDeadline(at)
}

// waits reports whether nothing arrives now, and if so, whether the deadline has passed.
func (c *lateConn) waits() (waits, late bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.listens && !c.sent, !c.deadline.IsZero() && !time.Now().Before(c.deadline)
}

func (c *lateConn) Read(b []byte) (int, error) {
	for waits, late := c.waits(); waits; waits, late = c.waits() {
		if late {
			return 0, os.ErrDeadlineExceeded
		}
		time.Sleep(time.Millisecond)
	}
	n, err := c.Conn.Read(b)
	if bytes.HasSuffix(b[:n], []byte("Z\x00\x00\x00\x05I")) { // the server is ready for the next query
		c.mu.Lock()
		c.sent = false
		c.mu.Unlock()
	}
	return n, err
}

func TestWhoIsLateToSeeTheProofListens(t *testing.T) {
	t.Parallel()
	d := withTables(t)
	config, err := pgx.ParseConfig(d.DSN())
	if err != nil {
		t.Fatal(err)
	}
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return &lateConn{Conn: c}, err
	}
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { _ = db.Close() })
	listen(t, openAs(t, lockpg.DB(db), 1))
}

func TestASilentNetworkIsNoticedByWhoListens(t *testing.T) {
	t.Parallel()
	d := withTables(t)
	proxy := netproxy.New(t, d.Addr())
	db := d.OpenVia(t, proxy.Addr())
	l := listen(t, openAs(t, lockpg.DB(db), 1))
	proxy.Freeze()
	if err := l.fails(t); errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("Listen = %v", err)
	}
}

func TestNobodyListensThroughPgbouncer(t *testing.T) {
	t.Parallel()
	server := dedicated(t)
	migrate(t, server.Open(t))
	addr := pgbouncer(t, server, "transaction")
	store := openAs(t, lockpg.DB(server.OpenVia(t, addr, "default_query_exec_mode=exec")), 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := store.(driver.Listener).Listen(ctx, func(driver.ID) { t.Error("heard something") }); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("Listen = %v", err)
	}
	// All that the queue needs goes through it.
	v := grant(t, store, request("a", 1, time.Minute))[0].Version
	line(t, store, waiter("a", 2))
	isNext(t, let(t, store, releasing("a", 1, v))[0], 2, v)
}
