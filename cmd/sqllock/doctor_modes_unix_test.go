//go:build unix

package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/internal/testdb"
)

func TestDoctorTellsOfEachMode(t *testing.T) {
	t.Parallel()
	onEachDB(t, func(t *testing.T, s *clientDB) {
		for _, m := range modes {
			part := "sqllock works with this database"
			if s.d.Engine() == testdb.SQLite && m != unique {
				part = "not with this kind of database"
			}
			s.finds(t, 0, "ok", "locks", string(m)+": "+part)
		}
	})
}

func TestDoctorLooksAtTheTablesOfOtherModes(t *testing.T) {
	t.Parallel()
	onEachDB(t, func(t *testing.T, s *clientDB) {
		tables := []string{"claim", "waiter", "done"}
		if s.d.Engine() != testdb.SQLite {
			tables = append(tables, "term", "pin")
		}
		for _, table := range tables {
			s.finds(t, 0, "ok", "tables", "sqllock_"+table)
			s.exec(t, "ALTER TABLE sqllock_"+table+" RENAME TO hidden")
			s.finds(t, exitNo, "bad", "tables", "sqllock_"+table, "does not exist", "sqllock migrate up")
			s.exec(t, "ALTER TABLE hidden RENAME TO sqllock_"+table)
		}
		switch s.d.Engine() {
		case testdb.SQLite:
		case testdb.Postgres:
			s.finds(t, 0, "ok", "tables", "sqllock_token")
			s.exec(t, "ALTER SEQUENCE sqllock_token RENAME TO hidden")
			s.finds(t, exitNo, "bad", "tables", "sequence", "sqllock_token", "does not exist")
			s.exec(t, "ALTER SEQUENCE hidden RENAME TO sqllock_token")
			s.exec(t, "ALTER TABLE sqllock_term SET UNLOGGED")
			s.finds(t, exitNo, "bad", "tables", "sqllock_term", "unlogged", "SET LOGGED")
		default:
			s.exec(t, "ALTER TABLE sqllock_term ENGINE = MyISAM")
			s.finds(t, exitNo, "bad", "tables", "sqllock_term", "MyISAM", "ENGINE = InnoDB")
		}
	})
}

func TestDoctorTellsWhatOtherModesLack(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, s *clientDB) {
		u := s.account(t, "SELECT, INSERT, UPDATE, DELETE ON sqllock_lock", "SELECT, UPDATE ON sqllock_meta", "SELECT ON sqllock_term",
			"SELECT, INSERT, UPDATE, DELETE ON sqllock_claim", "SELECT, INSERT, UPDATE, DELETE ON sqllock_waiter", "SELECT, DELETE ON sqllock_done")
		out := u.finds(t, 0, "warn", "privileges", "lacks INSERT, UPDATE, DELETE on", "sqllock_term", "forupdate, advisory", "GRANT INSERT, UPDATE, DELETE ON")
		if !strings.Contains(out, "ok    locks         unique: ") {
			t.Error("the mode unique is usable")
		}
		u.finds(t, 0, "warn", "privileges", "sqllock_pin", "forupdate")
		u.finds(t, 0, "warn", "privileges", "lacks INSERT, UPDATE on", "sqllock_done", "which only Once takes", "GRANT INSERT, UPDATE ON")
		u.finds(t, 0, "warn", "locks", "forupdate: the account lacks privileges")
		u.finds(t, 0, "warn", "locks", "advisory: the account lacks privileges")
		if s.d.Engine() == testdb.Postgres {
			u.finds(t, 0, "warn", "privileges", "SELECT, UPDATE", "sqllock_token", "GRANT SELECT, UPDATE ON SEQUENCE")
		}
		s.account(t, "SELECT, INSERT, UPDATE, DELETE ON sqllock_lock", "SELECT, UPDATE ON sqllock_meta").
			finds(t, exitNo, "bad", "privileges", "SELECT", "sqllock_waiter", "GRANT")
		for table, required := range map[string][]string{
			"sqllock_claim": {"SELECT", "INSERT", "UPDATE", "DELETE"}, "sqllock_waiter": {"SELECT", "INSERT", "UPDATE"}, "sqllock_done": {"SELECT"},
		} {
			for _, lacks := range required {
				rest := strings.ReplaceAll(strings.ReplaceAll("SELECT, INSERT, UPDATE, DELETE", lacks+", ", ""), ", "+lacks, "")
				var grants []string
				for _, grant := range s.all() {
					if strings.HasSuffix(grant, " ON "+table) {
						grant = rest + " ON " + table
					}
					grants = append(grants, grant)
				}
				s.account(t, grants...).finds(t, exitNo, "bad", "privileges", "lacks "+lacks+" on", table, "GRANT "+lacks+" ON")
			}
		}

		var allButDelete []string
		for _, grant := range s.all() {
			if !strings.HasSuffix(grant, " ON sqllock_claim") {
				grant = strings.ReplaceAll(grant, ", DELETE", "")
			}
			allButDelete = append(allButDelete, grant)
		}
		out = s.account(t, allButDelete...).finds(t, 0, "warn", "privileges", "lacks DELETE", "sqllock_term", "which only reaping takes")
		for _, m := range modes {
			if !strings.Contains(out, "ok    locks         "+string(m)+": ") {
				t.Errorf("the mode %s is usable without DELETE:\n%s", m, out)
			}
		}
	})
}

func TestDoctorLooksAtEachFunctionOfTheGuide(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range regexp.MustCompile(`GRANT EXECUTE ON FUNCTION (.*) TO`).FindAllSubmatch(guide, -1) {
		names = append(names, strings.Split(string(m[1]), ", ")...)
	}
	if len(names) == 0 {
		t.Fatal("the guide names no function")
	}
	onPostgres(t, func(t *testing.T, s *clientDB) {
		s.exec(t, "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA public FROM PUBLIC")
		nobody, grants := s.account(t, s.all()...), s.all()
		for _, name := range names {
			s.exec(t, "ALTER FUNCTION "+name+" RENAME TO hidden")
			s.finds(t, exitNo, "bad", "tables", "function", name, "does not exist", "sqllock migrate up")
			s.exec(t, "ALTER FUNCTION hidden RENAME TO "+name)
			nobody.finds(t, 0, "warn", "privileges", "lacks EXECUTE on", name, "GRANT EXECUTE ON FUNCTION")
			grants = append(grants, "EXECUTE ON FUNCTION "+name)
		}
		out := s.account(t, grants...).finds(t, 0, "ok", "privileges", "all that it needs")
		for _, m := range modes {
			if !strings.Contains(out, "ok    locks         "+string(m)+": ") {
				t.Errorf("the mode %s is usable:\n%s", m, out)
			}
		}
	})
}
