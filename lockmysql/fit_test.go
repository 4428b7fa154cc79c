package lockmysql_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock"
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

// The reserved connection is idle for a third of the TTL, which may be longer than the server, or what
// stands before it, lets one be. The client looks before it sends.
func TestAConnectionThatIsClosedWhileItIsIdleCostsNoLockAndNoJeopardy(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		relay := newRelay(t, f.Addr())
		var last atomic.Value
		locks, err := sqllock.NewUnique(t.Context(), lockmysql.DB(f.OpenVia(t, relay.Addr().String())), &sqllock.UniqueOptions{
			TTL: 30 * time.Second, Reaper: &sqllock.ReaperOptions{Off: true},
			Hooks: &sqllock.Hooks{Jeopardy: func(e sqllock.JeopardyEvent) { last.Store(e.Err) }},
		})
		if err != nil {
			t.Fatal(err)
		}
		held, err := locks.Lock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(1500 * time.Millisecond)
		relay.closeAll()
		time.Sleep(100 * time.Millisecond)
		other, err := locks.TryLock(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(1100 * time.Millisecond)
		relay.closeAll()
		time.Sleep(10 * time.Second) // they are renewed meanwhile
		if err := last.Load(); err != nil {
			t.Errorf("jeopardy: %v", err)
		}
		if err := errors.Join(other.Unlock(t.Context()), held.Unlock(t.Context()), locks.Close(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// relay forwards connections to a server, and closes them in order, without a reset.
type relay struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func newRelay(t *testing.T, target string) *relay {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{Listener: l}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			r.mu.Lock()
			r.conns = append(r.conns, client)
			r.mu.Unlock()
			running.Go(func() { _, _ = io.Copy(server, client); _ = server.Close() })
			running.Go(func() { _, _ = io.Copy(client, server); _ = client.Close() })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		r.closeAll()
		running.Wait()
	})
	return r
}

func (r *relay) closeAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.conns = nil
}
