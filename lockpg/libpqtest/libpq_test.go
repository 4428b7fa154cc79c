// Package libpqtest tests package lockpg through lib/pq, on which nothing else may
// depend. There are no files but tests.
package libpqtest

import (
	"bytes"
	"context"
	"database/sql"
	"testing"
	"time"

	_ "github.com/lib/pq"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/netproxy"
	"github.com/sqllock/sqllock/internal/queuetest"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/migrations"
)

const through = "lockpg through lib/pq"

func TestMain(m *testing.M) {
	testdb.Expect(through, testdb.Postgres)
	testdb.Main(m)
}

// open returns a database with tables and how to open a handle on it by an address.
func open(t *testing.T) (addr string, via func(addr string) *sql.DB) {
	t.Helper()
	testdb.Cover(through, testdb.Postgres)
	d := testdb.New(t, testdb.Postgres)
	if err := migrations.Up(t.Context(), lockpg.DB(d.Open(t))); err != nil {
		t.Fatal(err)
	}
	return d.Addr(), func(addr string) *sql.DB {
		db, err := sql.Open("postgres", d.DSNVia(addr))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
}

func unique(t *testing.T, db *sql.DB, opts *sqllock.UniqueOptions) *sqllock.Locker {
	t.Helper()
	l, err := sqllock.NewUnique(t.Context(), lockpg.DB(db), opts)
	return closing(t, l, err)
}

func closing(t *testing.T, l *sqllock.Locker, err error) *sqllock.Locker {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = l.Close(ctx)
	})
	return l
}

func TestAValueIsStoredAsItIs(t *testing.T) {
	addr, via := open(t)
	db := via(addr)
	value := []byte{0, 'v', '\\', 'x', 0xff}
	lockers := map[string]*sqllock.Locker{"unique": unique(t, db, nil)}
	l, err := sqllock.NewForUpdate(t.Context(), lockpg.DB(db), nil)
	lockers["for update"] = closing(t, l, err)
	l, err = sqllock.NewAdvisory(t.Context(), lockpg.DB(db), nil)
	lockers["advisory"] = closing(t, l, err)
	for mode, l := range lockers {
		lease, err := l.Lock(t.Context(), mode, sqllock.Value(value))
		if err != nil {
			t.Fatal(mode, err)
		}
		if info, err := l.Inspect(t.Context(), mode); err != nil || !bytes.Equal(info.Value, value) {
			t.Errorf("%s: %q, %v", mode, info.Value, err)
		}
		if err := lease.Unlock(t.Context()); err != nil {
			t.Error(mode, err)
		}
		e, err := l.Election(mode+" leader", &sqllock.ElectionOptions{Identity: "me"})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Campaign(t.Context(), value); err != nil {
			t.Fatal(mode, err)
		}
		if err := e.Proclaim(t.Context(), value[1:]); err != nil {
			t.Error(mode, err)
		}
		if leader, err := e.Leader(t.Context()); err != nil || !bytes.Equal(leader.Value, value[1:]) {
			t.Errorf("%s: proclaimed %q, %v", mode, leader.Value, err)
		}
		if err := e.Resign(t.Context()); err != nil {
			t.Error(mode, err)
		}
	}
}

// A visit is a transaction of several round trips.
func TestQueueAndSharedTerms(t *testing.T) {
	addr, via := open(t)
	db := via(addr)
	queuetest.Run(t, queuetest.Fixture{
		DB:       db,
		Classify: lockpg.DB(db).Classify,
		Open: func(tb testing.TB, client driver.Client) driver.Store {
			s, err := lockpg.DB(db).OpenUnique(tb.Context(), client)
			if err != nil {
				tb.Fatal(err)
			}
			return s
		},
		Clock: `(extract(epoch FROM clock_timestamp()) * 1000000)::bigint`,
		Rows:  true,
	})
}

// cutReply has the reply to the next execution of a statement cut off that has text in
// it: lib/pq sends what is to be executed after what it has prepared.
func cutReply(p *netproxy.Proxy, text string) {
	prepared, done := false, false
	p.OnUp(func(_ int, b []byte) netproxy.Action {
		switch {
		case done:
		case prepared && b[0] == 'B':
			done = true
			return netproxy.CutAfterReply
		case bytes.Contains(b, []byte(text)):
			prepared = true
		}
		return netproxy.Pass
	})
}

func TestAStatementWhoseSessionIsEndedIsUnclearAndNotRepeated(t *testing.T) {
	addr, via := open(t)
	db, admin := via(addr), via(addr)
	store, err := lockpg.DB(db).OpenUnique(t.Context(), driver.Client{})
	if err != nil {
		t.Fatal(err)
	}
	tx, err := admin.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.Exec(`LOCK TABLE sqllock_lock`); err != nil {
		t.Fatal(err)
	}
	returned := make(chan error, 1)
	go func() {
		_, err := store.Read(t.Context(), driver.ReadRequest{Names: []string{"k"}})
		returned <- err
	}()
	for ended := 0; ended == 0; time.Sleep(5 * time.Millisecond) {
		err := tx.QueryRow(`SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&ended)
		if err != nil {
			t.Fatal(err)
		}
	}
	select {
	case err = <-returned:
	case <-time.After(10 * time.Second): // it was sent again, and waits again
		_ = tx.Rollback()
		err = <-returned
	}
	if err == nil || new(lockpg.Database).Classify(err) != driver.Unclear {
		t.Errorf("%v is %d", err, new(lockpg.Database).Classify(err))
	}
}

func TestALockWhoseReplyIsLostIsTheSameLock(t *testing.T) {
	addr, via := open(t)
	p := netproxy.New(t, addr)
	l := unique(t, via(p.Addr()), &sqllock.UniqueOptions{TTL: 20 * time.Second, Reaper: &sqllock.ReaperOptions{Off: true}})
	cutReply(p, "sqllock_grant")
	lease, err := l.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestACallReturnsWhenTheNetworkIsFrozen(t *testing.T) {
	addr, via := open(t)
	p := netproxy.New(t, addr)
	store, err := lockpg.DB(via(p.Addr())).OpenUnique(t.Context(), driver.Client{})
	if err != nil {
		t.Fatal(err)
	}
	p.Freeze()
	defer p.Thaw()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	returned := make(chan error, 1)
	go func() {
		_, err := store.Read(ctx, driver.ReadRequest{Names: []string{"k"}})
		returned <- err
	}()
	select {
	case err := <-returned:
		if err == nil || new(lockpg.Database).Classify(err) != driver.Unclear {
			t.Errorf("%v is %d", err, new(lockpg.Database).Classify(err))
		}
	case <-time.After(20 * time.Second):
		t.Error("it has not returned 20 s after its context ended")
	}
}

func TestCloseReturnsWhenTheNetworkIsFrozen(t *testing.T) {
	addr, via := open(t)
	p := netproxy.New(t, addr)
	l := unique(t, via(p.Addr()), &sqllock.UniqueOptions{TTL: 3 * time.Second})
	lease, err := l.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	p.Freeze()
	defer p.Thaw()
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		_ = lease.Unlock(t.Context()) // which asks for other connections
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Close(ctx); err == nil {
			t.Error("Close = nil")
		}
	}()
	select {
	case <-returned:
	case <-time.After(30 * time.Second):
		t.Error("Close has not returned 30 s later")
	}
}
