//go:build unix

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/testdb"
)

func TestAllModesAreListedInOneOrder(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, s *clientDB) {
		var want []string
		for _, name := range []string{"a", "b/1", "b/2", "c"} {
			for _, m := range modes {
				if name == "c" && m != forUpdate {
					continue
				}
				holding := s.shell(t, "@UP; sleep 60", "--mode", string(m), "--label", "l of "+string(m), name)
				defer holding.end(t)
				want = append(want, name+" "+string(m))
			}
		}
		list := func(args ...string) (got []string) {
			for _, x := range entries(t, s.run(t, append([]string{"ls", "--json"}, args...)...).out) {
				got = append(got, x.Name+" "+string(x.Mode))
				if x.State != "held" || x.Token < 1e15 || x.Label != "l of "+string(x.Mode) || len(x.Owner) != 32 || x.Since.IsZero() || x.Until.IsZero() != x.Mode.sessions() {
					t.Errorf("%+v", x)
				}
			}
			return got
		}
		eventually(t, "all are listed", func() bool { return len(list()) >= len(want) })
		if got := list(); !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
		if got := list("b/"); !slices.Equal(got, want[3:9]) {
			t.Errorf("those that begin with b/: %q", got)
		}
		for _, m := range modes {
			only := slices.DeleteFunc(slices.Clone(want), func(x string) bool { return !strings.HasSuffix(x, " "+string(m)) })
			if got := list("--mode", string(m)); !slices.Equal(got, only) {
				t.Errorf("of %s: %q", m, got)
			}
		}
		r := s.run(t, "ls", "--mode", "for-update", "c")
		r.want(t, 0, "", "")
		if lines := strings.Split(r.out, "\n"); len(lines) != 3 || r.err != "" || !strings.Contains(lines[1], "s ago  session  ") {
			t.Errorf("as a table:\n%s%s", r.out, r.err)
		}
	})
}

// listed waits until the server knows the name of a lock.
func (s *clientDB) listed(t *testing.T, m mode, name string) {
	t.Helper()
	eventually(t, name+" is known", func() bool { return s.run(t, "wait", "-q", "--mode", string(m), "--wait", "0", name).code == exitNo })
}

func TestAModeThatIsRefusedIsLeftOutOfTheListAndSaidOnce(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, s *clientDB) {
		u := s.account(t, "SELECT, INSERT, UPDATE, DELETE ON sqllock_lock", "SELECT, INSERT, UPDATE, DELETE ON sqllock_claim",
			"SELECT, INSERT, UPDATE, DELETE ON sqllock_waiter", "SELECT, DELETE ON sqllock_done", "SELECT, UPDATE ON sqllock_meta")
		s.put(t, "n", "l", time.Now().Add(time.Hour))
		lines := func(r result) {
			t.Helper()
			for _, m := range []mode{forUpdate, advisory} {
				if strings.Count(r.err, "without the mode "+string(m)+": ") != 1 {
					t.Errorf("want one line about %s:\n%s", m, r.err)
				}
			}
			if strings.Count(r.err, "\n") != 2 {
				t.Errorf("want two lines:\n%s", r.err)
			}
		}
		r := u.run(t, "ls")
		r.want(t, 0, "n     unique  held", "")
		lines(r)
		r = u.run(t, "reap")
		r.want(t, 0, "1 seen, 0 crashed, 0 purged", "")
		lines(r)
		list, err := os.Create(filepath.Join(u.home, "list"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = list.Close() }()
		watching := u.command(t, "ls", "--watch", "--interval", "100ms")
		watching.Stdout = list
		watching.start()
		eventually(t, "it has listed them three times", func() bool { return strings.Count(file(list.Name()), "NAME") >= 3 })
		r = watching.end(t)
		if lines(r); r.code != 0 {
			t.Errorf("watched: %+v", r)
		}
		if r := u.run(t, "ls", "--mode", "unique"); r.code != 0 || r.err != "" {
			t.Errorf("of the mode unique: %+v", r)
		}
		r = u.run(t, "ls", "--mode", "forupdate")
		if r.want(t, exitUnavailable, "", "sqllock: "); strings.Contains(r.out, "held") || strings.Contains(r.err, "without") {
			t.Errorf("of a mode that is refused: %+v", r)
		}
	})
}

func TestWatchingKeepsThreeConnectionsAndLeavesNone(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, s *clientDB) {
		count := sessions(t, s.d)
		idle := count()
		watching := s.start(t, "ls", "--watch", "--interval", "100ms")
		most := 0
		for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			most = max(most, count()-idle)
		}
		if r := watching.end(t); r.code != 0 || r.err != "" || strings.Count(r.out, "NAME") < 5 {
			t.Errorf("%+v", r)
		}
		if most < 1 || most > maxSessionConns {
			t.Errorf("up to %d connections", most)
		}
		eventually(t, "all connections are closed", func() bool { return count() <= idle })
	})
}

func TestWatchOutlivesTheEndOfItsSessions(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, s *clientDB) {
		watching := s.start(t, "ls", "--watch", "--json", "--interval", "100ms")
		time.Sleep(time.Second)
		s.endSessions(t)
		holding := s.shell(t, "@UP; sleep 60", "--mode", "forupdate", "later")
		time.Sleep(2 * time.Second)
		if r := watching.end(t); r.code != 0 || !strings.Contains(r.out, `"later","mode":"forupdate"`) {
			t.Errorf("%+v", r)
		}
		holding.end(t)
	})
}

// The account has what the mode unique takes; to read is enough for the others.
func TestAModeThatTheAccountMayNotReadIsLeftOut(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, s *clientDB) {
		s.put(t, "n", "l", time.Now().Add(time.Hour))
		u := s.account(t, s.all()[:5]...)
		for _, m := range []mode{forUpdate, advisory} {
			u.run(t, "ls").want(t, 0, "n     unique  held", "without the mode "+string(m)+": ")
		}
		u = s.account(t, append(s.all()[:5], "SELECT ON sqllock_term")...)
		if r := u.run(t, "ls"); r.code != 0 || r.err != "" {
			t.Errorf("an account that may read: %+v", r)
		}
	})
}

func TestAModeThatTheLibraryRefusesIsLeftOut(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, s *clientDB) {
		change := "ALTER TABLE sqllock_term ENGINE = MyISAM"
		if s.d.Engine() == testdb.Postgres {
			change = "ALTER TABLE sqllock_term SET UNLOGGED"
		}
		s.exec(t, change)
		s.put(t, "n", "l", time.Now().Add(time.Hour))
		for _, m := range []mode{forUpdate, advisory} {
			s.run(t, "ls").want(t, 0, "n     unique  held", "without the mode "+string(m)+": ")
			s.run(t, "ls", "--mode", string(m)).want(t, exitUnavailable, "", "sqllock_term")
			s.run(t, "run", "--mode", string(m), "n", "--", "echo", "ran").want(t, exitUnavailable, "", "sqllock_term")
		}
	})
}
