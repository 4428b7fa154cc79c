package sqlconn_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock/internal/sqlconn"
)

// frozen is a database that answers nobody who connects while its network is frozen.
type frozen struct {
	broken
	network      atomic.Value // of chan struct{}, which is closed when it is not frozen, or not any more
	begun, ended atomic.Int32 // connections
}

func newFrozen() (d *frozen, thaw func()) {
	d = new(frozen)
	return d, d.freeze()
}

// freeze returns a function that ends it for those who connect meanwhile, too.
func (d *frozen) freeze() (thaw func()) {
	network := make(chan struct{})
	d.network.Store(network)
	return func() { close(network) }
}

func (d *frozen) Connect(context.Context) (driver.Conn, error) {
	d.begun.Add(1)
	<-d.network.Load().(chan struct{})
	return &frozenConn{d: d}, nil
}

type frozenConn struct {
	broken
	d *frozen
}

func (c *frozenConn) Close() error {
	c.d.ended.Add(1)
	return nil
}

// try calls Do with a context that ends after a second.
func try(p *sqlconn.Pool) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return p.Do(ctx, func(context.Context, *sql.Conn) error { return nil })
}

func wantDeadline(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Do = %v", err)
	}
}

func TestRetriesOnAFrozenNetworkDoNotOpenAConnectionEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, thaw := newFrozen()
		db := sql.OpenDB(d)
		p := &sqlconn.Pool{DB: db, Unsure: true, Late: true}
		began := time.Now()
		for time.Since(began) < 8*time.Second {
			wantDeadline(t, try(p))
		}
		if n := d.begun.Load(); n != 1 {
			t.Errorf("%d connections were begun by retries, want 1", n)
		}
		for time.Since(began) < time.Hour {
			wantDeadline(t, try(p))
		}
		if n := d.begun.Load(); n < 2 || n > 10 {
			t.Errorf("%d connections were begun in an hour, want a few", n)
		}
		thaw()
		synctest.Wait()
		if err := try(p); err != nil {
			t.Errorf("Do = %v when the network is back", err)
		}
		wantInUse(t, db, 0)
		_ = db.Close()
		synctest.Wait()
		if begun, ended := d.begun.Load(), d.ended.Load(); begun != ended {
			t.Errorf("%d connections were opened and %d closed", begun, ended)
		}
	})
}

func TestAConnectionThatComesAfterThePoolIsClosedIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, thaw := newFrozen()
		db := sql.OpenDB(d)
		p := &sqlconn.Pool{DB: db, Unsure: true, Late: true}
		wantDeadline(t, try(p))
		_ = db.Close()
		thaw()
		synctest.Wait()
		if begun, ended := d.begun.Load(), d.ended.Load(); begun != 1 || ended != 1 {
			t.Errorf("%d connections were opened and %d closed, want 1", begun, ended)
		}
	})
}

func TestIdleConnectionsAreUsedWhileAnotherIsBeingOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, thaw := newFrozen()
		thaw()
		db := sql.OpenDB(d)
		p := &sqlconn.Pool{DB: db, Unsure: true, Late: true}
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		thaw = d.freeze()
		wantDeadline(t, try(p))
		time.AfterFunc(500*time.Millisecond, func() { _ = conn.Close() })
		for range 3 {
			if err := try(p); err != nil {
				t.Errorf("Do = %v while a connection is idle", err)
			}
		}
		if n := d.begun.Load(); n != 2 {
			t.Errorf("%d connections were begun, want 2", n)
		}
		thaw()
		synctest.Wait()
		_ = db.Close()
	})
}

func TestAConnectionThatIsNeverOpenedDoesNotKeepOthersFromIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, thawFirst := newFrozen()
		db := sql.OpenDB(d)
		db.SetMaxIdleConns(-1) // each call opens one
		p := &sqlconn.Pool{DB: db, Unsure: true, Late: true}
		wantDeadline(t, try(p))
		d.freeze()()
		time.Sleep(time.Minute)
		for i := range 3 {
			if err := try(p); err != nil {
				t.Errorf("%d: Do = %v", i, err)
			}
		}
		thawFirst()
		synctest.Wait()
		_ = db.Close()
	})
}
