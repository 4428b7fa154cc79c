package lockpg_test

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/lockpg"
)

// breaking is a connection that breaks when the answer to something that was written comes, if it
// is set to.
type breaking struct {
	net.Conn
	breaks *atomic.Bool
	wrote  atomic.Bool // since it is set to
}

func (c *breaking) Write(b []byte) (int, error) {
	if c.breaks.Load() {
		c.wrote.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *breaking) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && c.wrote.Load() && c.breaks.CompareAndSwap(true, false) {
		_ = c.Conn.Close()
		return 0, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	}
	return n, err
}

// brittle is a handle whose connections are breaking.
func brittle(t *testing.T, db string) (*sql.DB, *atomic.Bool) {
	t.Helper()
	config, err := pgx.ParseConfig(db)
	if err != nil {
		t.Fatal(err)
	}
	breaks := new(atomic.Bool)
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return &breaking{Conn: c, breaks: breaks}, err
	}
	handle := stdlib.OpenDB(*config)
	t.Cleanup(func() { _ = handle.Close() })
	return handle, breaks
}

// What was sent may have been done: it is neither repeated nor said to have had no effect.
func TestARequestWhoseAnswerIsLostIsNotTakenForUnsent(t *testing.T) {
	t.Parallel()
	server := withTables(t)
	for _, n := range []int{1, 3} {
		db, breaks := brittle(t, server.DSN())
		store := open(t, db)
		unclear := func(what string, err error) {
			t.Helper()
			if err == nil || lockpg.DB(db).Classify(err) != driver.Unclear || breaks.Load() {
				t.Errorf("%s of %d: %v, of the kind %v", what, n, err, lockpg.DB(db).Classify(err))
			}
		}
		requests := func(name string, from int) (reqs []driver.AcquireRequest) {
			for i := range n {
				reqs = append(reqs, request(fmt.Sprint(name, i), from+i, time.Minute))
			}
			return reqs
		}
		frees := func(reqs []driver.AcquireRequest) (frees []driver.ReleaseRequest) {
			for i, r := range grant(t, store, reqs...) {
				frees = append(frees, driver.ReleaseRequest{Name: reqs[i].Name, Acq: reqs[i].Acq, Version: r.Version})
			}
			return frees
		}
		prepare := func() { // the statements, on the connection that is used next
			t.Helper()
			if _, err := store.Release(t.Context(), frees(requests("another", 100*n))); err != nil {
				t.Fatal(err)
			}
		}
		reqs := requests("name", 10*n)
		prepare()
		breaks.Store(true)
		_, err := store.Acquire(t.Context(), reqs)
		unclear("the acquisition", err)

		ends := frees(reqs)
		prepare()
		breaks.Store(true)
		_, err = store.Release(t.Context(), ends)
		unclear("the release", err)
		if freed, err := store.Release(t.Context(), ends); err != nil {
			t.Errorf("%+v, %v", freed, err)
		}
	}
}
