package lockpg_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
)

func TestASessionHoldsALockUntilItReleasesIt(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, d *testdb.Database, m sessionMode) {
		handles := map[string]*sql.DB{"another driver": hide(t, d.DSN())}
		for name, params := range settings {
			handles[name] = d.Open(t, params...)
		}
		for name, handle := range handles {
			t.Run(name, func(t *testing.T) {
				a, b := m.on(t, handle, sessionTTL), m.on(t, handle, sessionTTL)
				r := ask(`größer "` + name + `' \`)
				r.Value = []byte{0, 1, '\'', '\\'}
				s, res := a.take(t, r)
				if res.Remaining != sessionTTL || res.Crashed != (driver.Holder{}) || time.Since(time.UnixMicro(res.Version)).Abs() > time.Minute {
					t.Errorf("granted: %+v", res)
				}
				want := driver.Holder{Acq: r.Acq, Owner: r.Owner, Label: "host/test/1", Version: res.Version, Since: res.Now}
				if got := b.denied(t, ask(r.Name)); got.Holder != want || got.Now < res.Now {
					t.Errorf("a rival is told %+v, want %+v", got, want)
				}
				again, err := s.Grant(t.Context(), []driver.AcquireRequest{r})
				if err != nil || !again[0].Granted || !again[0].Found || again[0].Version != res.Version {
					t.Errorf("repeated: %+v, %v", again, err)
				}
				if row := b.look(t, r.Name); row.Holder != want || !row.Session || row.Holds != 1 || string(row.Value) != string(r.Value) {
					t.Errorf("a look: %+v", row)
				}
				if status := ping(t, s, r, res); status != driver.Renewed {
					t.Errorf("renewal: %v", status)
				}
				if status := ping(t, s, ask(r.Name), res); status != driver.Ended {
					t.Errorf("renewal of another acq: %v", status)
				}
				letGo(t, s, r, res)
				if freed, err := s.Release(t.Context(), []driver.ReleaseRequest{releaseOf(r, res)}); err != nil || freed[0] {
					t.Errorf("a second release: %v, %v", freed, err)
				}
				if row := b.look(t, r.Name); row.Held() || row.Session || row.Ended != driver.EndedReleased || row.Holder.Version != res.Version ||
					row.Holder.Until < res.Now || row.Value != nil {
					t.Errorf("a look after the release: %+v", row)
				}
				next := ask(r.Name)
				s2, res2 := b.take(t, next)
				if res2.Version <= res.Version || res2.Crashed != (driver.Holder{}) {
					t.Errorf("the next: %+v, after %+v", res2, res)
				}
				letGo(t, s2, next, res2)
				giveBack(t, s)
				select {
				case <-s.Gone():
				default:
					t.Error("a session that was closed is not gone")
				}
				if _, err := s.Renew(t.Context(), nil); err == nil || a.Classify(err) != driver.Unreachable {
					t.Errorf("a renewal after Close: %v", err)
				}
			})
		}
	})
}

func TestNobodyHasALockBesideWhoHasItAlone(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, d *testdb.Database, m sessionMode) {
		a, b := m.client(t, d), m.client(t, d)
		writer := ask("k")
		s, res := a.take(t, writer)
		b.denied(t, askShared("k"))
		letGo(t, s, writer, res)
		last := res.Version
		var readers []driver.AcquireRequest
		var sessions []driver.Session
		var tokens []driver.AcquireResult
		for i := range 3 {
			c := []*client{a, b, b}[i]
			r := askShared("k")
			s, res := c.take(t, r)
			if res.Version <= last {
				t.Errorf("a reader's token %d follows %d", res.Version, last)
			}
			last = res.Version
			readers, sessions, tokens = append(readers, r), append(sessions, s), append(tokens, res)
			if status := ping(t, s, r, res); status != driver.Renewed {
				t.Errorf("a reader's renewal: %v", status)
			}
		}
		for i := range readers {
			a.denied(t, ask("k"))
			letGo(t, sessions[i], readers[i], tokens[i])
		}
		_, res = a.take(t, ask("k"))
		if res.Version <= last {
			t.Errorf("after the readers token %d follows %d", res.Version, last)
		}
	})
}

func TestASessionThatIsGivenBackLeavesNothing(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, d *testdb.Database, m sessionMode) {
		for name, params := range settings {
			t.Run(name, func(t *testing.T) {
				db := d.Open(t, append(params, "idle_in_transaction_session_timeout=77s", "lock_timeout=66s")...)
				db.SetMaxOpenConns(3)
				db.SetMaxIdleConns(3)
				var conns []*sql.Conn
				before := make(map[int]string)
				for i := range 3 {
					conn, err := db.Conn(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					conns = append(conns, conn)
					if i == 0 { // by the session, as an application may
						if _, err := conn.ExecContext(t.Context(), `SET tcp_keepalives_idle = 55`); err != nil {
							t.Fatal(err)
						}
					}
					before[pidOf(t, conn)] = allSettings(t, conn)
				}
				for _, conn := range conns {
					_ = conn.Close()
				}
				c := m.on(t, db, sessionTTL)
				for i := range 4 {
					r := ask(fmt.Sprint("k", i))
					s, res := c.take(t, r)
					if i%2 == 0 {
						ping(t, s, r, res)
					}
					letGo(t, s, r, res)
					giveBack(t, s)
				}
				if err := c.Close(); err != nil {
					t.Fatal(err)
				}
				if n := db.Stats().InUse; n != 0 {
					t.Errorf("%d connections are in use after Close", n)
				}
				for range 3 {
					conn, err := db.Conn(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					defer func() { _ = conn.Close() }()
					switch was, now := before[pidOf(t, conn)], allSettings(t, conn); {
					case was == "":
						t.Error("a connection was not given back")
					case was != now:
						t.Errorf("settings have changed: %s", difference(was, now))
					}
					if n := getOn[int](t, conn, `SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'`); n != 0 {
						t.Errorf("%d locks are left", n)
					}
				}
			})
		}
	})
}

func pidOf(t *testing.T, conn *sql.Conn) int { return getOn[int](t, conn, `SELECT pg_backend_pid()`) }

func getOn[T any](t *testing.T, conn *sql.Conn, query string) (v T) {
	t.Helper()
	if err := conn.QueryRowContext(t.Context(), query).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

// difference returns the lines of now that was has not.
func difference(was, now string) (lines []string) {
	for line := range strings.Lines(now) {
		if !strings.Contains(was, line) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// The term of a name is written anew by each holder, with all that it says of him.
func TestATermNamesTheBackendOfItsHolder(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, d *testdb.Database, m sessionMode) {
		for range 2 {
			c := m.client(t, d)
			r := ask("k")
			s, res := c.take(t, r)
			ping(t, s, r, res)
			pid := backendOf(t, c.db, "k")
			if n := get[int](t, c.db, `SELECT count(*) FROM pg_locks WHERE pid = $1 AND locktype IN ('advisory', 'tuple', 'transactionid')`, pid); n == 0 {
				t.Errorf("the backend %d holds no lock", pid)
			}
			letGo(t, s, r, res)
		}
	})
}
