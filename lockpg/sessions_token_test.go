package lockpg_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/netproxy"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockpg"
)

// TestASessionIsToldOfACrash… looks at the tokens too: after a crash none is handed out
// that was handed out before, by whomever.
func TestASessionIsToldOfACrashOnAServerOfItsOwn(t *testing.T) {
	t.Parallel()
	server := dedicated(t)
	migrate(t, server.Open(t))
	for _, m := range sessionModes {
		var last int64
		for _, how := range []func(){server.Kill, server.Stop, server.Kill} {
			c := m.on(t, server.Open(t), sessionTTL)
			var s driver.Session
			for i := range 40 { // more than the server logs ahead
				name := fmt.Sprint(m.name, i)
				if m.name == forUpdate.name {
					name = m.name
				}
				r := ask(name)
				session, res := c.take(t, r)
				if res.Version <= last {
					t.Fatalf("%s: token %d follows %d", m.name, res.Version, last)
				}
				last = res.Version
				if s = session; i < 39 {
					letGo(t, s, r, res)
					giveBack(t, s)
				}
			}
			how()
			wantGone(t, s)
			giveBack(t, s)
			server.Restart()
		}
	}
}

func TestNoTokenIsHandedOutTwiceHoweverManySessionsAreKilled(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, d *testdb.Database, m sessionMode) {
		a, b := m.client(t, d), m.client(t, d)
		admin := d.Open(t)
		var last int64
		for i := range 8 {
			for k := range 4 {
				c := []*client{a, b}[k%2]
				r := ask("k")
				r.Shared = k == 2
				var s driver.Session
				var res driver.AcquireResult
				eventually(t, "a session that was killed has let go", 20*time.Second, func() bool {
					var err error
					if s, err = c.Session(t.Context()); err != nil {
						return false
					}
					all, err := s.Grant(t.Context(), []driver.AcquireRequest{r})
					if err != nil || !all[0].Granted {
						_ = s.Close()
						return false
					}
					res = all[0]
					return true
				})
				if res.Version <= last || res.Version >= 1<<53 {
					t.Fatalf("round %d: token %d follows %d", i, res.Version, last)
				}
				last = res.Version
				if k == 3 && i%2 == 0 {
					defer func() { _ = s.Close() }()
					break // it is held when it is killed
				}
				letGo(t, s, r, res)
				giveBack(t, s)
			}
			killSessions(t, admin)
		}
	})
}

// A session may end after it has locked the pin, and its request to draw a token, which
// goes by another connection, arrive when somebody else has the lock.
func TestATokenThatIsDrawnTooLateTakesNoTermFromWhoHasTheLock(t *testing.T) {
	t.Parallel()
	d := withTables(t)
	a, b := forUpdate.client(t, d), forUpdate.client(t, d)
	for name, late := range map[string]driver.AcquireRequest{
		"alone": ask("alone"), "shared": askShared("shared"), "delayed": ask("delayed"),
	} {
		t.Run(name, func(t *testing.T) {
			r := noted(name)
			if name == "delayed" {
				r.Delay = time.Minute // begins when a holder crashes
			}
			s, res := a.take(t, r)
			got, err := lockpg.Draw(t.Context(), b.SessionStore, late)
			if err != nil || got.Granted || got.Crashed != (driver.Holder{}) || got.Holder.Until != 0 {
				t.Errorf("drawn too late: %+v, %v", got, err)
			}
			if status := a.guard(t, begin(t, a.db, sql.LevelDefault), guardOf(s, r, res)); status != driver.Guarded {
				t.Errorf("the holder's guard is %v", status)
			}
			row := a.look(t, name)
			if row.Holder.Acq != r.Acq || row.Holder.Version != res.Version {
				t.Errorf("the term is %+v, want that of token %d", row, res.Version)
			}
		})
	}
}

// TestNoTokenIsDrawnTwiceWhose… has the server log, without a flush, that the sequence
// went on, and then draws from what was logged ahead.
func TestNoTokenIsDrawnTwiceWhoseDrawingACrashHasUndoneOnAServerOfItsOwn(t *testing.T) {
	t.Parallel()
	server := dedicated(t, "-c", "wal_writer_delay=10s")
	migrate(t, server.Open(t))
	var last int64
	undone := 0
	for range 4 {
		c := advisory.on(t, server.Open(t), sessionTTL)
		s := c.session(t)
		draw := func() {
			t.Helper()
			res, err := s.Grant(t.Context(), []driver.AcquireRequest{ask(fmt.Sprint("k", acqs.Load()))})
			if err != nil || !res[0].Granted || res[0].Version <= last {
				t.Fatalf("%+v, %v, after %d", res, err, last)
			}
			last = res[0].Version
		}
		if _, err := s.Grant(t.Context(), nil); err != nil { // which lifts
			t.Fatal(err)
		}
		mustExec(t, server.Open(t, "synchronous_commit=off"), `SELECT nextval('sqllock_token')`)
		for range 10 {
			draw()
		}
		server.Kill()
		server.Restart()
		if get[int64](t, server.Open(t), `SELECT last_value FROM sqllock_token`) < last {
			undone++ // the server may have written its log for another reason
		}
	}
	if undone == 0 {
		t.Error("no crash has undone anything: the test shows nothing")
	}
}

func TestASessionThatEndedBeforeItsTokenWasDrawnIsGrantedNothing(t *testing.T) {
	t.Parallel()
	d := withTables(t)
	admin := d.Open(t)
	proxy := netproxy.New(t, d.Addr())
	late := forUpdate.on(t, d.OpenVia(t, proxy.Addr(), "default_query_exec_mode=simple_protocol"), sessionTTL)
	next := forUpdate.client(t, d)
	var once sync.Once
	var reader driver.AcquireResult
	proxy.OnUp(func(_ int, b []byte) netproxy.Action {
		if bytes.Contains(b, []byte("drawn AS MATERIALIZED")) {
			once.Do(func() { // it has the lock, and somebody else gets it
				mustExec(t, admin, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
					WHERE datname = current_database() AND state = 'idle in transaction'`)
				_, reader = next.gets(t, askShared("k"), 20*time.Second)
			})
		}
		return netproxy.Pass
	})
	res, err := tryLock(t, late, ask("k"))
	if reader.Version == 0 {
		t.Fatal("nobody got the lock meanwhile")
	}
	if err == nil {
		t.Errorf("a session that has ended was answered %+v; the reader has token %d", res, reader.Version)
	}
}
