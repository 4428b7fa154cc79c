//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/testdb"
)

func TestLookingChangesNothing(t *testing.T) {
	t.Parallel()
	onEachDB(t, func(t *testing.T, s *clientDB) {
		s.put(t, "crashed", "l", time.Now().Add(-48*time.Hour))
		s.exec(t, "INSERT INTO sqllock_lock (name, version) VALUES ('old', 1)")
		for _, args := range [][]string{{"ls"}, {"ls", "--all"}, {"inspect", "old"}, {"wait", "crashed"}, {"leader", "crashed"}, {"unlock", "old"}, {"doctor"}} {
			s.run(t, args...)
		}
		var rows, held int
		if err := s.db.QueryRow("SELECT count(*), count(acq) FROM sqllock_lock").Scan(&rows, &held); err != nil || rows != 2 || held != 1 {
			t.Errorf("%d rows, %d with a holder, %v: want 2 and 1", rows, held, err)
		}
	})
}

func TestLookingMakesNoTables(t *testing.T) {
	t.Parallel()
	commands := [][]string{{"ls"}, {"inspect", "n"}, {"leader", "n"}, {"wait", "n"}, {"unlock", "--force", "n"}, {"reap"}}
	for _, engine := range testdb.All() {
		t.Run(engine, func(t *testing.T) {
			d := testdb.New(t, engine)
			u := client{home: t.TempDir(), dsn: dsn(t, d, "")}
			if engine == testdb.SQLite {
				for _, args := range commands {
					u.run(t, args...).want(t, exitUnavailable, "", "no such file")
				}
				if err := os.WriteFile(d.Path(), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for _, args := range commands {
				u.run(t, args...).want(t, exitUnavailable, "", "sqllock migrate up")
			}
			u.run(t, "migrate", "status").want(t, 0, "no", "")
		})
	}
}

func TestTheDefaultFileIsNotMadeByLooking(t *testing.T) {
	t.Parallel()
	u := newClient(t)
	u.run(t, "ls").want(t, 0, "NAME", "nothing was ever locked")
	if r := u.run(t, "ls", "--json"); r.code != 0 || r.out != "" {
		t.Errorf("as JSON: %+v", r)
	}
	u.run(t, "inspect", "n").want(t, exitNo, "unknown", "")
	u.run(t, "leader", "n").want(t, exitNo, "", "nobody leads n")
	if r := u.run(t, "wait", "n"); r != (result{}) {
		t.Errorf("wait: %+v", r)
	}
	u.run(t, "unlock", "n", "--force").want(t, exitNo, "", "not held")
	u.run(t, "reap").want(t, 0, "0 seen", "")
	u.run(t, "doctor").want(t, 0, "does not exist", "")
	if left, err := os.ReadDir(u.home); err != nil || len(left) > 0 {
		t.Errorf("looking has left %v, %v", left, err)
	}
	u.run(t, "run", "n", "--", "true").want(t, 0, "", "")
	if r := u.run(t, "ls", "-a"); r.code != 0 || r.err != "" || !strings.Contains(r.out, "released") {
		t.Errorf("then: %+v", r)
	}
	if left, err := os.ReadDir(filepath.Join(u.home, ".local", "state", "sqllock")); err != nil || len(left) != 1 {
		t.Errorf("looking has left %v, %v", left, err)
	}
}
