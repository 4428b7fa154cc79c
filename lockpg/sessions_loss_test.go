package lockpg_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/netproxy"
	"github.com/sqllock/sqllock/internal/queuetest"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockpg"
)

// wantGone checks that a session learns that it has ended, without using it. Nothing else would
// tell it.
func wantGone(t *testing.T, s driver.Session) {
	t.Helper()
	select {
	case <-s.Gone():
	case <-time.After(sessionTTL / 3):
		t.Fatal("the end of the session is not told")
	}
}

// backendOf returns the process that serves a lock's session.
func backendOf(t *testing.T, db *sql.DB, name string) int {
	t.Helper()
	return get[int](t, db, `SELECT pid FROM sqllock_term WHERE name = $1 AND acq IS NOT NULL`, name)
}

// noted is a request whose holder is written down at once, in each mode.
func noted(name string) driver.AcquireRequest {
	r := ask(name)
	r.Value = []byte("noted")
	return r
}

func TestASessionThatTheServerEndsIsToldAtOnce(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, d *testdb.Database, m sessionMode) {
		c, other := m.client(t, d), m.client(t, d)
		r := noted("k")
		s, res := c.take(t, r)
		for range 3 { // what arrives at an idle session is no reason
			ping(t, s, r, res)
		}
		time.Sleep(50 * time.Millisecond)
		select {
		case <-s.Gone():
			t.Fatal("a session that lives is gone")
		default:
		}
		mustExec(t, c.db, `SELECT pg_terminate_backend($1)`, backendOf(t, c.db, "k"))
		wantGone(t, s)
		next := ask("k")
		_, res2 := other.gets(t, next, 20*time.Second)
		if res2.Version <= res.Version || res2.Crashed.Acq != r.Acq || res2.Crashed.Owner != r.Owner {
			t.Errorf("the next: %+v, after %+v", res2, res)
		}
		if _, err := s.Renew(t.Context(), []driver.RenewRequest{renewalOf(r, res)}); err == nil {
			t.Error("a session that has ended was renewed")
		}
		if _, err := s.Release(t.Context(), []driver.ReleaseRequest{releaseOf(r, res)}); err == nil && m.name == advisory.name {
			t.Error("a session that has ended has let go")
		}
		giveBack(t, s)
		if row := c.look(t, "k"); m.name == forUpdate.name && row.Holder.Acq != next.Acq {
			t.Errorf("what the former holder did has changed %+v", row)
		}
		ended := 0
		queuetest.BestWithin(t, 500*time.Millisecond, func() time.Duration {
			ended++
			name := fmt.Sprint("ended ", ended)
			s, _ := c.take(t, noted(name))
			pid := backendOf(t, c.db, name)
			began := time.Now()
			mustExec(t, c.db, `SELECT pg_terminate_backend($1)`, pid)
			wantGone(t, s)
			took := time.Since(began)
			giveBack(t, s)
			return took
		})
	})
}

func TestASessionOverTLSIsToldTooOnAServerOfItsOwn(t *testing.T) {
	t.Parallel()
	server := dedicated(t)
	plain := server.Open(t)
	migrate(t, plain)
	useTLS(t, server)
	for _, m := range sessionModes {
		c := m.client(t, server.Database, "sslmode=require")
		if !get[bool](t, c.db, `SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()`) {
			t.Fatal("the connection is not encrypted")
		}
		r := noted(m.name)
		s, res := c.take(t, r)
		for range 3 {
			ping(t, s, r, res)
		}
		mustExec(t, c.db, `SELECT pg_terminate_backend($1)`, backendOf(t, c.db, m.name))
		wantGone(t, s)
	}
}

func TestASilentClientIsFreedByTheServer(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, d *testdb.Database, m sessionMode) {
		if m.name == advisory.name && supported(t, d, "idle_session_timeout=1s") == nil {
			return // it is refused, see TestAServerThatEndsNoSilentSessionIsRefusedUnlessThatIsAccepted
		}
		const ttl = 5 * time.Second
		proxy := netproxy.New(t, d.Addr())
		c, other := m.on(t, d.OpenVia(t, proxy.Addr()), ttl), m.client(t, d)
		r := noted("k")
		s, res := c.take(t, r)
		var asked time.Time
		for end := time.Now().Add(2 * ttl); time.Now().Before(end); time.Sleep(ttl / 4) {
			asked = time.Now()
			ping(t, s, r, res)
			other.denied(t, ask("k"))
		}
		proxy.Freeze()
		_, res2 := other.gets(t, ask("k"), time.Minute)
		if took := time.Since(asked); took < ttl-50*time.Millisecond {
			t.Errorf("the name was free %v after the last renewal, with a TTL of %v", took, ttl)
		}
		if res2.Version <= res.Version || res2.Crashed.Acq != r.Acq {
			t.Errorf("the next: %+v after %+v", res2, res)
		}
	})
}

func TestAConnectionWhoseLocksAreInDoubtIsEndedInAPoolOfPgx(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, d *testdb.Database, m sessionMode) {
		pool, err := pgxpool.New(t.Context(), d.DSN())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		store, err := m.open(lockpg.Pool(pool), t.Context(), driver.Client{Label: "test"}, driver.SessionOptions{TTL: sessionTTL, AllowSilentHolders: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() }) // without which the pool waits for ever
		s, err := store.Session(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r := noted("k")
		if res, err := s.Grant(t.Context(), []driver.AcquireRequest{r}); err != nil || !res[0].Granted {
			t.Fatal(res, err)
		}
		other := m.client(t, d)
		pid := backendOf(t, other.db, "k")
		_ = s.Close() // which holds a lock
		other.gets(t, ask("k"), 20*time.Second)
		ends(t, other.db, pid) // and is not back in the pool
		ctx, cancel := context.WithCancel(t.Context())
		s, err = store.Session(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if _, err := s.Grant(ctx, []driver.AcquireRequest{ask("other")}); err == nil {
			t.Error("Grant with a context that has ended succeeds")
		}
		_ = s.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
		eventually(t, "all connections are given back", 5*time.Second, func() bool { return pool.Stat().AcquiredConns() == 0 })
	})
}

// TestASessionWhoseCallIsGivenUp… has a call end with its context, while the network
// says nothing. The connection is closed then, without a word to the server.
func TestASessionWhoseCallIsGivenUpIsOverForTheServerToo(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, d *testdb.Database, m sessionMode) {
		proxy := netproxy.New(t, d.Addr())
		c, other := m.on(t, d.OpenVia(t, proxy.Addr()), sessionTTL), m.client(t, d)
		r := noted("k")
		s, res := c.take(t, r)
		proxy.Freeze()
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if _, err := s.Renew(ctx, []driver.RenewRequest{renewalOf(r, res)}); err == nil {
			t.Fatal("a renewal without a reply succeeds")
		}
		wantGone(t, s)
		proxy.Thaw()
		other.gets(t, ask("k"), 20*time.Second)
	})
}

func TestSessionsThatComeAndGoLeaveNoGoroutineAndNoDescriptor(t *testing.T) {
	eachMode(t, func(t *testing.T, d *testdb.Database, m sessionMode) {
		db := d.Open(t)
		c := m.on(t, db, sessionTTL)
		cycle := func(i int) {
			r := ask("k")
			s, res := c.take(t, r)
			if i%2 == 0 {
				letGo(t, s, r, res)
			}
			giveBack(t, s) // or end
			eventually(t, "the name is free", 5*time.Second, func() bool {
				r := ask("k")
				s, res := c.try(t, r)
				if res.Granted { // what is not let go is freed a moment after the end only
					letGo(t, s, r, res)
				}
				giveBack(t, s)
				return res.Granted
			})
		}
		cycle(0)
		cycle(1)
		goroutines, files := runtime.NumGoroutine(), descriptors(t)
		for i := range 20 {
			cycle(i)
		}
		eventually(t, "the goroutines of sessions have ended", 5*time.Second, func() bool { return runtime.NumGoroutine() <= goroutines+4 })
		eventually(t, "the descriptors of sessions are closed", 5*time.Second, func() bool { return descriptors(t) <= files+4 })
	})
}

// descriptors counts those of the process, 0 where that cannot be done.
func descriptors(t *testing.T) int {
	t.Helper()
	if runtime.GOOS != "linux" {
		return 0
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestAConnectionThatHasDiedInThePoolIsReplaced(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, d *testdb.Database, m sessionMode) {
		admin := d.Open(t)
		for name, db := range map[string]*sql.DB{"pgx": d.Open(t), "a driver that does not look": hide(t, d.DSN())} {
			c := m.on(t, db, sessionTTL)
			for range 3 {
				r := ask(name)
				s, res := c.take(t, r) // without a second try
				letGo(t, s, r, res)
				giveBack(t, s)
				killSessions(t, admin)
			}
		}
	})
}
