package lockpg_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockpg"
)

// pgbouncer starts a pooler in front of a server, and returns its address.
func pgbouncer(t *testing.T, server *testdb.Server, mode string) (addr string) {
	t.Helper()
	testdb.Cover(behindPooler, testdb.Postgres)
	return testdb.StartPooler(t, server.Database, mode)
}

var execModes = []string{"exec", "simple_protocol"}

func TestAPoolerInTransactionModeIsRefusedThroughPgbouncer(t *testing.T) {
	t.Parallel()
	server := dedicated(t)
	migrate(t, server.Open(t))
	addr := pgbouncer(t, server, "transaction")
	for _, m := range sessionModes {
		for _, mode := range execModes {
			db := server.OpenVia(t, addr, "default_query_exec_mode="+mode)
			m.refuses(t, lockpg.DB(db), driver.ErrUnsupported, "pooler", "NewUnique", "AllowSessionPooler")
			m.refuses(t, lockpg.DB(db, lockpg.AllowSessionPooler()), driver.ErrUnsupported, "pooler", "backend")
			hidden := hide(t, server.DSNVia(addr, "default_query_exec_mode="+mode)) // by a driver that is not known
			m.refuses(t, lockpg.DB(hidden), driver.ErrUnsupported, "pooler")
		}
	}
}

func TestAPoolerInSessionModeIsAcceptedIfItIsAllowedThroughPgbouncer(t *testing.T) {
	t.Parallel()
	server := dedicated(t)
	migrate(t, server.Open(t))
	addr := pgbouncer(t, server, "session")
	for _, m := range sessionModes {
		for _, mode := range execModes {
			db := server.OpenVia(t, addr, "default_query_exec_mode="+mode)
			m.refuses(t, lockpg.DB(db), driver.ErrUnsupported, "AllowSessionPooler")
			c, direct := m.on(t, db, sessionTTL, lockpg.AllowSessionPooler()), m.client(t, server.Database)
			r := noted(m.name + mode)
			s, res := c.take(t, r)
			direct.denied(t, ask(r.Name))
			ping(t, s, r, res)
			kill(t, direct, s, r.Name)
			direct.gets(t, ask(r.Name), 20*time.Second)
		}
	}
}

// listening counts those among the statements of an application through a pooler that are
// served by a connection that listens.
func listening(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	for range 20 {
		var channels int
		if err := db.QueryRow(`SELECT count(*) FROM pg_listening_channels()`).Scan(&channels); err != nil {
			t.Fatal(err)
		}
		n += min(channels, 1)
	}
	return n
}

func TestNobodyListensThroughAPoolerInTransactionModeThroughPgbouncer(t *testing.T) {
	server := dedicated(t)
	migrate(t, server.Open(t))
	addr := pgbouncer(t, server, "transaction")
	for _, mode := range execModes {
		for _, opts := range [][]lockpg.Option{nil, {lockpg.AllowSessionPooler()}} {
			db := server.OpenVia(t, addr, "default_query_exec_mode="+mode)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			err := openAs(t, lockpg.DB(db, opts...), 1).(driver.Listener).Listen(ctx, func(driver.ID) {})
			cancel()
			if !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), "pooler") {
				t.Errorf("%s: Listen = %v", mode, err)
			}
			if n := listening(t, db); n > 0 {
				t.Errorf("%s: %d of 20 statements of the application are served by a connection that listens", mode, n)
			}
		}
	}
}

func TestASessionPoolerLetsOneListenIfItIsAllowedThroughPgbouncer(t *testing.T) {
	server := dedicated(t)
	migrate(t, server.Open(t))
	addr := pgbouncer(t, server, "session")
	db := server.OpenVia(t, addr, "default_query_exec_mode=exec")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := openAs(t, lockpg.DB(db), 1).(driver.Listener).Listen(ctx, func(driver.ID) {})
	if !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("Listen = %v", err)
	}
	l := listen(t, openAs(t, lockpg.DB(db, lockpg.AllowSessionPooler()), 2))
	l.hearsNothing(t, server.Open(t), 2)
}

func TestWaitersGetTheirTurnThroughAPoolerInTransactionModeThroughPgbouncer(t *testing.T) {
	server := dedicated(t)
	migrate(t, server.Open(t))
	db := server.OpenVia(t, pgbouncer(t, server, "transaction"), "default_query_exec_mode=exec")
	var locks [2]*sqllock.Locker
	for i := range locks {
		l, err := sqllock.NewUnique(t.Context(), lockpg.DB(db), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close(context.WithoutCancel(t.Context())) })
		locks[i] = l
	}
	lease, err := locks[0].Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		next, err := locks[1].Lock(t.Context(), "k")
		if err == nil {
			err = next.Unlock(t.Context())
		}
		got <- err
	}()
	time.Sleep(200 * time.Millisecond) // it waits, and has tried to listen
	if err := lease.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("a waiter is not served")
	}
	if n := listening(t, db); n > 0 {
		t.Errorf("%d of 20 statements are served by a connection that listens", n)
	}
}
