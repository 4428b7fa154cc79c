//go:build unix

package main

import (
	"crypto/rand"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/testdb"
)

// account makes somebody who may do nothing but connect, and what is granted.
func (s *clientDB) account(t *testing.T, grants ...string) client {
	t.Helper()
	const password = "hunter2"
	name := "sqllock_test_" + strings.ToLower(rand.Text()[:8])
	full, create, drop := name, "CREATE ROLE %s LOGIN PASSWORD '%s'", []string{"DROP OWNED BY " + name, "DROP ROLE " + name}
	if s.d.Engine() != testdb.Postgres {
		full, create = "'"+name+"'@'%%'", "CREATE USER %s IDENTIFIED BY '%s'"
		drop = []string{"DROP USER " + strings.ReplaceAll(full, "%%", "%")}
	}
	full = strings.ReplaceAll(full, "%%", "%")
	s.exec(t, fmt.Sprintf(create, full, password))
	t.Cleanup(func() {
		for _, statement := range drop {
			s.exec(t, statement)
		}
	})
	for _, grant := range grants {
		s.exec(t, "GRANT "+grant+" TO "+full)
	}
	u, err := url.Parse(s.dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(name, password)
	return client{home: t.TempDir(), dsn: u.String()}
}

func onEachServer(t *testing.T, test func(t *testing.T, s *clientDB)) {
	onServers(t, test, testdb.Engines()...)
}

// onServers runs a test on those of some engines that are here.
func onServers(t *testing.T, test func(t *testing.T, s *clientDB), engines ...string) {
	for _, engine := range testdb.Engines() {
		if slices.Contains(engines, engine) {
			t.Run(engine, func(t *testing.T) {
				t.Parallel()
				test(t, newClientDB(t, testdb.New(t, engine)))
			})
		}
	}
}

// all are the privileges of somebody who may do everything but migrate.
func (s *clientDB) all() []string {
	grants := []string{"SELECT, UPDATE ON sqllock_meta"}
	for _, table := range []string{"lock", "claim", "waiter", "done", "term", "pin"} {
		grants = append(grants, "SELECT, INSERT, UPDATE, DELETE ON sqllock_"+table)
	}
	if s.d.Engine() == testdb.Postgres {
		grants = append(grants, "USAGE, SELECT, UPDATE ON SEQUENCE sqllock_token")
	}
	return grants
}

func TestFourPrivilegesAreEnoughForEverythingButMigrations(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, s *clientDB) {
		u := s.account(t, s.all()...)
		s.put(t, "crashed", "l", time.Now().Add(-time.Hour))
		u.run(t, "run", "n", "--", "echo", "ran").want(t, 0, "ran", "")
		u.run(t, "ls", "-a").want(t, 0, "n ", "")
		u.run(t, "inspect", "n").want(t, 0, "released", "")
		u.run(t, "wait", "n").want(t, 0, "", "")
		holding := u.shell(t, "@UP; sleep 60", "n", "--ttl", "15s")
		waiting := u.start(t, "run", "n", "--", "echo", "next")
		eventually(t, "a caller waits in the queue", func() bool { return s.waitingFor(t, "n") == 1 })
		u.run(t, "unlock", "n", "--force").want(t, 0, "unlocked n", "")
		holding.wait().want(t, exitLost, "", "revoked")
		waiting.wait().want(t, 0, "next", "")
		u.run(t, "reap", "--retention", "1s").want(t, 0, "1 crashed", "")
		u.run(t, "doctor").want(t, 0, "ok    privileges", "")
	})
}

func TestDoctorNamesThePrivilegesThatAreMissing(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, s *clientDB) {
		for grant, missing := range map[string][]string{
			"SELECT ON sqllock_lock":                 {"INSERT", "UPDATE", "DELETE"},
			"SELECT, INSERT ON sqllock_lock":         {"UPDATE", "DELETE"},
			"SELECT, INSERT, UPDATE ON sqllock_lock": {"DELETE"},
		} {
			u := s.account(t, append(s.all()[2:], grant, "SELECT ON sqllock_meta")...)
			r := u.run(t, "doctor")
			if len(missing) > 1 {
				r.want(t, exitNo, "bad   privileges", "")
			} else {
				r.want(t, 0, "ok    locks", "")
			}
			lacks := 0
			for line := range strings.Lines(r.out) {
				if strings.HasPrefix(line, "ok") || !strings.HasPrefix(line[6:], "privileges") {
					continue
				}
				lacks++
				want := []string{"UPDATE"}
				if strings.Contains(line, "sqllock_lock") {
					want = missing
				}
				if reaping := len(want) == 1; reaping != strings.Contains(line, "only reaping") || reaping != strings.HasPrefix(line, "warn") {
					t.Errorf("with %s: %s", grant, line)
				}
				line, _, _ = strings.Cut(line, ";")
				for _, privilege := range []string{"SELECT", "INSERT", "UPDATE", "DELETE"} {
					if got := strings.Contains(line, privilege); got != strings.Contains(strings.Join(want, " "), privilege) {
						t.Errorf("with %s: %s", grant, line)
					}
				}
			}
			if lacks != 2 {
				t.Errorf("with %s want a line for each table:\n%s", grant, r.out)
			}
		}
	})
}

func TestRowLevelSecurityIsNamed(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, s *clientDB) {
		u := s.account(t, s.all()...)
		u.run(t, "doctor").want(t, 0, "ok    privileges", "")
		if _, err := s.db.ExecContext(t.Context(), `ALTER TABLE sqllock_lock ENABLE ROW LEVEL SECURITY`); err != nil {
			t.Fatal(err)
		}
		u.run(t, "doctor").want(t, exitNo, "bad   privileges    row-level security", "")
		s.exec(t, `ALTER TABLE sqllock_lock DISABLE ROW LEVEL SECURITY`)
		s.exec(t, `ALTER TABLE sqllock_term ENABLE ROW LEVEL SECURITY`)
		r := u.run(t, "doctor")
		r.want(t, exitNo, "bad   privileges    row-level security", "")
		r.want(t, exitNo, "sqllock_term", "")
	})
}

// documented returns what a section of the guide grants, one statement each.
func documented(t *testing.T, s *clientDB, section string) (grants []string) {
	t.Helper()
	text, dialect := file(filepath.Join("..", "..", "docs", "operations.md")), "mysql"
	if s.d.Engine() == testdb.Postgres {
		dialect = "postgres"
	}
	_, text, found := strings.Cut(text, "```sql "+dialect+" grants "+section+"\n")
	text, _, _ = strings.Cut(text, "```")
	for line := range strings.Lines(text) {
		what, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "GRANT "), " TO ")
		if !strings.Contains(what, "ON DATABASE") { // which is called otherwise here
			grants = append(grants, strings.ReplaceAll(what, "app.", ""))
		}
	}
	if !found || len(grants) == 0 {
		t.Fatalf("no grants for %s", section)
	}
	return grants
}

func TestToLookTakesTheGrantsOfTheGuideAndNoRightToWrite(t *testing.T) {
	onEachServer(t, func(t *testing.T, s *clientDB) {
		u := s.account(t, documented(t, s, "look")...)
		for _, m := range modes {
			holding := s.shell(t, "@UP; sleep 60", "--mode", string(m), "n")
			defer holding.end(t)
			s.listed(t, m, "n")
			u.run(t, "inspect", "--mode", string(m), "n").want(t, 0, "held", "")
			u.run(t, "leader", "--mode", string(m), "n").want(t, 0, "token", "")
			u.run(t, "wait", "--mode", string(m), "m").want(t, 0, "", "")
		}
		r := u.run(t, "ls")
		if r.code != 0 || r.err != "" || strings.Count(r.out, "\nn ") != len(modes) {
			t.Errorf("ls: %+v", r)
		}
		u.run(t, "unlock", "n", "--force").want(t, exitUnavailable, "", "the account lacks a privilege")
		u.run(t, "reap").want(t, exitUnavailable, "", "the account lacks a privilege")
		u.run(t, "run", "--try", "other", "--", "true").want(t, exitUnavailable, "", "\"sqllock doctor\" names what to grant")
	})
}

// Doctor has nothing to say of these privileges, so that the message names them itself.
func TestMigrateNamesThePrivilegesThatItNeeds(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, s *clientDB) {
		u, needs := s.account(t, s.all()...), "use the account that migrates: it has CREATE, ALTER"
		commands := [][]string{{"migrate", "up"}}
		if s.d.Engine() == testdb.Postgres {
			s.exec(t, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
			needs = "use the role that migrates: it owns the tables, and has CREATE"
			commands = append(commands, []string{"init", "--yes"})
		}
		for _, args := range commands {
			r := u.run(t, append([]string{"--table-prefix", "p_"}, args...)...)
			r.want(t, exitUnavailable, "", "the account lacks a privilege: ")
			r.want(t, exitUnavailable, "", needs)
			if strings.Contains(r.err, "names what to grant") {
				t.Errorf("%q: %s", args, r.err)
			}
		}
	})
}

func TestDoctorTellsMissingGrantsFromMissingTables(t *testing.T) {
	onEachServer(t, func(t *testing.T, s *clientDB) {
		none := s.account(t)
		if s.d.Engine() != testdb.Postgres {
			none = s.account(t, "SELECT ON sqllock_meta") // without any the server lets nobody in
		}
		grants := "GRANT SELECT"
		if s.d.Engine() == testdb.Postgres {
			s.exec(t, "REVOKE USAGE ON SCHEMA public FROM PUBLIC")
			grants = "GRANT USAGE ON SCHEMA public"
		}
		out := none.finds(t, exitNo, "bad", "privileges", grants)
		if strings.Contains(out, "migrate up") || strings.Contains(out, "does not exist") {
			t.Errorf("it takes tables that it may not see for missing:\n%s", out)
		}
		if s.d.Engine() == testdb.Postgres {
			s.exec(t, "GRANT USAGE ON SCHEMA public TO PUBLIC")
		}
		noMeta := s.account(t, s.all()[1:]...)
		out = noMeta.finds(t, exitNo, "bad", "privileges", "GRANT SELECT, UPDATE ON", "sqllock_meta")
		if strings.Contains(out, "migrate up") {
			t.Errorf("it takes a table that it may not read for missing:\n%s", out)
		}
		s.exec(t, "DROP TABLE sqllock_pin")
		s.finds(t, exitNo, "bad", "tables", "sqllock_pin", "does not exist", "sqllock migrate up")
	})
}
