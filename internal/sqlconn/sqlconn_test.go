package sqlconn_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"runtime"
	"testing"

	"github.com/sqllock/sqllock/internal/sqlconn"
)

// broken is a connector whose connections turn out to be broken at the end of a
// transaction.
type broken struct{}

func (broken) Connect(context.Context) (driver.Conn, error) { return broken{}, nil }
func (broken) Driver() driver.Driver                        { return nil }
func (broken) Prepare(string) (driver.Stmt, error)          { return nil, errors.ErrUnsupported }
func (broken) Begin() (driver.Tx, error)                    { return broken{}, nil }
func (broken) Commit() error                                { return driver.ErrBadConn }
func (broken) Rollback() error                              { return driver.ErrBadConn }
func (broken) Close() error                                 { return nil }

// What database/sql does in a goroutine of its own cannot be waited for: whoever uses
// a connection after a transaction whose context has ended does so in any moment of it.
func TestAConnectionThatIsClosedUnderItsUserDoesNotPanic(t *testing.T) {
	db := sql.OpenDB(broken{})
	defer func() { _ = db.Close() }()
	for what, use := range map[string]func(*sql.Conn){
		"Destroy": func(conn *sql.Conn) { sqlconn.Destroy(conn, nil) },
		"AfterTx": func(conn *sql.Conn) {
			_ = sqlconn.AfterTx(conn, func() error { return conn.QueryRowContext(context.Background(), "x").Err() })
			_ = conn.Close()
		},
		"Do": func(conn *sql.Conn) {
			kept := (&sqlconn.Pool{DB: db}).Keep(nil)
			_ = kept.Do(t.Context(), func(_ context.Context, conn *sql.Conn) error {
				ctx, cancel := context.WithCancel(t.Context())
				_, err := conn.BeginTx(ctx, nil)
				if cancel(); err != nil {
					return err
				}
				for err == nil {
					err = conn.PingContext(t.Context())
				}
				return err
			})
			_ = kept.Close()
			_ = conn.Close()
		},
	} {
		t.Run(what, func(t *testing.T) {
			for range 5_000 {
				conn, err := db.Conn(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				if _, err := conn.BeginTx(ctx, nil); err != nil {
					t.Fatal(err)
				}
				cancel()
				use(conn)
			}
		})
	}
}

func TestAPanicOfWhoUsesAConnectionIsNotSwallowed(t *testing.T) {
	db := sql.OpenDB(broken{})
	defer func() { _ = db.Close() }()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	defer func() {
		if p := recover(); p != "a bug" {
			t.Errorf("recovered %v", p)
		}
	}()
	_ = sqlconn.AfterTx(conn, func() error { panic("a bug") })
}

// The application may recover what a driver panics with. Then a transaction may be open on the
// connection, and the pool has to have room for another one.
func TestAConnectionWhoseUserPanicsOrEndsItsGoroutineIsEnded(t *testing.T) {
	ends := map[string]func(){"panic": func() { panic("a bug") }, "Goexit": runtime.Goexit}
	for what, end := range ends {
		for source, use := range map[string]func(p *sqlconn.Pool, fn func(context.Context, *sql.Conn) error){
			"pool": func(p *sqlconn.Pool, fn func(context.Context, *sql.Conn) error) { _ = p.Do(t.Context(), fn) },
			"kept": func(p *sqlconn.Pool, fn func(context.Context, *sql.Conn) error) { _ = p.Keep(nil).Do(t.Context(), fn) },
			"reserved": func(p *sqlconn.Pool, fn func(context.Context, *sql.Conn) error) {
				r, err := p.Reserve(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				defer func() { _ = r.Close() }()
				_ = r.Do(t.Context(), fn)
			},
		} {
			t.Run(what+" "+source, func(t *testing.T) {
				db := sql.OpenDB(broken{})
				defer func() { _ = db.Close() }()
				db.SetMaxOpenConns(1)
				p := &sqlconn.Pool{DB: db}
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { _ = recover() }()
					use(p, func(context.Context, *sql.Conn) error {
						end()
						return nil
					})
				}()
				<-done
				if open := db.Stats().OpenConnections; open != 0 {
					t.Errorf("%d connections are open", open)
				}
			})
		}
	}
}
