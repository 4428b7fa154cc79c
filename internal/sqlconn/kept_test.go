package sqlconn_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/sqlconn"
)

// dialled is a connector that fails as long as it is told to, and takes a second.
type dialled struct {
	broken
	fails atomic.Bool
}

var errDial = errors.New("nobody listens")

func (d *dialled) Connect(ctx context.Context) (sqldriver.Conn, error) {
	time.Sleep(time.Second)
	if d.fails.Load() {
		return nil, errDial
	}
	return broken{}, ctx.Err()
}

// keep returns a pool of two connections, of which one is kept.
func keep(t *testing.T) (*sql.DB, *dialled, *sqlconn.Kept) {
	d := new(dialled)
	db := sql.OpenDB(d)
	db.SetMaxOpenConns(2)
	kept := (&sqlconn.Pool{DB: db}).Keep(nil)
	if err := use(kept, time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	return db, d, kept
}

// use calls Do with a function that returns err.
func use(kept *sqlconn.Kept, timeout time.Duration, err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return kept.Do(ctx, func(context.Context, *sql.Conn) error { return err })
}

// full has the connection that is kept die in a pool that gives no other before the
// returned one is closed.
func full(t *testing.T, db *sql.DB, kept *sqlconn.Kept) *sql.Conn {
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	died := errors.New("it died")
	if err := use(kept, time.Minute, died); !errors.Is(err, died) {
		t.Fatal(err)
	}
	return conn
}

func wantInUse(t *testing.T, db *sql.DB, want int) {
	t.Helper()
	if n := db.Stats().InUse; n != want {
		t.Errorf("%d connections are in use, want %d", n, want)
	}
}

func TestCallsDoNotWaitForAConnectionThatTheirCallersMayHave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, _, kept := keep(t)
		conn := full(t, db, kept)
		for _, most := range []time.Duration{time.Second, 10 * time.Millisecond, 10 * time.Millisecond} {
			began := time.Now()
			if err := use(kept, time.Minute, nil); !errors.Is(err, driver.ErrNoConnection) {
				t.Errorf("Do = %v", err)
			}
			if took := time.Since(began); took > most {
				t.Errorf("Do took %v, want %v at most", took, most)
			}
		}
		time.Sleep(time.Hour) // it is asked for all the same
		_ = conn.Close()
		synctest.Wait()
		wantInUse(t, db, 1)
		if err := use(kept, time.Minute, nil); err != nil {
			t.Errorf("Do = %v when there is a connection", err)
		}
		wantInUse(t, db, 1)
		if err := kept.Close(); err != nil {
			t.Error(err)
		}
		wantInUse(t, db, 0)
		_ = db.Close()
	})
}

// A pool of pgx is not exhausted while a connection goes from one caller to another.
func TestAPoolThatIsExhaustedButForAMomentIsLookedAtAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := sql.OpenDB(new(dialled))
		db.SetMaxOpenConns(2)
		began := time.Now()
		kept := (&sqlconn.Pool{DB: db, Full: func() bool { return time.Since(began)%(100*time.Millisecond) != 0 }}).Keep(nil)
		if err := use(kept, time.Minute, nil); err != nil {
			t.Fatal(err)
		}
		conn := full(t, db, kept)
		began = time.Now()
		if err := use(kept, time.Minute, nil); !errors.Is(err, driver.ErrNoConnection) {
			t.Errorf("Do = %v", err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("Do took %v", took)
		}
		if err := kept.Close(); err != nil {
			t.Error(err)
		}
		_ = conn.Close()
		_ = db.Close()
	})
}

func TestCloseEndsTheSearchForAConnection(t *testing.T) {
	for what, found := range map[string]bool{"that goes on": false, "that has found one": true} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db, _, kept := keep(t)
				conn := full(t, db, kept)
				if err := use(kept, time.Minute, nil); !errors.Is(err, driver.ErrNoConnection) {
					t.Errorf("Do = %v", err)
				}
				if found {
					_ = conn.Close()
					synctest.Wait()
				}
				wantInUse(t, db, 1)
				if err := kept.Close(); err != nil {
					t.Error(err)
				}
				_ = conn.Close()
				synctest.Wait()
				wantInUse(t, db, 0)
				if err := use(kept, time.Minute, nil); !errors.Is(err, sql.ErrConnDone) {
					t.Errorf("Do = %v after Close", err)
				}
				_ = db.Close()
			})
		})
	}
}

func TestACallDoesNotGetTheErrorOfAnEarlierSearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, d, kept := keep(t)
		d.fails.Store(true)
		_ = use(kept, time.Minute, errors.New("it died"))
		err, dial := use(kept, 10*time.Millisecond, nil), new(net.OpError)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &dial) || dial.Op != "dial" {
			t.Errorf("Do = %v, which does not say that nothing was sent", err)
		}
		time.Sleep(time.Hour)
		d.fails.Store(false)
		if err := use(kept, time.Minute, nil); err != nil {
			t.Errorf("Do = %v", err)
		}
		if err := kept.Close(); err != nil {
			t.Error(err)
		}
		_ = db.Close()
	})
}

func TestTheFirstConnectionIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := sql.OpenDB(new(dialled))
		db.SetMaxOpenConns(1)
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(10*time.Second, func() { _ = conn.Close() })
		kept := (&sqlconn.Pool{DB: db}).Keep(nil)
		if err := use(kept, time.Minute, nil); err != nil {
			t.Errorf("Do = %v", err)
		}
		if err := kept.Close(); err != nil {
			t.Error(err)
		}
		_ = db.Close()
	})
}
