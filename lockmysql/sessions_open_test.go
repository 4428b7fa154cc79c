package lockmysql_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
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
	t.Parallel()
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
	t.Parallel()
	good := map[string]string{"wsrep_on": "OFF", "group_replication_single_primary_mode": "ON", "autocommit": "ON"}
	if err := lockmysql.JudgeNodes(good); err != nil {
		t.Error(err)
	}
	if err := lockmysql.JudgeNodes(map[string]string{"autocommit": "ON"}); err != nil {
		t.Error(err)
	}
	wants(t, lockmysql.JudgeNodes(map[string]string{"wsrep_on": "ON"}), driver.ErrUnsupported, "Galera", "unique mode")
	wants(t, lockmysql.JudgeNodes(map[string]string{"group_replication_single_primary_mode": "OFF"}), driver.ErrUnsupported, "one primary")
}

func TestServersAndTablesThatDoNotFitSessionsAreRefused(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
		wants(t, m.openErr(t, db, sessionTTL), driver.ErrUnsupported, "CONNECTION_ID()", "unique mode")
	})
}
