//go:build unix

package main

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/internal/output/outputtest"
	"github.com/sqllock/sqllock/internal/testdb"
)

// finds checks that doctor has a line of the grade, about the thing, with the parts,
// and exits with the code. It returns all that doctor said.
func (u client) finds(t *testing.T, code int, grade, what string, parts ...string) string {
	t.Helper()
	r := u.run(t, "doctor")
	if r.code != code || r.err != "" {
		t.Errorf("exit code %d, want %d; stderr %q", r.code, code, r.err)
	}
	found := false
	for line := range strings.Lines(r.out) {
		has := strings.HasPrefix(line, grade+strings.Repeat(" ", 6-len(grade))+what)
		for _, part := range parts {
			has = has && strings.Contains(line, part)
		}
		found = found || has
	}
	if !found {
		t.Errorf("want %s about %s, with %q", grade, what, parts)
	}
	if t.Failed() {
		t.Logf("doctor said:\n%s", r.out)
	}
	return r.out
}

func TestDoctorFindsNothingWhereAllIsWell(t *testing.T) {
	t.Parallel()
	onEachDB(t, func(t *testing.T, s *clientDB) {
		out := s.finds(t, 0, "ok", "locks", "works with this database")
		for line := range strings.Lines(out) {
			// On a server that tests share, a transaction of another test may be old.
			if !strings.HasPrefix(line, "ok  ") && !strings.HasPrefix(line, "warn  transactions") {
				t.Error(line)
			}
		}
		outputtest.CheckHarmless(t, "doctor", out)
	})
}

func TestDoctorMissesTables(t *testing.T) {
	t.Parallel()
	for _, engine := range testdb.All() {
		t.Run(engine, func(t *testing.T) {
			d := testdb.New(t, engine)
			u := client{home: t.TempDir(), dsn: dsn(t, d, "")}
			if engine == testdb.SQLite {
				u.run(t, "doctor").want(t, exitUnavailable, "", "no such file")
				if err := os.WriteFile(d.Path(), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			u.finds(t, exitNo, "bad", "tables", "does not exist", "sqllock migrate up")
			u.run(t, "migrate", "up").want(t, 0, "", "")
			s := &clientDB{client: u, d: d, db: d.Open(t)}
			s.exec(t, "DROP VIEW sqllock_locks")
			s.exec(t, "DROP TABLE sqllock_meta")
			u.finds(t, exitNo, "bad", "tables", "sqllock_meta")
		})
	}
}

func TestDoctorComparesVersions(t *testing.T) {
	t.Parallel()
	onEachDB(t, func(t *testing.T, s *clientDB) {
		set := func(version, compatible int64) {
			t.Helper()
			s.exec(t, "UPDATE sqllock_meta SET schema_version = "+s.parameter(1)+", compatible_from = "+s.parameter(2), version, compatible)
		}
		var mine int64
		if err := s.db.QueryRow("SELECT schema_version FROM sqllock_meta").Scan(&mine); err != nil {
			t.Fatal(err)
		}
		set(1, 1)
		s.finds(t, exitNo, "bad", "migrations", "older", "sqllock migrate down", "sqllock migrate up")
		set(mine+2, mine+1)
		s.finds(t, exitNo, "bad", "migrations", "update sqllock")
		set(mine+2, mine)
		s.finds(t, 0, "ok", "migrations", "newer")
		s.exec(t, "DELETE FROM sqllock_meta")
		s.finds(t, exitNo, "bad", "migrations", "cannot be read")
	})
}

func TestDoctorMissesTheIndex(t *testing.T) {
	t.Parallel()
	onEachDB(t, func(t *testing.T, s *clientDB) {
		s.exec(t, "CREATE TABLE lock_copy AS SELECT * FROM sqllock_lock")
		s.exec(t, "DROP VIEW sqllock_locks")
		s.exec(t, "DROP TABLE sqllock_lock")
		s.exec(t, "ALTER TABLE lock_copy RENAME TO sqllock_lock")
		s.finds(t, exitNo, "bad", "index", "sqllock_lock")
	})
}

func TestDoctorNeedsADatabaseThatAnswers(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{"postgres://u:hunter2@127.0.0.1:1/d", "mysql://u:hunter2@127.0.0.1:1/d", "sqlite:/nonexistent/locks.db"} {
		r := client{home: t.TempDir(), dsn: dsn}.run(t, "doctor")
		r.want(t, exitUnavailable, "", "sqllock: ")
		if r.out != "" || strings.Contains(r.err, "hunter2") {
			t.Errorf("%s: %+v", dsn, r)
		}
	}
}

// rootPage is the number of the first page of a table, from 1 on. It leaves no log behind.
func rootPage(t *testing.T, path, table string) (n int) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRowContext(t.Context(), "SELECT rootpage FROM sqlite_master WHERE name = ?", table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestDoctorOnAFileThatIsWrong(t *testing.T) {
	t.Parallel()
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	client{home: t.TempDir(), dsn: "sqlite:" + text}.finds(t, exitNo, "bad", "file", "not a database")

	u := newClient(t)
	u.run(t, "run", "n", "--", "true").want(t, 0, "", "")
	path := filepath.Join(u.home, ".local", "state", "sqllock", "locks.db")
	u.finds(t, 0, "ok", "file", path)
	const page = 4096
	at := page * (rootPage(t, path, "sqllock_lock") - 1)
	whole := file(path)
	if err := os.WriteFile(path, []byte(whole[:at]+strings.Repeat("x", page)+whole[at+page:]), 0o600); err != nil {
		t.Fatal(err)
	}
	u.finds(t, exitNo, "bad", "pages", "damaged")
}

func TestDoctorOnAFileInAnotherJournalMode(t *testing.T) {
	t.Parallel()
	s := newClientDB(t, testdb.New(t, testdb.SQLite))
	s.exec(t, "PRAGMA journal_mode = delete")
	if err := s.db.Close(); err != nil {
		t.Fatal(err)
	}
	s.finds(t, 0, "warn", "journal", "delete", "wal")
	s.finds(t, 0, "warn", "journal", "delete") // it has changed nothing
}

func TestDoctorOnAFileThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	s := newClientDB(t, testdb.New(t, testdb.SQLite))
	// Root may write to every file, so it is the connection that must not.
	db, err := openSQLiteURI("file:"+s.d.Path()+"?mode=ro", target{path: s.d.Path()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.handle.Close() }()
	out, err := os.Create(filepath.Join(s.home, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	a := &app{stdout: out}
	if err := a.check(t.Context(), db, a.putFinding); err == nil || !strings.Contains(file(out.Name()), "bad   writes        the file cannot be written") {
		t.Errorf("%v, and:\n%s", err, file(out.Name()))
	}
}

func TestDoctorTellsOfFunctionsThatNameTablesOfAnotherSchema(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, s *clientDB) {
		s.exec(t, "ALTER SCHEMA public RENAME TO moved")
		defer s.exec(t, "ALTER SCHEMA moved RENAME TO public")
		bind := `SELECT "moved"."sqllock_bind_1"('moved', 'sqllock_')`
		moved := s.with(t, "search_path=moved")
		moved.finds(t, exitNo, "bad", "tables", "sqllock_try_1", "another schema", bind)
		s.exec(t, bind)
		moved.finds(t, 0, "ok", "tables", "sqllock_lock")
	})
}

func TestDoctorTellsOfAForeignTableEarlierInTheSearchPath(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, s *clientDB) {
		s.exec(t, "CREATE SCHEMA foreigners")
		s.exec(t, "CREATE TABLE foreigners.sqllock_lock (id integer)")
		out := s.with(t, "search_path=foreigners,public").finds(t, 0, "warn", "tables", "in schema foreigners", "in schema public")
		if strings.Contains(out, "bad ") || !strings.Contains(out, `"public"."sqllock_lock"`) {
			t.Errorf("doctor looks at the tables that are used:\n%s", out)
		}
	})
}
