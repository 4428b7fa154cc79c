package sqlconn_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/sqlconn"
)

func sources(t *testing.T, p *sqlconn.Pool) map[string]sqlconn.Source {
	t.Helper()
	reserved, err := p.Reserve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = reserved.Close() })
	return map[string]sqlconn.Source{"pool": p, "kept": p.Keep(nil), "reserved": reserved}
}

func TestABrokenConnectionOfAnUnknownDriverSaysNothingOfItsStatement(t *testing.T) {
	for _, unsure := range []bool{false, true} {
		db := sql.OpenDB(broken{})
		defer func() { _ = db.Close() }()
		for name, source := range sources(t, &sqlconn.Pool{DB: db, Unsure: unsure}) {
			calls := 0
			err := source.Do(t.Context(), func(context.Context, *sql.Conn) error {
				calls++
				return errors.Join(driver.ErrBadConn, context.Canceled)
			})
			if errors.Is(err, driver.ErrBadConn) == unsure || !errors.Is(err, context.Canceled) {
				t.Errorf("%s, unsure %v: %v", name, unsure, err)
			}
			if (calls == 1) != (unsure || name == "reserved") {
				t.Errorf("%s, unsure %v: called %d times", name, unsure, calls)
			}
		}
	}
}

func TestWhatChangesNothingIsRepeatedOnAnyDriver(t *testing.T) {
	db := sql.OpenDB(broken{})
	defer func() { _ = db.Close() }()
	calls := 0
	err := (&sqlconn.Pool{DB: db, Unsure: true}).Keep(nil).Do(t.Context(), func(context.Context, *sql.Conn) error {
		if calls++; calls == 1 {
			return sqlconn.Repeatable(context.Canceled)
		}
		return nil
	})
	if err != nil || calls != 2 {
		t.Errorf("called %d times, %v", calls, err)
	}
}

// noListener is a connection whose statements end only when it is closed.
type noListener struct {
	broken
	once   *sync.Once
	closed chan struct{}
}

func (d noListener) Connect(context.Context) (driver.Conn, error) {
	return noListener{once: new(sync.Once), closed: make(chan struct{})}, nil
}

func (d noListener) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	<-d.closed
	return nil, driver.ErrBadConn
}

func (d noListener) Close() error {
	if d.once != nil { // else it is the connector
		d.once.Do(func() { close(d.closed) })
	}
	return nil
}

func TestACallThatOutlivesItsContextHasItsConnectionClosed(t *testing.T) {
	db := sql.OpenDB(noListener{})
	defer func() { _ = db.Close() }()
	for name, source := range sources(t, &sqlconn.Pool{DB: db, Unsure: true, Late: true}) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		err := source.Do(ctx, func(ctx context.Context, conn *sql.Conn) error {
			_, err := conn.ExecContext(ctx, "x")
			return err
		})
		cancel()
		if err == nil || errors.Is(err, driver.ErrBadConn) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// slow is a database that answers nobody who connects, until it is told to.
type slow struct {
	broken
	began, answer, connected chan struct{}
}

func (d slow) Connect(context.Context) (driver.Conn, error) {
	close(d.began)
	<-d.answer
	close(d.connected)
	return noListener{once: new(sync.Once), closed: make(chan struct{})}, nil
}

func TestACallDoesNotWaitForAConnectionThatIsBeingOpened(t *testing.T) {
	for _, kept := range []bool{false, true} {
		d := slow{began: make(chan struct{}), answer: make(chan struct{}), connected: make(chan struct{})}
		db := sql.OpenDB(d)
		defer func() { _ = db.Close() }()
		db.SetMaxOpenConns(1)
		p := &sqlconn.Pool{DB: db, Unsure: true, Late: true}
		var source sqlconn.Source = p
		if kept {
			source = p.Keep(nil)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		returned := make(chan error, 1)
		go func() {
			returned <- source.Do(ctx, func(context.Context, *sql.Conn) error { return nil })
			_ = source.Close()
			close(returned)
		}()
		<-d.began
		cancel()
		select {
		case err := <-returned:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("kept %v: %v", kept, err)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("kept %v: it has not returned 20 s after its context ended", kept)
		}
		close(d.answer)
		<-returned
		<-d.connected
		if err := p.Do(t.Context(), func(context.Context, *sql.Conn) error { return nil }); err != nil { // there is one connection
			t.Errorf("kept %v: the connection that came late is lost: %v", kept, err)
		}
	}
}

func TestADriverIsKnownByItsPackage(t *testing.T) {
	db := sql.OpenDB(broken{})
	defer func() { _ = db.Close() }()
	if sqlconn.Known(db, "", "x") {
		t.Error("no driver is known")
	}
}
