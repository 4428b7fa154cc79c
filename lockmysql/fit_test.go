package lockmysql_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/lockmysql"
)

// hiding is a driver around that of MySQL, as programs use them for their metrics.
type hiding struct{ sqldriver.Connector }

func (h hiding) Connect(ctx context.Context) (sqldriver.Conn, error) {
	c, err := h.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return hidden{c.(conn)}, nil
}

type conn interface {
	sqldriver.Conn
	sqldriver.ExecerContext
	sqldriver.QueryerContext
}

type hidden struct{ conn }

func (f *fixture) hiding(t *testing.T) *sql.DB {
	t.Helper()
	cfg, err := mysql.ParseDSN(f.DSN())
	if err != nil {
		t.Fatal(err)
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(hiding{connector})
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestAConnectionThatCameBackInsideATransactionIsNotUsed(t *testing.T) {
	eachServer(t, func(t *testing.T, f *fixture) {
		other := f.Open(t)
		exec(t, other, "CREATE TABLE work (v INT)")
		for what, left := range map[string][]string{
			"begun":         {"BEGIN", "INSERT INTO work VALUES (1)"},
			"no autocommit": {"SET autocommit = 0"},
		} {
			for name, db := range map[string]*sql.DB{"go-sql-driver": f.Open(t), "a driver around it": f.hiding(t)} {
				if what == "no autocommit" && name != "go-sql-driver" {
					continue // it does not tell
				}
				t.Run(what+" through "+name, func(t *testing.T) {
					s, err := lockmysql.DB(db).OpenUnique(t.Context(), driver.Client{Instance: newID(), Label: "l"})
					if err != nil {
						t.Fatal(err)
					}
					defer func() { _ = s.Close() }()
					conn, err := db.Conn(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					for _, statement := range left {
						exec(t, conn, statement)
					}
					_ = conn.Close()
					r := request(what + name)
					if res, err := s.Acquire(t.Context(), []driver.AcquireRequest{r}); err != nil || !res[0].Granted {
						t.Fatalf("Grant: %v, %v", res, err)
					}
					var granted, work int
					err = other.QueryRow("SELECT (SELECT COUNT(*) FROM sqllock_lock WHERE acq = ?), (SELECT COUNT(*) FROM work)", r.Acq[:]).Scan(&granted, &work)
					if err != nil || granted != 1 || work != 0 {
						t.Errorf("others see %d grants, and %d rows of the application's transaction, %v", granted, work, err)
					}
				})
			}
		}
	})
}

func TestACompletionTypeThatChainsTransactionsIsRefused(t *testing.T) {
	eachServer(t, func(t *testing.T, f *fixture) {
		for _, kind := range []string{"1", "2"} {
			db := lockmysql.DB(f.Open(t, "completion_type="+kind))
			wants(t, openErr(t, db), driver.ErrUnsupported, "completion_type")
			for _, m := range sessionModes {
				_, err := m.open(db, t.Context(), driver.Client{Instance: newID()}, driver.SessionOptions{TTL: sessionTTL})
				wants(t, err, driver.ErrUnsupported, "completion_type")
			}
		}
	})
}
