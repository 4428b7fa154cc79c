//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/internal/testdb"
)

// goRun builds a program of a user with the dependencies of this module, and runs it.
func goRun(t *testing.T, source, databaseURL string) string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "main.go")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(dir, "app"), file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, source)
	}
	cmd := exec.Command(filepath.Join(dir, "app"))
	cmd.Env = append(os.Environ(), "DATABASE_URL="+databaseURL)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

func TestInitMakesTheTablesAndPrintsAProgramThatRuns(t *testing.T) {
	t.Parallel()
	for _, engine := range testdb.All() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			d := testdb.New(t, engine)
			u := client{home: t.TempDir(), dsn: dsn(t, d, "")}
			r := u.run(t, "init")
			r.want(t, exitUsage, "", "nothing was changed; if this is to be applied, add --yes")
			if r.out != "" || !strings.Contains(r.err, "CREATE TABLE") || strings.Contains(r.err, "DROP TABLE") || strings.Contains(r.err, "bad ") {
				t.Errorf("stdout %q, and\n%s", r.out, r.err)
			}
			u.run(t, "migrate", "status").want(t, 0, "  no ", "")

			r = u.run(t, "--table-prefix", "p_", "init", "--yes")
			r.want(t, 0, `DB(db, lock`, "unique: sqllock works with this database")
			r.want(t, 0, "", "go mod edit -replace github.com/sqllock/sqllock=CLONE") // this build is of no release
			if !strings.Contains(goRun(t, r.out, d.DSN()), "I alone write the report") {
				t.Error("the program says nothing")
			}
			u.run(t, "--table-prefix", "p_", "inspect", "report/daily").want(t, 0, "released", "")
			u.run(t, "migrate", "status").want(t, 0, "  no ", "")

			again := u.run(t, "--table-prefix", "p_", "init")
			again.want(t, 0, r.out, "the tables are there")
			if strings.Contains(again.err, "CREATE") {
				t.Errorf("it shows what is done:\n%s", again.err)
			}
		})
	}
}

func TestInitSaysHowAModuleGetsTheLibrary(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"v0.2.0": "go get github.com/sqllock/sqllock@v0.2.0", "(devel)": "go mod edit -replace ", "unknown": "go mod edit -replace ",
		"v0.2.0+dirty": "go mod edit -replace ", "v0.2.1-0.20261127213100-edf6c22aabbc": "go mod edit -replace ",
	} {
		if got := goGet(version); !strings.HasPrefix(got, want) {
			t.Errorf("of %s: %s", version, got)
		}
	}
}

func TestInitPrintsTheSchema(t *testing.T) {
	t.Parallel()
	for _, engine := range testdb.Engines() {
		if engine == testdb.Postgres {
			d := testdb.New(t, engine)
			u := client{home: t.TempDir(), dsn: dsn(t, d, "")}
			r := u.run(t, "--schema", "s1", "init", "--yes")
			r.want(t, 0, `lockpg.DB(db, lockpg.Schema("s1"))`, "applied")
			goRun(t, r.out, d.DSN())
			u.run(t, "--schema", "s1", "inspect", "report/daily").want(t, 0, "released", "")
		}
	}
}

func TestInitEndsIfSomethingIsBad(t *testing.T) {
	t.Parallel()
	onEachDB(t, func(t *testing.T, s *clientDB) {
		s.exec(t, "UPDATE sqllock_meta SET compatible_from = 99990101000000, schema_version = 99990101000000")
		r := s.run(t, "init", "--yes")
		if r.code == 0 || r.out != "" || !strings.Contains(r.err, "newer") {
			t.Errorf("exit code %d, and\n%s%s", r.code, r.out, r.err)
		}
	})
}

func TestInitShowsNoMigrationIfMoreThanTheTablesIsBad(t *testing.T) {
	t.Parallel()
	for _, engine := range testdb.Engines() {
		if engine == testdb.Postgres {
			u := client{home: t.TempDir(), dsn: dsn(t, testdb.New(t, engine), "")}
			u = (&clientDB{client: u}).with(t, "default_transaction_read_only=on")
			r := u.run(t, "init", "--yes")
			r.want(t, exitNo, "", "bad   writes")
			if strings.Contains(r.err, "CREATE TABLE") || strings.Contains(r.err, "bad   tables") {
				t.Errorf("it says\n%s", r.err)
			}
		}
	}
}

func TestInitMakesNoFileUntilItIsAllowed(t *testing.T) {
	t.Parallel()
	u := newClient(t)
	path := filepath.Join(u.home, "locks.db")
	u.dsn = "sqlite:" + path
	u.run(t, "init").want(t, exitUsage, "", path+" does not exist yet")
	if _, err := os.Stat(path); err == nil {
		t.Error("asking has made the file")
	}
	u.run(t, "init", "-y").want(t, 0, "locksqlite", "DATABASE_URL='file:"+path+"?")
	u.run(t, "run", "n", "--", "echo", "ran").want(t, 0, "ran", "")
	u.dsn = "sqlite:/nonexistent/locks.db"
	u.run(t, "init", "--yes").want(t, exitUnavailable, "", "cannot use /nonexistent/locks.db")
}

// docs/command-line.md shows these lines.
func TestADSNInADotEnvFileIsUsed(t *testing.T) {
	t.Parallel()
	u := newClient(t)
	lines := "SQLLOCK_DSN='sqlite:" + filepath.Join(u.home, "a & b.db") + "'\n"
	if err := os.WriteFile(filepath.Join(u.home, ".env"), []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	p := u.command(t)
	p.Path, p.Args, p.Dir = "/bin/sh", []string{"sh", "-c", `set -a; . ./.env; set +a; "$0" run n -- true && "$0" ls --all`, binary}, u.home
	p.start()
	p.wait().want(t, 0, "released", "")
	if _, err := os.Stat(filepath.Join(u.home, "a & b.db")); err != nil {
		t.Error(err)
	}
}
