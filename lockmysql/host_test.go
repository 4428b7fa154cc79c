package lockmysql_test

import (
	"context"
	"database/sql"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
)

// pair is a primary and a replica, which has the primary's rows, behind one address.
type pair struct {
	a, b *fixture
	to   atomic.Pointer[string] // where new connections lead
}

func newPair(t *testing.T, engine string) *pair {
	t.Helper()
	p := &pair{a: &fixture{testdb.StartServer(t, engine).Database}, b: &fixture{testdb.StartServer(t, engine).Database}}
	p.a.migrate(t)
	p.b.migrate(t)
	var id string
	if err := p.a.Open(t).QueryRow("SELECT HEX(id) FROM sqllock_meta").Scan(&id); err != nil {
		t.Fatal(err)
	}
	exec(t, p.b.Open(t), "UPDATE sqllock_meta SET id = UNHEX(?)", id)
	for _, f := range []*fixture{p.a, p.b} {
		db := f.Open(t)
		exec(t, db, "INSERT INTO sqllock_pin (name) VALUES (UNHEX(CONCAT('00', ?))), ('k')", id)
		exec(t, db, "CREATE USER "+ordinary+" IDENTIFIED BY '"+password+"'")
		exec(t, db, "GRANT SELECT, INSERT, UPDATE, DELETE ON `"+p.config(t).DBName+"`.* TO "+ordinary)
	}
	p.lead(p.a)
	return p
}

// ordinary is an account that may not write to a server that is read-only.
const ordinary, password = "ordinary", "Secret-7"

// config is how both servers are reached by the account of the tests.
func (p *pair) config(t *testing.T) *mysql.Config {
	t.Helper()
	cfg, err := mysql.ParseDSN(p.a.DSN())
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func (p *pair) lead(f *fixture) {
	addr := f.Addr()
	p.to.Store(&addr)
}

// open opens a handle on the address, which keeps no idle connection.
func (p *pair) open(t *testing.T) *sql.DB {
	t.Helper()
	return p.openAs(t, p.config(t))
}

// openOrdinary is open for an account that may not write to a server that is read-only.
func (p *pair) openOrdinary(t *testing.T) *sql.DB {
	t.Helper()
	cfg := p.config(t)
	cfg.User, cfg.Passwd = ordinary, password
	return p.openAs(t, cfg)
}

func (p *pair) openAs(t *testing.T, cfg *mysql.Config) *sql.DB {
	t.Helper()
	cfg.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, *p.to.Load())
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxIdleConns(0)
	return db
}

// demote makes a server read-only until the test ends.
func demote(t *testing.T, f *fixture) {
	t.Helper()
	exec(t, f.Open(t), "SET GLOBAL read_only = 1")
	t.Cleanup(func() { exec(t, f.Open(t), "SET GLOBAL read_only = 0") })
}

// terms counts what a server knows of an acquisition.
func terms(t *testing.T, f *fixture, r driver.AcquireRequest) (n int) {
	t.Helper()
	if err := f.Open(t).QueryRow("SELECT COUNT(*) FROM sqllock_term WHERE acq = ?", r.Acq[:]).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// The account of the tests may write to a read-only server: it is not by an error that
// the demotion shows. An ordinary account gets an error for what it writes.
func TestATermHasOneServerThatMayBeWrittenTo(t *testing.T) {
	t.Parallel()
	for _, engine := range testdb.Startable() {
		if engine == testdb.Postgres {
			continue
		}
		p := newPair(t, engine)
		for _, m := range sessionModes {
			t.Run(engine+" "+m.name, func(t *testing.T) { p.testSessions(t, m) })
		}
		t.Run(engine+" in transactions", p.testTransactions)
	}
}

func (p *pair) testSessions(t *testing.T, m sessionMode) {
	t.Run("a session ends when its server is demoted", func(t *testing.T) {
		p.lead(p.a)
		c := m.on(t, p.open(t), sessionTTL)
		r := request("k")
		s, res := c.lock(t, r)
		demote(t, p.a)
		_, err := s.Renew(t.Context(), []driver.RenewRequest{{Name: "k", Acq: r.Acq, Version: res.Version, TTL: sessionTTL, Holds: 1}})
		if err == nil || !closed(s) || c.Classify(err) != driver.Unreachable {
			t.Errorf("Renew on a server that was demoted: %v; the session has ended: %v", err, closed(s))
		}
		if _, err := c.Session(t.Context()); c.Classify(err) != driver.Unreachable {
			t.Errorf("another session on it: %v", err)
		}
		p.lead(p.b)
		r = request("k")
		if _, res := c.eventuallyGets(t, r, 10*time.Second); terms(t, p.b, r) != 1 {
			t.Errorf("on the new primary: %+v", res)
		}
	})
	mode := map[string]int{forUpdate.name: 2, advisory.name: 3}[m.name]
	t.Run("the lock and its token are of one server", func(t *testing.T) {
		p.lead(p.a)
		c := m.on(t, p.open(t), sessionTTL) // and keeps a connection to it
		p.lead(p.b)
		for _, shared := range []bool{false, true} {
			r := request("one server")
			r.Shared = shared
			s, res := c.eventuallyGets(t, r, 10*time.Second)
			var version int64
			err := p.b.Open(t).QueryRow("SELECT version FROM sqllock_term WHERE mode = ? AND name = 'one server'", mode).Scan(&version)
			if err != nil || version != res.Version {
				t.Errorf("the lock with token %d is on a server whose last token is %d, %v", res.Version, version, err)
			}
			unlock(t, s, r, res)
			giveBack(t, s)
		}
	})
	t.Run("a guard is where the session is", func(t *testing.T) {
		p.lead(p.a)
		c := m.on(t, p.open(t), sessionTTL)
		r := request("guarded")
		_, res := c.lock(t, r)
		exec(t, p.b.Open(t), "REPLACE INTO sqllock_term (mode, name, acq, version, lock_key, pid) SELECT ?, 'guarded', ?, ?, 'k', 1",
			mode, r.Acq[:], res.Version)
		for _, on := range []*fixture{p.a, p.b} {
			tx := begin(t, on.Open(t), sql.LevelDefault)
			status, err := c.Guard(t.Context(), tx, driver.GuardRequest{Name: r.Name, Acq: r.Acq, Version: res.Version})
			if err != nil || (status == driver.Guarded) != (on == p.a) {
				t.Errorf("Guard on the server of the session: %v, says %v, %v", on == p.a, status, err)
			}
			_ = tx.Rollback()
		}
	})
}

func (p *pair) testTransactions(t *testing.T) {
	for name, req := range map[string]driver.TxRequest{"alone": {Name: "k"}, "shared": {Name: "k", Shared: true}} {
		t.Run(name, func(t *testing.T) { p.testTransaction(t, req, p.open) })
		t.Run(name+", by an ordinary account", func(t *testing.T) { p.testTransaction(t, req, p.openOrdinary) })
	}
	t.Run("the connection that draws tokens leaves a server that was demoted", p.testDemotion)
}

func (p *pair) testTransaction(t *testing.T, req driver.TxRequest, open func(*testing.T) *sql.DB) {
	p.lead(p.a)
	db := open(t)
	c := forUpdate.on(t, db, sessionTTL)
	if err := c.PrepareTx(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	status, err := c.TryTx(t.Context(), begin(t, p.b.Open(t), sql.LevelDefault), req)
	if err != nil || status != driver.TxForeign {
		t.Errorf("in a transaction on another server: %v, %v", status, err)
	}
	t.Run("on a replica", func(t *testing.T) {
		demote(t, p.b)
		_, err := c.TryTx(t.Context(), begin(t, p.b.Open(t), sql.LevelDefault), req)
		wants(t, err, driver.ErrUnsupported, "read-only")
	})
	p.lead(p.b) // a fail-over: the Locker leaves the former primary
	if status, err := c.TryTx(t.Context(), begin(t, db, sql.LevelDefault), req); err != nil || status != driver.TxTaken {
		t.Errorf("in a transaction on the new primary: %v, %v", status, err)
	}
	p.wantDraw(t, c, "k")
}

// wantDraw checks that a token is drawn on the new primary.
func (p *pair) wantDraw(t *testing.T, c *client, name string) {
	t.Helper()
	drawn, err := c.Draw(t.Context(), request(name))
	var version int64
	if err == nil {
		err = p.b.Open(t).QueryRow("SELECT version FROM sqllock_term WHERE mode = 2 AND name = ?", name).Scan(&version)
	}
	if err != nil || version != drawn.Version {
		t.Errorf("token %d, %v; the last of the new primary is %d", drawn.Version, err, version)
	}
}

// A lock in a transaction needs the row of its name. To make it is the first statement on the former
// primary, and its error alone shows the demotion.
func (p *pair) testDemotion(t *testing.T) {
	p.lead(p.a)
	c := forUpdate.on(t, p.openOrdinary(t), sessionTTL)
	demote(t, p.a)
	req := driver.TxRequest{Name: "new"}
	if err := c.PrepareTx(t.Context(), req); c.Classify(err) != driver.Unreachable {
		t.Errorf("PrepareTx on a server that was demoted: %v", err)
	}
	p.lead(p.b)
	if err := c.PrepareTx(t.Context(), req); err != nil {
		t.Errorf("PrepareTx when there is a new primary: %v", err)
	}
	var pins int
	if err := p.b.Open(t).QueryRow("SELECT COUNT(*) FROM sqllock_pin WHERE name = 'new'").Scan(&pins); err != nil || pins != 1 {
		t.Errorf("the new primary has %d rows of the name, %v", pins, err)
	}
	p.wantDraw(t, c, "new")
}
