package lockmysql_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockmysql"
)

func (m sessionMode) openErr(t *testing.T, db *sql.DB, ttl time.Duration, opts ...lockmysql.Option) error {
	t.Helper()
	s, err := m.open(lockmysql.DB(db, opts...), t.Context(), driver.Client{Instance: newID()}, driver.SessionOptions{TTL: ttl})
	if (s == nil) == (err == nil) {
		t.Errorf("store %v, error %v", s, err)
	}
	if s != nil {
		_ = s.Close()
	}
	return err
}

func TestWhatSessionsCannotWorkWithIsToldBeforeAnySQL(t *testing.T) {
	unreachable, err := sql.Open("mysql", "root@tcp(127.0.0.1:1)/x")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unreachable.Close() }()
	for _, m := range sessionModes {
		for _, conns := range []int{1, 2} {
			unreachable.SetMaxOpenConns(conns)
			wants(t, m.openErr(t, unreachable, sessionTTL), driver.ErrInvalidOption,
				"needs a pool of at least 3 connections: one is kept for tokens, each lock session takes one, the application needs one")
		}
		unreachable.SetMaxOpenConns(3)
		wants(t, m.openErr(t, unreachable, 1999*time.Millisecond), driver.ErrInvalidOption, "TTL", "2s")
		wants(t, m.openErr(t, unreachable, sessionTTL, lockmysql.TablePrefix("a-b")), driver.ErrInvalidOption, `"a-b"`)
		if err := m.openErr(t, unreachable, 2*time.Second); errors.Is(err, driver.ErrInvalidOption) {
			t.Errorf("two seconds and three connections: %v", err)
		}
	}
}

func TestNodesThatDoNotShareTheirLocksAreRefused(t *testing.T) {
	good := map[string]string{"wsrep_on": "OFF", "group_replication_single_primary_mode": "ON", "autocommit": "ON"}
	if err := lockmysql.JudgeNodes(good); err != nil {
		t.Error(err)
	}
	if err := lockmysql.JudgeNodes(map[string]string{"autocommit": "ON"}); err != nil {
		t.Error(err)
	}
	wants(t, lockmysql.JudgeNodes(map[string]string{"wsrep_on": "ON"}), driver.ErrUnsupported, "Galera", "mode unique")
	wants(t, lockmysql.JudgeNodes(map[string]string{"group_replication_single_primary_mode": "OFF"}), driver.ErrUnsupported, "mode unique")
}

func TestServersAndTablesThatDoNotFitSessionsAreRefused(t *testing.T) {
	eachMode(t, func(t *testing.T, f *fixture, m sessionMode) {
		wants(t, m.openErr(t, f.Open(t, "autocommit=0"), sessionTTL), driver.ErrUnsupported, "autocommit")
		wants(t, m.openErr(t, f.Open(t, f.variable(t, "read_only")+"=1"), sessionTTL), driver.ErrUnsupported, "read-only")
		empty := testdb.New(t, f.Engine()).Open(t)
		wants(t, m.openErr(t, empty, sessionTTL), driver.ErrSchema, "migrations.Up")

		db := f.Open(t)
		for _, table := range []string{"sqllock_term", "sqllock_pin"} {
			exec(t, db, "ALTER TABLE "+table+" ENGINE = MyISAM ROW_FORMAT = DEFAULT")
			wants(t, m.openErr(t, db, sessionTTL), driver.ErrUnsupported, "MyISAM", table)
			exec(t, db, "ALTER TABLE "+table+" ENGINE = InnoDB ROW_FORMAT = DYNAMIC")
			exec(t, db, "RENAME TABLE "+table+" TO elsewhere")
			wants(t, m.openErr(t, db, sessionTTL), driver.ErrSchema, table, "migrations.Up")
			exec(t, db, "RENAME TABLE elsewhere TO "+table)
		}
		if err := m.openErr(t, db, sessionTTL); err != nil {
			t.Error(err)
		}
	})
}

// pooler is what gives a client any of its connections to the server for each
// statement.
type pooler struct{ sqldriver.Connector }

func (p pooler) Connect(ctx context.Context) (sqldriver.Conn, error) {
	s := &spread{}
	for range 2 {
		c, err := p.Connector.Connect(ctx)
		if err != nil {
			return nil, err
		}
		s.conns = append(s.conns, c)
	}
	return s, nil
}

type spread struct {
	conns []sqldriver.Conn
	next  int
}

func (s *spread) conn() sqldriver.Conn {
	s.next++
	return s.conns[s.next%len(s.conns)]
}

func (s *spread) Prepare(query string) (sqldriver.Stmt, error) { return s.conn().Prepare(query) }
func (s *spread) Begin() (sqldriver.Tx, error)                 { return nil, errors.New("not here") }

func (s *spread) Close() error {
	return errors.Join(s.conns[0].Close(), s.conns[1].Close())
}

func TestWhatMovesASessionBetweenConnectionsIsRefused(t *testing.T) {
	eachMode(t, func(t *testing.T, f *fixture, m sessionMode) {
		cfg, err := mysql.ParseDSN(f.DSN())
		if err != nil {
			t.Fatal(err)
		}
		connector, err := mysql.NewConnector(cfg)
		if err != nil {
			t.Fatal(err)
		}
		db := sql.OpenDB(pooler{connector})
		defer func() { _ = db.Close() }()
		wants(t, m.openErr(t, db, sessionTTL), driver.ErrUnsupported, "CONNECTION_ID()", "mode unique")
	})
}

// settings are those of a session, as text.
func settings(t *testing.T, conn *sql.Conn) string {
	t.Helper()
	rows, err := conn.QueryContext(t.Context(), `SHOW SESSION VARIABLES WHERE Variable_name NOT IN ('timestamp', 'pseudo_thread_id', 'rand_seed1',
		'rand_seed2', 'last_insert_id', 'identity', 'insert_id', 'error_count', 'warning_count', 'statement_id') AND Variable_name NOT LIKE '%gtid%'`)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var all []string
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			t.Fatal(err)
		}
		all = append(all, name+" = "+value)
	}
	return strings.Join(all, "\n")
}

func TestAConnectionComesBackAsItWas(t *testing.T) {
	eachMode(t, func(t *testing.T, f *fixture, m sessionMode) {
		db := f.Open(t, "innodb_lock_wait_timeout=7", "wait_timeout=1234")
		db.SetMaxOpenConns(3)
		every := func(do func(*sql.Conn)) {
			t.Helper()
			var conns []*sql.Conn
			for range 3 {
				conn, err := db.Conn(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				conns = append(conns, conn)
			}
			for _, conn := range conns {
				do(conn)
				_ = conn.Close()
			}
		}
		db.SetMaxIdleConns(3)
		before := ""
		ids := map[int64]bool{}
		id := func(conn *sql.Conn) (id int64) {
			if err := conn.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id); err != nil {
				t.Fatal(err)
			}
			return id
		}
		every(func(conn *sql.Conn) { before, ids[id(conn)] = settings(t, conn), true })

		s, err := m.open(lockmysql.DB(db), t.Context(), driver.Client{Instance: newID(), Label: "l"}, driver.SessionOptions{TTL: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		c := &client{SessionStore: s, db: db}
		r := request("k")
		held, res := c.lock(t, r)
		unlock(t, held, r, res)
		giveBack(t, held)
		if m.name == forUpdate.name {
			for _, name := range []string{"x", "y"} {
				if err := s.PrepareTx(t.Context(), driver.TxRequest{Name: name}); err != nil {
					t.Error(err)
				}
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		every(func(conn *sql.Conn) {
			if !ids[id(conn)] {
				t.Error("a connection was ended that held nothing")
			}
			if after := settings(t, conn); after != before {
				t.Errorf("the settings have changed from\n%s\nto\n%s", before, after)
			}
			var released sql.NullInt64
			if err := conn.QueryRowContext(t.Context(), "SELECT RELEASE_ALL_LOCKS()").Scan(&released); err != nil || released.Int64 != 0 {
				t.Errorf("%d locks were left, %v", released.Int64, err)
			}
		})
	})
}

func TestASessionThatHoldsALockIsEndedByClose(t *testing.T) {
	eachMode(t, func(t *testing.T, f *fixture, m sessionMode) {
		a, b := m.client(t, f), m.client(t, f)
		r := request("k")
		s, _ := a.lock(t, r)
		giveBack(t, s)
		_, res := b.eventuallyGets(t, request("k"), 5*time.Second)
		if res.Crashed.Acq != r.Acq {
			t.Errorf("%+v", res)
		}
	})
}

func TestACallThatIsCutShortEndsTheSession(t *testing.T) {
	eachMode(t, func(t *testing.T, f *fixture, m sessionMode) {
		a, b := m.client(t, f), m.client(t, f)
		r := request("k")
		s, res := a.lock(t, r)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Renew(ctx, []driver.RenewRequest{{Name: "k", Acq: r.Acq, Version: res.Version}}); err == nil || !closed(s) {
			t.Errorf("%v; known to be gone: %v", err, closed(s))
		}
		giveBack(t, s)
		b.eventuallyGets(t, request("k"), 5*time.Second)
	})
}

func TestAPoolThatIsUsedUpIsTold(t *testing.T) {
	eachMode(t, func(t *testing.T, f *fixture, m sessionMode) {
		db := f.Open(t)
		db.SetMaxOpenConns(3)
		c := m.on(t, db, sessionTTL)
		if c.Info().MaxConns != 3 {
			t.Errorf("%+v", c.Info())
		}
		r := request("k")
		s, res := c.lock(t, r)
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := c.Session(ctx); !errors.Is(err, driver.ErrNoConnection) || c.Classify(err) != driver.Unreachable {
			t.Errorf("Session: %v", err)
		}
		if row := lookSession(t, c, "k"); row.Holder.Acq != r.Acq {
			t.Errorf("%+v", row)
		}
		if status := pings(t, s, r, res); status != driver.Renewed {
			t.Errorf("%v", status)
		}
		unlock(t, s, r, res)
	})
}

func TestASessionNeedsNoMoreThanTheTables(t *testing.T) {
	eachMode(t, func(t *testing.T, f *fixture, m sessionMode) {
		admin := f.Open(t)
		cfg, err := mysql.ParseDSN(f.DSN())
		if err != nil {
			t.Fatal(err)
		}
		cfg.User, cfg.Passwd = "role_"+cfg.DBName[len(cfg.DBName)-12:], "Secret-7"
		exec(t, admin, "CREATE USER "+cfg.User+" IDENTIFIED BY 'Secret-7'")
		t.Cleanup(func() { exec(t, admin, "DROP USER "+cfg.User) })
		for _, table := range []string{"lock", "term", "pin"} {
			exec(t, admin, fmt.Sprintf("GRANT SELECT, INSERT, UPDATE, DELETE ON `sqllock_%s` TO %s", table, cfg.User))
		}
		exec(t, admin, "GRANT SELECT ON `sqllock_meta` TO "+cfg.User)
		connector, err := mysql.NewConnector(cfg)
		if err != nil {
			t.Fatal(err)
		}
		db := sql.OpenDB(connector)
		t.Cleanup(func() { _ = db.Close() })
		c := m.on(t, db, sessionTTL)
		r := request("k")
		s, res := c.lock(t, r)
		c.wantDenied(t, sharedRequest("k"))
		tx := begin(t, db, sql.LevelDefault)
		if status, err := c.Guard(t.Context(), tx, guardRequest(s, r, res)); err != nil || status != driver.Guarded {
			t.Errorf("Guard: %v, %v", status, err)
		}
		if err := tx.Commit(); err != nil {
			t.Error(err)
		}
		if mine, err := c.Turn(t.Context(), time.Minute); err != nil || !mine {
			t.Errorf("Turn: %v, %v", mine, err)
		}
		unlock(t, s, r, res)
		age(t, admin)
		if got, err := c.Sweep(t.Context(), driver.SweepRequest{Limit: 10, Retention: time.Hour}); err != nil || got.Purged != 1 {
			t.Errorf("Sweep: %+v, %v", got, err)
		}
	})
}
