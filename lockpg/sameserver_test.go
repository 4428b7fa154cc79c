package lockpg_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
)

// refuseWrites has all sessions of a server refuse to begin to write, or ends that.
func refuseWrites(t *testing.T, db *sql.DB, refuse bool) {
	t.Helper()
	mustExec(t, db, fmt.Sprintf(`ALTER SYSTEM SET default_transaction_read_only = %v`, refuse))
	mustExec(t, db, `SELECT pg_reload_conf()`)
}

func TestALockIsLostOnAServerThatTakesNoWritesAnyMoreOnAServerOfItsOwn(t *testing.T) {
	t.Parallel()
	server := dedicated(t)
	admin := server.Open(t)
	migrate(t, admin)
	for _, m := range sessionModes {
		c := m.on(t, server.Open(t), sessionTTL)
		r := ask("k " + m.name)
		s, res := c.take(t, r)
		if status := ping(t, s, r, res); status != driver.Renewed {
			t.Fatalf("%s: a renewal: %v", m.name, status)
		}
		refuseWrites(t, admin, true)
		eventually(t, m.name+": a renewal fails", 20*time.Second, func() bool {
			_, err := s.Renew(t.Context(), []driver.RenewRequest{renewalOf(r, res)})
			return err != nil
		})
		wantGone(t, s)
		giveBack(t, s)
		if got, err := tryLock(t, c, ask("k "+m.name)); err == nil || got.Granted || c.Classify(err) != driver.Unreachable {
			t.Errorf("%s: a grant by a server that takes no writes: %+v, %v", m.name, got, err)
		}
		refuseWrites(t, admin, false)
		eventually(t, m.name+": the server grants again", 20*time.Second, func() bool {
			got, err := tryLock(t, c, ask("k "+m.name))
			return err == nil && got.Granted
		})
	}
}

// tryLock asks a session of its own, which is closed.
func tryLock(t *testing.T, c *client, r driver.AcquireRequest) (res driver.AcquireResult, err error) {
	t.Helper()
	s, err := c.Session(t.Context())
	if err != nil {
		return res, err
	}
	defer giveBack(t, s)
	all, err := s.Grant(t.Context(), []driver.AcquireRequest{r})
	if err == nil {
		res = all[0]
	}
	return res, err
}

func TestAFormerPrimaryGrantsNothingUntilItIsPromotedOnAServerOfItsOwn(t *testing.T) {
	t.Parallel()
	server := dedicated(t)
	migrate(t, server.Open(t))
	clients := make(map[string]*client)
	for _, m := range sessionModes {
		clients[m.name] = m.on(t, server.Open(t), sessionTTL)
		_, res := clients[m.name].take(t, ask("k"))
		if !res.Granted {
			t.Fatal("not granted")
		}
	}
	var dir string
	if err := server.Open(t).QueryRow(`SHOW data_directory`).Scan(&dir); err != nil {
		t.Fatal(err)
	}
	server.Stop()
	if err := os.WriteFile(filepath.Join(dir, "standby.signal"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	server.Restart()
	standby := server.Open(t)
	for _, m := range sessionModes {
		c := clients[m.name]
		if got, err := tryLock(t, c, ask("k")); err == nil || got.Granted || c.Classify(err) != driver.Unreachable {
			t.Errorf("%s: a grant by a standby: %+v, %v", m.name, got, err)
		}
		tx := mustBegin(t, standby)
		if status, err := c.TryTx(t.Context(), tx, driver.TxRequest{Name: "k", Shared: true}); err == nil && status != driver.TxForeign {
			t.Errorf("%s: a transaction on a standby: %v", m.name, status)
		}
		_ = tx.Rollback()
	}
	mustExec(t, standby, `SELECT pg_promote()`)
	for _, m := range sessionModes {
		c := clients[m.name]
		eventually(t, m.name+": it grants again", 20*time.Second, func() bool {
			got, err := tryLock(t, c, ask("k"))
			return err == nil && got.Granted
		})
	}
}

// lingering connects as [hidden] does. Its connections end when the test does, however soon they are
// closed: a server ends a session some time after its client has gone.
type lingering struct {
	hidden
	t *testing.T
}

func (l lingering) Connect(ctx context.Context) (sqldriver.Conn, error) {
	conn, err := l.hidden.Connect(ctx)
	if err != nil {
		return nil, err
	}
	plain := conn.(plainConn)
	l.t.Cleanup(func() { _ = plain.Close() })
	return lingeringConn{plain}, nil
}

type lingeringConn struct{ plainConn }

func (lingeringConn) Close() error { return nil }

func TestASessionIsNotRefusedByTheLockOfItsFormerConnectionOnAServerThatTakesNoWrites(t *testing.T) {
	t.Parallel()
	d := withTables(t)
	db := sql.OpenDB(lingering{hidden{d.DSN()}, t})
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxIdleConns(0)
	c := advisory.on(t, db, sessionTTL)
	mustExec(t, d.Open(t), `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$`)
	s, err := c.Session(t.Context())
	if err == nil {
		_ = s.Close()
		t.Fatal("a session on a server that takes no writes")
	}
	if errors.Is(err, driver.ErrUnsupported) || c.Classify(err) != driver.Unreachable {
		t.Errorf("the error does not say that another server has to be found: %v", err)
	}
}

// twoServers are a server and another that has its tables, and so the id of its database,
// as a standby that was promoted has.
func twoServers(t *testing.T) (a, b *testdb.Server) {
	t.Helper()
	a, b = dedicated(t), foreign(t)
	var id string
	dbs := []*sql.DB{a.Open(t), b.Open(t)}
	for _, db := range dbs {
		migrate(t, db)
	}
	if err := dbs[0].QueryRow(`SELECT id::text FROM sqllock_meta`).Scan(&id); err != nil {
		t.Fatal(err)
	}
	mustExec(t, dbs[1], `UPDATE sqllock_meta SET id = $1::uuid`, id)
	return a, b
}

// moving is a handle whose new connections reach the server at an address that changes.
func moving(t *testing.T, server *testdb.Server) (db *sql.DB, move func(*testdb.Server)) {
	t.Helper()
	var addr atomic.Value
	addr.Store(server.Addr())
	config, err := pgx.ParseConfig(server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	config.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, addr.Load().(string))
	}
	db = stdlib.OpenDB(*config)
	t.Cleanup(func() { _ = db.Close() })
	return db, func(to *testdb.Server) { addr.Store(to.Addr()) }
}

func terms(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	if err := db.QueryRow(`SELECT count(*) FROM sqllock_term`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestATokenIsDrawnOnTheServerThatHasTheLockOnAServerOfItsOwn(t *testing.T) {
	t.Parallel()
	a, b := twoServers(t)
	onA, onB := a.Open(t), b.Open(t)
	for _, m := range sessionModes {
		db, move := moving(t, a)
		c := m.on(t, db, sessionTTL) // whose connection for tokens is on a
		r := noted("k " + m.name)
		old, first := c.take(t, r)
		before := [2]int{terms(t, onA), terms(t, onB)}
		move(b)
		next := noted("n " + m.name)
		_, res := c.take(t, next)
		if got := [2]int{terms(t, onA), terms(t, onB)}; got != [2]int{before[0], before[1] + 1} {
			t.Errorf("%s: the term of a lock on b (token %d) was written on the servers %v times, before %v", m.name, res.Version, got, before)
		}
		// The Locker has left a: what it has there somebody may have on b.
		if all, err := old.Renew(t.Context(), []driver.RenewRequest{renewalOf(r, first)}); err == nil {
			t.Errorf("%s: a session on the server that was left is renewed: %+v", m.name, all)
		}
		wantGone(t, old)
		giveBack(t, old)
	}
}

func TestATransactionOnAnotherServerIsRefusedOnAServerOfItsOwn(t *testing.T) {
	t.Parallel()
	a, b := twoServers(t)
	for _, m := range sessionModes {
		db, move := moving(t, a)
		c := m.on(t, db, sessionTTL)
		for _, db := range []*sql.DB{a.Open(t), b.Open(t)} { // as replication would have done
			mustExec(t, db, `INSERT INTO sqllock_pin (name) VALUES ('k') ON CONFLICT DO NOTHING`)
		}
		for _, shared := range []bool{false, true} {
			req := driver.TxRequest{Name: "k", Shared: shared}
			there := mustBegin(t, b.Open(t))
			if status, err := c.TryTx(t.Context(), there, req); err != nil || status != driver.TxForeign {
				t.Errorf("%s, shared %v: a transaction on another server: %v, %v", m.name, shared, status, err)
			}
			_ = there.Rollback()
		}
		move(b) // from now on it is the primary
		there := mustBegin(t, b.Open(t))
		if status, err := c.TryTx(t.Context(), there, driver.TxRequest{Name: "k"}); err != nil || status != driver.TxTaken {
			t.Errorf("%s: a transaction on the primary: %v, %v", m.name, status, err)
		}
		_ = there.Rollback()
	}
}

func mustBegin(t *testing.T, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}
