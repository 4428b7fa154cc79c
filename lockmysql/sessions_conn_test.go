package lockmysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/lockmysql"
)

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
	t.Parallel()
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
		c.wantDenied(t, request("k"))
		c.wantDenied(t, sharedRequest("k"))
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
		if mine, err := c.SweepDue(t.Context(), time.Minute); err != nil || !mine {
			t.Errorf("SweepDue: %v, %v", mine, err)
		}
		unlock(t, s, r, res)
		age(t, admin)
		if got, err := c.Sweep(t.Context(), driver.SweepRequest{Limit: 10, Retention: time.Hour}); err != nil || got.Purged != 1 {
			t.Errorf("Sweep: %+v, %v", got, err)
		}
	})
}
